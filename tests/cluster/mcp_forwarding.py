"""Two replicas that forward requests of MCP sessions to each other: what is used at both, what is refused, and what becomes
of the sessions of a replica that stops or is killed: mcp_forwarding.py SEKISHO."""
import collections, contextlib, hashlib, hmac, http.client, json, os, pathlib, shutil, sys, tempfile, threading, time
from parts import Database, Replica, Upstream, free_port, until

SECRET = "a secret of the replicas of this test"
REVISION = "2025-11-25"
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
    "protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}


def calculation(expression="6*7"):
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "calculator", "arguments": {"expression": expression}}}


def open_request(port, method, body=None, session=None, key="key-of-ann", path="/mcp", headers={}):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    sent |= {"X-API-Key": key} if key else {}
    sent |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": REVISION} if session else {}
    connection.request(method, path, body if isinstance(body, str) else json.dumps(body) if body else None, sent | headers)
    return connection, connection.getresponse()


def ask(*arguments, **options):
    """The status and the text of an answer."""
    _, response = open_request(*arguments, **options)
    return response.status, response.read().decode()


def begin(port, key="key-of-ann"):
    _, response = open_request(port, "POST", INITIALIZE, key=key)
    assert response.status == 200, response.read()
    session = response.getheader("Mcp-Session-Id")
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert ask(port, "POST", initialized, session, key)[0] == 202
    return session


def forwarded(to, body, method="POST", path="/mcp", later=0, secret=SECRET, client="192.0.2.7"):
    """The header of a forwarded request, as docs/replicas.md describes it."""
    def tag(key, *fields):
        return hmac.digest(key, b"".join(len(field).to_bytes(8, "big") + field for field in fields), "sha256")

    key = tag(secret.encode(), b"sekisho: forwarded requests")
    moment, digest = str(int((time.time() + later) * 1e6)), hashlib.sha256(body.encode()).digest()
    signed = tag(key, *(text.encode() for text in (moment, method, path, to, client)), digest)
    return f"{moment} {to} {client} {digest.hex()} {signed.hex()}"


class Test:
    def __init__(self, sekisho):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.database = Database(os.environ["TEST_DATABASE_URL"], os.environ["TEST_DATABASE_CONTROL"])
        self.upstream, self.addresses = Upstream([]), [free_port(), free_port()]
        self.replicas = [Replica(sekisho, self.folder / f"r{at}", None, self.settings(port)) for at, port in enumerate(self.addresses)]

    def settings(self, port):
        cluster = {"enabled": True, "address": f"127.0.0.1:{port}", "secret": SECRET}
        keys = [{"id": name, "key": f"key-of-{name}"} for name in ("ann", "bob")]
        keys.append({"id": "ada", "key": "key-of-ada", "roles": ["admin"]})
        return {"store": {"url": self.database.url}, "cluster": cluster, "auth": {"api_keys": keys},
                "outbound": {"allow_networks": ["127.0.0.0/8"], "openapi_allowed_domains": ["127.0.0.1"]}}

    def start(self):
        for replica in self.replicas:
            if replica.process is None or replica.process.poll() is not None:
                replica.start()
        for replica in self.replicas:
            until(replica.is_ready, 60, "a replica is ready")
        self.ports = [replica.port for replica in self.replicas]
        ready = [json.loads(ask(port, "GET", path="/readyz", key="key-of-ada")[1]) for port in self.ports]
        self.ids = [answer["replica"] for answer in ready]

    def stop(self):
        for replica in self.replicas:
            if replica.process and replica.process.poll() is None:
                replica.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def register(self, name):
        collection = {"name": name, "spec_inline": json.dumps(self.upstream.document())}
        assert ask(self.ports[0], "POST", collection, key="key-of-ada", path="/tools/openapi/register")[0] == 200

    def a_session_is_of_its_caller_at_both(self):
        one, other = self.ports
        session = begin(one)
        assert session.startswith(self.ids[0]) and len(session) == 134, session
        status, text = ask(other, "POST", calculation(), session)
        assert status == 200 and "42" in text, text
        assert ask(other, "POST", calculation(), session, "key-of-bob")[0] == 404
        assert ask(other, "POST", calculation(), session, "key-of-nobody")[0] == 401
        # On loopback callers without a key are let in, but what is forwarded is of another machine.
        anonymous = begin(one, None)
        _, refused = open_request(other, "POST", calculation(), anonymous, None)
        assert refused.status == 401 and refused.getheader("WWW-Authenticate") and not refused.getheader("X-Sekisho-Forwarded")
        assert ask(one, "POST", calculation(), anonymous, None)[0] == 200
        for forged in (session[:-1] + ("0" if session[-1] != "0" else "1"), session.replace(".", "-"), session[:69]):
            assert ask(other, "POST", calculation(), forged)[0] == 404
        for headers, expected in (({"Origin": "https://evil.example"}, 403), ({"Host": "evil.example"}, 403), ({"Origin": "http://localhost:1"}, 200)):
            assert ask(other, "POST", calculation(), session, headers=headers)[0] == expected, headers
        large = calculation("1" + " " * 2_000_000 + "+1")
        assert all("invalid_arguments" in ask(port, "POST", large, session)[1] for port in self.ports)

    def the_address_takes_only_what_a_replica_forwards(self):
        session, of_other, body = begin(self.ports[0]), begin(self.ports[1]), json.dumps(calculation())
        one, other = self.ids

        def direct(header, path="/mcp", session=session, key="key-of-ann", body=body, method="POST"):
            headers = {"X-Sekisho-Forwarded": header} if header else {}
            return ask(self.addresses[0], method, body, session, key, path, headers)[0]

        genuine = forwarded(one, body)
        assert direct(genuine) == 200 and direct(forwarded(one, body, later=-20)) == 200
        trail = self.replicas[0].folder / "state" / "audit.jsonl"
        until(lambda: "192.0.2.7" in trail.read_text(), 10, "the audit trail has the client's address")
        # It gives no right, is not forwarded again, and is not meant for another one.
        assert direct(genuine, key="none") == 401 and direct(genuine, key="key-of-bob") == 404
        assert direct(genuine, session=of_other) == 404 and direct(forwarded(other, body)) == 404
        refused = {
            "no header": direct(None),
            "a probe": direct(None, "/healthz", method="GET", body=None),
            "another route": direct(forwarded(one, "", "GET", "/tools/list"), "/tools/list", method="GET", body=None),
            "another secret": direct(forwarded(one, body, secret="x" * 40)),
            "another method": direct(forwarded(one, body, "GET")),
            "another path": direct(genuine, "/mcp?x=1"),
            "another body": direct(genuine, body=json.dumps(calculation("6*8"))),
            "another client": direct(genuine.replace("192.0.2.7", "192.0.2.8")),
            "long ago": direct(forwarded(one, body, later=-40)),
            "of the future": direct(forwarded(one, body, later=40)),
        }
        assert set(refused.values()) == {403}, refused

    def streams_are_forwarded_as_they_come_and_end_with_their_client(self):
        session = begin(self.ports[0])
        for at, port in enumerate((self.ports[1], self.ports[0])):
            # That of the round before was closed at the other replica: then each message comes here.
            def is_heard():
                connection, response = open_request(port, "GET", session=session)
                self.register(f"list{at}x{time.time_ns()}")
                response.fp.raw._sock.settimeout(3)
                with contextlib.closing(connection), contextlib.closing(response):
                    return any(b"list_changed" in response.fp.readline() for _ in range(20))

            until(is_heard, 30, "list_changed is heard")

    def many_clients_go_from_one_to_the_other(self):
        wrong = []

        def work(number):
            session = begin(self.ports[number % 2])
            for turn in range(20):
                message, port = calculation(f"{number}*100+{turn}"), self.ports[(number + turn) % 2]
                status, text = ask(port, "POST", message, session)
                while "policies could not be evaluated" in text:
                    # They have 50 ms, which is too little on a machine that is busy with other things.
                    status, text = ask(port, "POST", message, session)
                if status != 200 or str(number * 100 + turn) not in text:
                    wrong.append((status, text))
            ended = [ask(self.ports[(number + 1) % 2], "DELETE", session=session)[0]]
            ended += [ask(port, "POST", calculation(), session)[0] for port in self.ports]
            if ended != [204, 404, 404]:
                wrong.append(ended)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not wrong, wrong

    def sessions_of_a_replica_that_stops_are_unknown_at_once(self):
        session = begin(self.ports[0])
        _, stream = open_request(self.ports[1], "GET", session=session)
        assert self.replicas[0].stop() == 0
        stream.read()
        assert ask(self.ports[1], "POST", calculation(), session)[0] == 404
        self.start()

    def requests_that_are_forwarded_while_a_replica_stops_are_answered(self):
        sessions, statuses, stopped = [begin(self.ports[0]) for _ in range(8)], collections.Counter(), threading.Event()

        def work(session):
            while not stopped.is_set():
                statuses[ask(self.ports[1], "POST", calculation(), session)[0]] += 1

        workers = [threading.Thread(target=work, args=(session,)) for session in sessions]
        for worker in workers:
            worker.start()
        until(lambda: statuses[200] > 50, 20, "requests are forwarded")
        assert self.replicas[0].stop() == 0
        stopped.set()
        for worker in workers:
            worker.join()
        assert set(statuses) <= {200, 404}, statuses
        self.start()

    def sessions_of_a_killed_replica_are_unknown_when_it_is_lost(self):
        session = begin(self.ports[0])
        assert ask(self.ports[1], "POST", calculation(), session)[0] == 200
        self.replicas[0].kill()
        statuses = []

        def is_unknown():
            statuses.append(ask(self.ports[1], "POST", calculation(), session)[0])
            return statuses[-1] == 404

        until(is_unknown, 60, "the session is unknown")
        assert set(statuses[:-1]) <= {503}, statuses
        assert ask(self.ports[1], "POST", calculation(), begin(self.ports[1]))[0] == 200


test = Test(sys.argv[1])
try:
    test.start()
    for part in (
        test.a_session_is_of_its_caller_at_both,
        test.the_address_takes_only_what_a_replica_forwards,
        test.streams_are_forwarded_as_they_come_and_end_with_their_client,
        test.many_clients_go_from_one_to_the_other,
        test.sessions_of_a_replica_that_stops_are_unknown_at_once,
        test.requests_that_are_forwarded_while_a_replica_stops_are_answered,
        test.sessions_of_a_killed_replica_are_unknown_when_it_is_lost,
    ):
        part()
        print("passed:", part.__name__.replace("_", " "), flush=True)
finally:
    test.stop()
