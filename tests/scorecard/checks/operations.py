"""What an operator needs: health, metrics, traces, records, an orderly end."""
import http.client, re, time, urllib.parse

from checks import expect, same
from checks.control import outcome
from client import Failed


def fetched(run, path):
    parts = urllib.parse.urlsplit(path if "://" in path else run.gateway.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    connection.request("GET", parts.path if "://" in path else path, headers=run.gateway.users.get("operator", {}))
    response = connection.getresponse()
    body = response.read().decode(errors="replace")
    connection.close()
    return response.status, body


def health(run):
    status, body = fetched(run, run.gateway.paths.get("health", "/health"))
    same("the status", 200, status)


def numbers_of(run):
    status, body = fetched(run, run.gateway.paths.get("metrics", "/metrics"))
    same("the status of the metrics", 200, status)
    return {name: float(value) for name, value in re.findall(r"(?m)^([a-zA-Z_:][^#\s]*(?:\{[^}]*\})?) ([0-9.e+]+)$", body)}


def metrics(run):
    client = run.client()
    client.call("echo", {"value": "a"})
    before = numbers_of(run)
    for _ in range(7):
        client.call("echo", {"value": "a"})

    def grown():
        return [name for name, value in numbers_of(run).items() if value - before.get(name, 0) == 7]

    client.until(grown, 8, "no number grew by 7 with 7 calls")


def trace(run):
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    parent = f"00-{trace_id}-00f067aa0ba902b7-01"
    client = run.client()
    client.tools()
    client.headers["traceparent"] = parent
    client.call("echo", {"value": "a"}, meta={"traceparent": parent})
    entry = run.server().recorded("tools/call")[-1]
    carried = [entry["params"].get("_meta", {}).get("traceparent", ""), *(value for name, value in entry["headers"].items() if name.lower() == "traceparent")]
    expect(any(trace_id in value for value in carried), f"the server got {carried}")


def audit(run):
    client = run.client("alice")
    expect(outcome(lambda: client.call("echo", {"value": "a"})), "the call was refused")

    def named():
        return [line for line in run.gateway.audit_lines() if "alice" in line and "echo" in line]

    client.until(named, 8, "no record names alice and the tool within 8 s")


def drain(run):
    client = run.client()
    client.tools()
    running = run.background(lambda: client.call("seconds", {"seconds": 2}, seconds=15))
    client.until(lambda: run.server().recorded("tools/call", "seconds"), 10, "the call did not reach the server")
    run.gateway.end()
    same("the call", "waited 2", running.result(15).text().replace("2.0", "2"))


def start_again(run):
    same("a call", '{"value": "a"}', run.client().call("echo", {"value": "a"}).text())
    run.gateway.end()
    run.gateway.begin()
    end, observed = time.monotonic() + 30, ""
    while time.monotonic() < end:
        try:
            return same("a call", '{"value": "b"}', run.client().call("echo", {"value": "b"}).text())
        except Failed as failed:
            observed = str(failed)
        time.sleep(0.5)
    raise Failed(f"no call within 30 s: {observed[:300]}")
