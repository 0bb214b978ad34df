"""Sends calls of the tool `echo` and prints their times: load.py URL CALLERS CALLS [HEADERS], the headers as JSON.

Each caller has a session and a connection of its own, which stays open. The output is a JSON object: `seconds` of each call, sorted, and
`rate`, the calls a second of all callers.
"""
import http.client, json, sys, threading, time, urllib.parse

from client import Client, Failed, events


def prepared(url, headers):
    """A connection, its path and headers, and the body of a call in a session."""
    client = Client(url, headers).initialize()
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": client.called("echo"), "arguments": {"value": "a"}}}).encode()
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **client.headers,
            "MCP-Protocol-Version": client.server["protocolVersion"], **({"Mcp-Session-Id": client.session} if client.session else {})}
    connection = http.client.HTTPConnection(client.parts.hostname, client.parts.port, timeout=30)
    return connection, client.parts.path, sent, body


def called(connection, path, headers, body):
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    if "event-stream" in response.getheader("content-type", ""):
        answers = [got for got in events(response) if got.get("id") == 7]
    else:
        answers = [json.loads(response.read())]
    if not answers or "result" not in answers[0] or answers[0]["result"].get("isError"):
        raise Failed(f"a call failed: {str(answers)[:300]}")


def main():
    url, callers, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    headers = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    ready = [prepared(url, headers) for _ in range(callers)]
    seconds, failed = [], []

    def caller(own):
        try:
            for _ in range(calls // callers):
                begun = time.perf_counter()
                called(*own)
                seconds.append(time.perf_counter() - begun)
        except Exception as error:
            failed.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=caller, args=(own,)) for own in ready]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(failed[0])
    print(json.dumps({"seconds": sorted(seconds), "rate": len(seconds) / (time.perf_counter() - begun)}))


if __name__ == "__main__":
    main()
