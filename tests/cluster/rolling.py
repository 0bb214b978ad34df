"""The test of a rolling upgrade: rolling.py SEKISHO, with a database of scripts/with-postgresql.

Three replicas are replaced one after the other, under load. When the first one is, the schema becomes one step newer, as a program of the
next version would make it: the others go on with it, and start on it. No REST call may fail, and clients of MCP may have to begin a
session again."""
import collections, contextlib, http.client, itertools, json, os, pathlib, re, subprocess, sys, tempfile, threading, time, urllib.request

from load import Load
from parts import CALLERS, KEY, READY_SECONDS, Database, Replica, Upstream, free_port, until

REPLICAS = 3
# The balancer notices within a second that a replica is not ready.
DRAIN_SECONDS = 3
MCP_CLIENTS = 4
# Callers without a budget, and one whose budget is leased: where the machine is so slow that the database does not answer within a second,
# its calls may be refused as `overloaded`, upgrade or not.
*FREE, LEASED = CALLERS
ROOT = pathlib.Path(__file__).resolve().parents[2]
NEXT_SCHEMA = ROOT / "tests/cluster/next_schema.sql"


def settings(database_url, upstream):
    overrides = {f"effects__{kind}": {"rate_limit": 1_000_000, "cost_per_use": 0.001} for kind in upstream.KINDS}
    return {
        "store": {"url": database_url},
        "cluster": {"enabled": True, "address": f"127.0.0.1:{free_port()}", "secret": "a secret of the replicas of this test"},
        "server": {"shutdown_delay_seconds": DRAIN_SECONDS},
        "auth": {"api_keys": [{"id": caller, "key": KEY.format(caller)} for caller in FREE]
                             + [{"id": LEASED, "key": KEY.format(LEASED), "tenant": "leased"}]},
        "tenants": {"leased": {"max_cost_per_day": 1_000_000}},
        "limits": {"caller_rate_limit": 1_000_000},
        "outbound": {"allow_networks": ["127.0.0.1/32"], "openapi_allowed_domains": ["127.0.0.1"]},
        "openapi": {"collections": {"effects": {"spec_inline": json.dumps(upstream.document())}}},
        "tools": {"overrides": overrides},
        "agent": {"default_profile": "weather",
                  "profiles": {"weather": {"provider": "replay", "model": str(ROOT / "config/examples/weather.yaml")}}},
    }


class Balancer:
    """haproxy, which sends no request twice, and the next one to the next replica, also those of an MCP session."""

    def __init__(self, folder, replicas):
        self.port = free_port()
        servers = "\n".join(f"    server r{at} 127.0.0.1:{replica.port} check inter 300ms fall 2 rise 1"
                            for at, replica in enumerate(replicas))
        check = "option httpchk\n    http-check send meth GET uri /readyz hdr Host localhost"
        config = folder / "haproxy.cfg"
        config.write_text(f"""
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout check 3s
    retries 0
frontend all
    bind 127.0.0.1:{self.port}
    default_backend rest
backend rest
    balance roundrobin
    {check}
{servers}
""")
        self.process = subprocess.Popen(["haproxy", "-db", "-q", "-f", config])

    def stop(self):
        self.process.kill()
        self.process.wait()


class KeptConnection:
    """A caller whose connection stays open for all its calls."""

    def __init__(self, port, caller, numbers, history):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=40)
        self.caller, self.numbers, self.history = caller, numbers, history

    def call(self):
        body = json.dumps({"arguments": {"n": next(self.numbers), "caller": self.caller}})
        headers = {"Authorization": f"Bearer {KEY.format(self.caller)}", "Content-Type": "application/json"}
        event = {"type": "call", "kind": "kept", "status": None, "success": False, "code": None}
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.connection.request("POST", "/tools/effects__fast_rate/execute", body, headers)
            response = self.connection.getresponse()
            reply = json.loads(response.read())
            event |= {"status": response.status, "success": reply.get("success", False), "code": reply.get("error_info")}
        if event["status"] is None:
            self.connection.close()
        self.history.append(event)


class McpClient:
    """A client over streamable HTTP: a session that answers 404 is gone, and it begins another one."""

    def __init__(self, load, caller, history):
        self.port, self.caller, self.history = load.port, caller, history
        self.ids, self.session = itertools.count(1), None

    def step(self):
        if self.session is None:
            return self.initialize()
        arguments = {"n": next(self.ids), "caller": self.caller}
        status, _, message = self.send("tools/call", {"name": "effects__fast_rate", "arguments": arguments})
        is_error = "error" in message or message.get("result", {}).get("isError", True)
        self.history.append({"type": "mcp", "client": id(self), "status": status, "failed": status != 404 and is_error,
                             "message": message if is_error else None})
        if status == 404:
            self.session = None
        time.sleep(0.02)

    def initialize(self):
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "rolling", "version": "1"}}
        status, session, message = self.send("initialize", params)
        failed = status != 200 or not session or "result" not in message
        self.history.append({"type": "mcp", "client": id(self), "status": status, "failed": failed, "began": True, "message": message})
        if failed:
            return time.sleep(0.1)
        self.session = session
        self.send("notifications/initialized", None)

    def send(self, method, params):
        """The status, the session id, and the message that answers."""
        message = {"jsonrpc": "2.0", "method": method} | ({"id": next(self.ids), "params": params} if params else {})
        headers = {"Authorization": f"Bearer {KEY.format(self.caller)}", "Content-Type": "application/json",
                   "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=40)
        try:
            connection.request("POST", "/mcp", json.dumps(message), headers)
            response = connection.getresponse()
            text = response.read().decode()
            # An event stream has the message in its last event.
            data = re.findall(r"^data: ?(\{.*)$", text, re.MULTILINE)
            return response.status, response.headers["Mcp-Session-Id"], json.loads(data[-1] if data else text or "{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return None, None, {"error": repr(error)}
        finally:
            connection.close()


def converse(load, caller, history):
    """A new conversation with one request."""
    status, conversation = load.request("POST", "/api/conversations", caller, {"labels": {"test": "rolling"}})
    if status != 201:
        history.append({"type": "talk", "status": status, "ends": None, "code": "no conversation"})
        return
    load.execute(caller, conversation["id"])


def upgrade_schema(database):
    """What a program of the next version does when it starts: its file, and a row that says that it was applied."""
    version = database.number("SELECT MAX(version) FROM _sqlx_migrations") + 1
    applied = f"INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES ({version}, 'next', TRUE, '', 0)"
    database.psql(f"BEGIN; {NEXT_SCHEMA.read_text()} {applied}; COMMIT;")


def roll(replicas, database):
    """Replaces each replica."""
    for replica in replicas:
        assert replica.stop() == 0, (replica.folder.name, replica.tail())
        if replica is replicas[0]:
            upgrade_schema(database)
        replica.start()
        until(replica.is_ready, READY_SECONDS, f"{replica.folder.name} is ready: {replica.tail()}")
        # Until the balancer uses it again.
        time.sleep(1.5)
        print(f"{replica.folder.name} is replaced", flush=True)


def violations(history, replacements):
    """The sentences about what does not hold."""
    calls = [event for event in history if event["type"] == "call"]
    for event in (event for event in calls if event["status"] != 200 or not event["success"]):
        if (event["kind"], event["code"]) != ("priced", "overloaded"):
            yield f"a REST call failed: {event}"
    for event in (event for event in history if event["type"] == "talk" and event["ends"] != "succeeded"):
        yield f"a run of a conversation failed: {event}"
    by_client = collections.defaultdict(list)
    for event in history:
        if event["type"] == "mcp":
            by_client[event["client"]].append(event)
    for events in by_client.values():
        for event in (event for event in events if event["failed"]):
            yield f"an MCP request failed: {event}"
        statuses = [event["status"] for event in events]
        if statuses.count(404) > replacements:
            yield f"an MCP client lost {statuses.count(404)} sessions in {replacements} replacements"
        for at, (status, following) in enumerate(zip(statuses, events[1:])):
            if status == 404 and not following.get("began"):
                yield f"an MCP client got a second 404: {events[at:at + 2]}"
        if 404 in statuses and statuses[-1] == 404:
            yield "an MCP client did not go on"
    effects = collections.Counter(event["n"] for event in history if event["type"] == "effect" and event["kind"] == "keyed")
    for n, times in effects.items():
        if times > 1:
            yield f"the keyed call {n} ran {times} times"


def summary(history):
    counts = collections.Counter((event["kind"], event["status"]) for event in history if event["type"] == "call")
    for (kind, status), times in sorted(counts.items(), key=str):
        print(f"{kind:<10} {status}: {times}")
    print("conversations:", dict(collections.Counter(event["ends"] for event in history if event["type"] == "talk")))
    print("mcp:", dict(collections.Counter(event["status"] for event in history if event["type"] == "mcp")))
    for kind in ["keyed", "priced", "fast_rate", "kept"]:
        done = sum(times for (which, status), times in counts.items() if which == kind and status == 200)
        assert done > 50, f"only {done} calls of {kind} succeeded: the test shows nothing"
    lost = sum(event["status"] == 404 for event in history if event["type"] == "mcp")
    assert lost > 0, "no MCP session was lost: the test shows nothing"


def main(sekisho):
    history = []
    upstream = Upstream(history)
    database = Database(os.environ["TEST_DATABASE_URL"], os.environ["TEST_DATABASE_CONTROL"])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        replicas = [Replica(sekisho, folder / f"replica-{at}", None, settings(database.url, upstream)) for at in range(REPLICAS)]
        balancer = None
        try:
            for replica in replicas:
                replica.start()
                until(replica.is_ready, READY_SECONDS, f"{replica.folder.name} is ready: {replica.tail()}")
            balancer = Balancer(folder, replicas)
            load = Load(balancer.port, history)
            until(lambda: load.request("GET", "/readyz", "ann")[0] == 200, 10, "the balancer has a replica")
            time.sleep(1)
            for at, kind in enumerate(["keyed", "keyed", "fast_rate"]):
                send = load.keyed if kind == "keyed" else load.once
                load.run(lambda send=send, kind=kind, caller=FREE[at % 2]: send(kind, caller))
            load.run(lambda: load.once("priced", LEASED))
            for caller in FREE:
                load.run(KeptConnection(balancer.port, caller, load.numbers, history).call)
            for at in range(MCP_CLIENTS):
                load.run(McpClient(load, FREE[at % 2], history).step)
            load.run(lambda: converse(load, "ann", history))
            time.sleep(2)
            assert database.number("SELECT COUNT(*) FROM replicas") == REPLICAS
            roll(replicas, database)
            time.sleep(2)
            load.stop()
            for replica in replicas:
                assert replica.stop() == 0, (replica.folder.name, replica.tail())
            left = "CAST(cost_usd AS NUMERIC) <> 0 OR tokens <> 0"
            assert database.number("SELECT COUNT(*) FROM replicas") == 0, "replicas that stopped are registered"
            assert database.number(f"SELECT COUNT(*) FROM budget_leases WHERE {left}") == 0, "leases were not given back"
        finally:
            for replica in replicas:
                if replica.process and replica.process.poll() is None:
                    replica.kill()
            if balancer:
                balancer.stop()
    summary(history)
    found = list(violations(history, REPLICAS))
    for violation in found[:20]:
        print(f"VIOLATION: {violation}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
