"""Gateways that have a fault: each case is seen to fail against the one that its `twin` names (scorecard_test.py).

A twin passes messages on between clients and one server, and does one thing wrong. `aggregate` is a second kind, before several servers.
"""
import http.client, json, queue, socket, threading, time, urllib.parse, uuid
from http.server import BaseHTTPRequestHandler

from client import Client, Failed, events
from server import Listener

HOP = {"host", "content-length", "connection", "transfer-encoding", "keep-alive"}


def place(message, path):
    """The container and the key at a dotted path; None where it is not there."""
    *before, last = path.split(".")
    for name in before:
        name = int(name) if isinstance(message, list) else name
        try:
            message = message[name]
        except (KeyError, IndexError, TypeError):
            return None
    last = int(last) if isinstance(message, list) else last
    has = last < len(message) if isinstance(message, list) else isinstance(message, dict) and last in message
    return (message, last) if has else None


def drop(message, path):
    if found := place(message, path):
        del found[0][found[1]]


def put(message, path, value):
    if found := place(message, path):
        found[0][found[1]] = value


def tools_of(message):
    return (message.get("result") or {}).get("tools", []) if isinstance(message.get("result"), dict) else []


def keep_tools(message, holds):
    if tools_of(message):
        message["result"]["tools"] = [tool for tool in tools_of(message) if holds(tool)]


class Twin:
    """Passes on what clients and the server say, but for its fault."""

    def __init__(self, url, fault):
        self.parts, self.fault, self.given = urllib.parse.urlsplit(url), (fault or [""])[0], list(fault or [""])[1:]
        self.lock, self.one, self.remembered, self.streams, self.counted = threading.Lock(), None, {}, {}, 0
        self.broken, self.known = threading.Event(), set()
        self.begin()

    def begin(self, port=0):
        self.listener = Listener(("127.0.0.1", port), Handler)
        self.listener.twin = self
        self.port = self.listener.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.listener.shutdown()
        self.listener.server_close()

    # What the fault changes. A message of a client:

    def sent(self, message):
        match self.fault:
            case "request-drop":
                drop(message, self.given[0])
            case "request-set":
                put(message, *self.given)
            case "round":
                message = json.loads(json.dumps(message), parse_int=lambda digits: int(float(digits)))
            case "no-trace":
                drop(message, "params._meta.traceparent")
        return message

    def answer_to(self, message):
        """An answer that the twin gives by itself, or None."""
        method, error = message.get("method"), {"code": -32601, "message": "Method not found"}
        refused = {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
        match self.fault:
            case "refuse" if method == self.given[0]:
                return refused
            case "succeed-unknown" if method == "tools/call" and message["params"]["name"] == "nowhere":
                return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}
            case "answers-by-id" if method == "tools/call":
                return self.remembered.get(message["id"])
            case "limit" if method == "tools/call":
                with self.lock:
                    self.counted += 1
                if self.counted > self.given[0]:
                    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "Too many calls"}}
            case "needs-prompts" if method == "tools/list" and not self.has_prompts():
                return {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": []}}
        return None

    def has_prompts(self):
        try:
            Client(self.parts.geturl()).initialize().ask("prompts/list")
            return True
        except Failed:
            return False

    # A message of the server; None keeps it back.

    def got(self, message, request):
        match self.fault:
            case "drop":
                drop(message, self.given[0])
            case "set":
                put(message, *self.given)
            case "strip":
                if found := place(message, self.given[0]):
                    found[0][found[1]] = found[0][found[1]].strip()
            case "reverse":
                if found := place(message, self.given[0]):
                    found[0][found[1]].reverse()
            case "tool-drop":
                for tool in tools_of(message):
                    drop(tool, self.given[0])
            case "hide-with":
                keep_tools(message, lambda tool: not place(tool, self.given[0]))
            case "hide-without":
                keep_tools(message, lambda tool: place(tool, self.given[0]))
            case "hide-dotted":
                keep_tools(message, lambda tool: "." not in tool["name"])
            case "hide-revision" if self.given[0] in self.known:
                keep_tools(message, lambda tool: False)
            case "cut-description":
                for tool in tools_of(message):
                    tool["description"] = tool["description"][:1000]
            case "error-to-result" if "error" in message:
                message = {"jsonrpc": "2.0", "id": message["id"], "result": self.given[0]}
            case "number-ids" if "method" not in message and isinstance(message.get("id"), str):
                message["id"] = 1
            case "lists-once" if tools_of(message):
                message["result"] = self.remembered.setdefault("tools", message["result"])
            case "answers-by-id" if request.get("method") == "tools/call":
                self.remembered[request["id"]] = message
            case "answers-shifted" if request.get("method") == "tools/call":
                message["result"], self.remembered["last"] = self.remembered.get("last", message.get("result")), message.get("result")
            case "dies-on-large" if len(str(message)) > 1_000_000:
                self.broken.set()
        if "method" in message and self.fault == "swallow" and message["method"] == self.given[0]:
            return None
        if place(message, "result.protocolVersion"):
            self.known.add(message["result"]["protocolVersion"])
        return message


class Handler(BaseHTTPRequestHandler):
    """HTTP of a twin."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass

    @property
    def twin(self):
        return self.server.twin

    def headers_for_server(self):
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        if self.twin.fault == "no-trace":
            headers = {name: value for name, value in headers.items() if name.lower() != "traceparent"}
        if self.twin.fault == "session-each" and "mcp-session-id" in self.headers:
            client = Client(self.twin.parts.geturl()).initialize()
            headers = {name: value for name, value in headers.items() if name.lower() != "mcp-session-id"} | {"Mcp-Session-Id": client.session}
        if self.twin.fault == "one-session" and self.twin.one and "mcp-session-id" in self.headers:
            headers = {name: value for name, value in headers.items() if name.lower() != "mcp-session-id"} | {"Mcp-Session-Id": self.twin.one}
        return headers

    def forward(self, method, body=None, path=None, timeout=60):
        parts = self.twin.parts
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        connection.request(method, path or parts.path, body, self.headers_for_server())
        response = connection.getresponse()
        if response.status in (307, 308) and self.twin.fault != "no-redirect":
            return self.forward(method, body, response.getheader("location"), timeout)
        return response

    def reply(self, status, body=b"", headers={}):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        twin, body = self.twin, self.rfile.read(int(self.headers.get("content-length") or 0))
        message = twin.sent(json.loads(body))
        method = message.get("method")
        if twin.broken.is_set():
            return self.drop()
        if (answer := twin.answer_to(message)) is not None:
            return self.reply(200, json.dumps({**answer, "id": message.get("id")}).encode())
        if twin.fault == "swallow-sent" and method == twin.given[0]:
            return self.reply(202)
        if twin.fault == "needs-session" and "mcp-session-id" not in self.headers and method != "initialize":
            return self.reply(400)
        if twin.fault == "answers-remembered" and "method" not in message:
            message["result"] = twin.remembered.setdefault("answer", message.get("result"))
        if twin.fault == "one-session" and method == "initialize" and twin.one:
            return self.reply(200, json.dumps({**twin.remembered["initialize"], "id": message["id"]}).encode(), {"Mcp-Session-Id": uuid.uuid4().hex})
        serial = twin.fault == "serial" and method == "tools/call"
        if serial:
            twin.lock.acquire()
        try:
            self.pass_on(message)
        except OSError:
            self.lost()
        finally:
            if serial:
                twin.lock.release()

    def lost(self):
        """The server's connection ended, or took too long."""
        if self.twin.fault == "hang-on-loss":
            time.sleep(20)
        if self.twin.fault == "gives-up":
            self.twin.broken.set()
        self.drop()

    def drop(self):
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def pass_on(self, message):
        twin, fault = self.twin, self.twin.fault
        timeout = twin.given[0] if fault == "upstream-timeout" else 60
        try:
            response = self.forward("POST", json.dumps(message).encode(), timeout=timeout)
        except http.client.HTTPException:
            return self.lost()
        kept = {name: value for name, value in response.getheaders() if name.lower() not in HOP | {"content-type", "date", "server"}}
        streams = "event-stream" in response.getheader("content-type", "")
        if (fault == "json-only" and streams) or (fault == "stream-only" and not streams and "id" in message):
            return self.drop()
        if fault == "keeps-session" and response.status in (400, 404):
            return self.reply(200, json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32000, "message": "Session lost"}}).encode())
        if streams:
            return self.stream(response, message, kept)
        body = response.read()
        if fault == "succeed-on-503" and response.status == 503:
            body, response.status = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": {"content": []}}).encode(), 200
        try:
            got = json.loads(body) if body else None
        except ValueError:
            if fault == "hang-on-garbage":
                time.sleep(20)
            return self.reply(response.status, body, kept)
        if isinstance(got, dict) and "jsonrpc" in got:
            got = twin.got(got, message)
            if message.get("method") == "initialize" and fault == "one-session":
                twin.one, twin.remembered["initialize"] = response.getheader("mcp-session-id"), got
            body = json.dumps(got).encode()
        self.reply(response.status, body, kept)

    # Streams.

    def begin(self, headers={}):
        self.writing = threading.Lock()
        self.send_response(200)
        for name, value in {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def event(self, message):
        data = b"data: " + json.dumps(message).encode() + b"\n\n"
        with self.writing:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def stream(self, response, request, headers):
        twin, answered = self.twin, False
        if "initialize" == request.get("method") and twin.fault == "one-session":
            headers = {**headers}
        self.begin(headers)
        for got in events(response):
            answered = answered or "method" not in got
            got = twin.got(got, request)
            if twin.broken.is_set():
                return self.drop()
            if got is None:
                continue
            if "method" in got and twin.fault == "broadcast" and "id" not in got:
                for other in list(twin.streams.values()):
                    other.put(got)
            self.event(got)
            if twin.fault == "first-message":
                break
        if not answered and twin.fault == "hang-on-cut":
            time.sleep(20)
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self):
        twin = self.twin
        if self.path != "/mcp":
            return self.reply(404)
        if twin.fault == "broadcast":
            return self.broadcast()
        try:
            response = self.forward("GET", timeout=None)
            if response.status != 200:
                return self.reply(response.status)
            self.stream(response, {}, {})
        except OSError:
            self.drop()

    def broadcast(self):
        """The standing stream with the messages of every client."""
        waiting = self.twin.streams[id(self)] = queue.Queue()

        def read():
            try:
                for got in events(self.forward("GET", timeout=None)):
                    for other in list(self.twin.streams.values()):
                        other.put(got)
            except OSError:
                pass

        threading.Thread(target=read, daemon=True).start()
        self.begin()
        try:
            while True:
                self.event(waiting.get(timeout=60))
        except (OSError, queue.Empty):
            self.drop()

    def do_DELETE(self):
        response = self.forward("DELETE")
        self.reply(response.status)


class Aggregate:
    """Several servers as one: their tools without a prefix, each list after the other. It waits for each, and names may hide others."""

    def __init__(self, urls, fault):
        self.urls, self.fault, self.tools, self.clients = urls, fault, {}, {}
        self.listener = Listener(("127.0.0.1", 0), AggregateHandler)
        self.listener.twin = self
        self.url = f"http://127.0.0.1:{self.listener.server_address[1]}/mcp"
        self.lock, self.listed = threading.Lock(), None
        if fault == "lists-once":
            self.list_tools()
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.listener.shutdown()
        self.listener.server_close()

    def list_tools(self):
        if self.fault == "lists-once" and self.listed is not None:
            return self.listed
        tools = {}
        for url in self.urls.values():
            try:
                client = Client(url).initialize(60)
                for tool in client.tools():
                    tools[tool["name"]] = tool
                    self.tools[tool["name"]] = client
            except Failed:
                if self.fault == "fails-together":
                    raise
        self.listed = list(tools.values())
        return self.listed

    def answer(self, message):
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "twin", "version": "1"}}
        if method == "tools/list":
            return {"tools": self.list_tools()}
        return self.tools[params["name"]].ask(method, params).result


class AggregateHandler(Handler):
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        if "id" not in message:
            return self.reply(202)
        try:
            got = {"result": self.twin.answer(message)}
        except (Failed, KeyError) as error:
            got = {"error": {"code": -32000, "message": str(error)}}
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **got}).encode())

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.reply(200)


class TwinGateway:
    """A twin in the place of a gateway: it has users that it does not tell apart, and its process ends in no order."""

    users = {"alice": {"Authorization": "Bearer key-of-alice"}, "bob": {"Authorization": "Bearer key-of-bob"}}
    paths = {}

    def __init__(self, servers, fault):
        self.fault = list(fault)
        if self.fault[:1] == ["aggregate"]:
            self.twin = Aggregate(servers, (self.fault[1:] or [""])[0])
        else:
            self.twin = Twin(next(iter(servers.values())), self.fault)
        self.url = self.twin.url

    def stop(self):
        self.twin.stop()

    def approve(self):
        """It asks nobody."""

    def take_away(self, tool):
        """It reads no configuration."""

    def audit_lines(self):
        return []

    def end(self):
        if self.fault[:1] == ["ends-at-once"]:
            self.twin.broken.set()
            self.twin.parts = self.twin.parts._replace(netloc="127.0.0.1:1")
        self.twin.stop()

    def begin(self):
        """It does not start again."""
