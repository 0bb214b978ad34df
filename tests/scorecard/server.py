"""The MCP servers behind a gateway: one that is plain and keeps to the specification, and others with one oddity or fault each (odd.py).

All listen on one port, each at `/NAME/mcp`, over streamable HTTP with revisions up to 2026-07-28. A server records what reached it: a
case compares the record and the answer that a client got.
"""
import contextlib, itertools, json, queue, threading, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
SESSIONLESS = "2026-07-28"
PROTOCOL_META = "io.modelcontextprotocol/"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OBJECT = {"type": "object"}


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


class Refused(Exception):
    """A JSON-RPC error that a handler answers."""

    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Lost(Exception):
    """The connection is closed without an answer."""


class Session:
    """A session of one client of a server."""

    def __init__(self, capabilities=None):
        self.id = uuid.uuid4().hex
        self.capabilities = capabilities or {}
        self.standing = queue.Queue()  # messages for the stream of GET; None ends it
        self.pending = {}  # the server's requests that wait for an answer: id → queue
        self.cancelled = {}  # running requests: id → event
        self.level = "debug"
        self.remembered = None
        self.subscribed = set()
        self.tasks = {}


class Exchange:
    """One request: what its handler may read and send before the answer."""

    def __init__(self, server, session, message, headers, send):
        self.server, self.session, self.message, self.headers, self.send = server, session, message, headers, send
        self.params = message.get("params") or {}
        self.ended = threading.Event()

    def notify(self, method, **params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method, params, seconds=20):
        """A request to the client on the stream of this one; its result."""
        number = f"server-{next(self.server.numbers)}"
        answers = self.session.pending[number] = queue.Queue()
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise Refused(-32603, f"nobody answered {method}") from None
        finally:
            self.session.pending.pop(number, None)
        if "error" in answer:
            raise Refused(answer["error"].get("code", -32603), f"{method}: {answer['error'].get('message')}")
        return answer["result"]


class Plain:
    """Every part of the protocol, as the specification says it."""

    name = "plain"
    page = 1000  # tools in one page of a list

    def __init__(self, cases=()):
        self.results = {case["id"]: case for case in cases if "result" in case or "error" in case}
        self.numbers = itertools.count(1)
        self.reset()

    def reset(self):
        """As a server that has just been started."""
        self.sessions, self.record, self.added, self.changed = {}, [], [], {}
        self.introduced = []  # the capabilities of all clients
        self.lock, self.present = threading.Lock(), True

    def recorded(self, method, tool=None):
        with self.lock:
            found = [entry for entry in self.record if entry["method"] == method]
        return [entry for entry in found if tool is None or entry["params"].get("name") == tool]

    def capabilities(self):
        return {"tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}, "prompts": {"listChanged": True},
                "completions": {}, "logging": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}

    def introduction(self):
        return {"capabilities": self.capabilities(), "serverInfo": {"name": f"scorecard-{self.name}", "version": "1"},
                "instructions": f"Instructions of {self.name}: use answer first."}

    def initialize(self, params):
        asked = params.get("protocolVersion")
        return {"protocolVersion": asked if asked in REVISIONS else REVISIONS[0], **self.introduction()}

    # Lists.

    def tools(self):
        task = {"execution": {"taskSupport": "optional"}}
        tools = [
            {"name": "answer", "title": "Answer", "description": "Answers what a case needs.\n\nSecond paragraph, 関所.",
             "inputSchema": schema(case={"type": "string"}), "annotations": {"readOnlyHint": True, "openWorldHint": False}},
            {"name": "echo", "description": "Answers its arguments.", "inputSchema": {"type": "object", "additionalProperties": True}},
            {"name": "shaped", "title": "A shaped tool", "description": "A tool with everything that a tool may have.",
             "inputSchema": {"type": "object", "$defs": {"point": schema(x={"type": "number"}, y={"type": "number", "default": 0})},
                             "properties": {"at": {"$ref": "#/$defs/point"}, "mode": {"enum": ["fast", "slow", None]},
                                            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 3}},
                             "required": ["at"]},
             "outputSchema": schema(sum={"type": "number"}), "_meta": {"example.com/team": "shapes"},
             "icons": [{"src": f"data:image/png;base64,{PIXEL}", "mimeType": "image/png", "sizes": ["1x1"]}],
             "annotations": {"title": "Shaped", "readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}},
            {"name": "erase", "description": "Deletes a file.", "inputSchema": schema(path={"type": "string"}),
             "annotations": {"readOnlyHint": False, "destructiveHint": True}},
            {"name": "seconds", "description": "Waits, then answers.", "inputSchema": schema(seconds={"type": "number"}), **task},
        ]
        plain = ["metadata", "headers", "progress", "log", "sample", "elicit", "openpage", "roots", "recall", "grow"]
        tools += [{"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object", "properties": {}}} for name in plain]
        tools += [{"name": name, "description": f"The tool {name}.", "inputSchema": schema(value={"type": "string"})} for name in ("remember", "touch")]
        return [{**tool, **self.changed.get(tool["name"], {})} for tool in tools + self.added]

    def list_tools(self, exchange):
        return self.paged(exchange, "tools", self.tools())

    def paged(self, exchange, member, items):
        start = int(exchange.params.get("cursor") or 0)
        more = {"nextCursor": str(start + self.page)} if start + self.page < len(items) else {}
        return {member: items[start:start + self.page], **more}

    def resources(self):
        return [{"uri": "demo://note", "name": "note", "title": "A note", "mimeType": "text/markdown", "size": 8, "annotations": {"priority": 0.5}},
                {"uri": "demo://pixel", "name": "pixel", "mimeType": "image/png"}]

    def read_resource(self, exchange):
        uri = exchange.params.get("uri", "")
        if uri == "demo://note":
            return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": "# A note"}]}
        if uri == "demo://pixel":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
        if uri.startswith("demo://file/"):
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": uri.removeprefix("demo://file/")}]}
        raise Refused(-32002, "Resource not found", {"uri": uri})

    def prompts(self):
        return [{"name": "review", "title": "Review", "description": "Asks for a review.",
                 "arguments": [{"name": "code", "description": "What to review.", "required": True}, {"name": "style", "required": False}]}]

    def get_prompt(self, exchange):
        if exchange.params.get("name") != "review":
            raise Refused(-32602, "Unknown prompt")
        code = (exchange.params.get("arguments") or {}).get("code", "")
        image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        embedded = {"type": "resource", "resource": {"uri": "demo://note", "mimeType": "text/markdown", "text": "# A note"}}
        messages = [("user", {"type": "text", "text": f"Review: {code}"}), ("user", image), ("assistant", embedded)]
        return {"description": "Asks for a review.", "messages": [{"role": role, "content": content} for role, content in messages]}

    def complete(self, exchange):
        value = exchange.params.get("argument", {}).get("value", "")
        context = (exchange.params.get("context") or {}).get("arguments", {})
        values = [f"{value}{end}{context.get('code', '')}" for end in ("-short", "-long")]
        return {"completion": {"values": values, "total": 7, "hasMore": True}}

    # Calls.

    def call_tool(self, exchange):
        arguments, name = exchange.params.get("arguments") or {}, exchange.params.get("name")
        call = getattr(self, f"call_{name}", None)
        if call is None:
            raise Refused(-32602, f"Unknown tool: {name}")
        if "task" in exchange.params:
            return self.as_task(exchange, lambda: call(exchange, arguments))
        return call(exchange, arguments)

    def call_answer(self, exchange, arguments):
        case = self.results.get(arguments.get("case"))
        if case is None:
            raise Refused(-32602, "no such case")
        if "error" in case:
            raise Refused(case["error"]["code"], case["error"]["message"], case["error"].get("data"))
        return case["result"]

    def call_echo(self, exchange, arguments):
        return {**text(json.dumps(arguments, ensure_ascii=False)), "structuredContent": {"arguments": arguments}}

    def call_shaped(self, exchange, arguments):
        return {**text('{"sum": 3}'), "structuredContent": {"sum": 3}}

    def call_erase(self, exchange, arguments):
        return text(f"deleted {arguments.get('path')}")

    def call_metadata(self, exchange, arguments):
        return text(json.dumps(exchange.params.get("_meta") or {}))

    def call_headers(self, exchange, arguments):
        return text(json.dumps({name.lower(): value for name, value in exchange.headers.items()}))

    def call_progress(self, exchange, arguments):
        token = (exchange.params.get("_meta") or {}).get("progressToken")
        for step in (1, 2, 3):
            if token is not None:
                exchange.notify("notifications/progress", progressToken=token, progress=step, total=3, message=f"step {step}")
            time.sleep(0.05)
        return text("done" if token is not None else "no token")

    def call_log(self, exchange, arguments):
        for level in ("debug", "warning"):
            if ["debug", "info", "warning", "error"].index(level) >= ["debug", "info", "warning", "error"].index(exchange.session.level):
                exchange.notify("notifications/message", level=level, logger="scorecard", data={"said": f"a {level}", "count": 2})
        time.sleep(0.05)
        return text("logged")

    def call_sample(self, exchange, arguments):
        params = {"messages": [{"role": "user", "content": {"type": "text", "text": "How many gates?"}}], "maxTokens": 77, "systemPrompt": "Count."}
        return text(json.dumps(exchange.ask("sampling/createMessage", params)))

    def call_elicit(self, exchange, arguments):
        asked = schema(colour={"type": "string", "enum": ["red", "blue"], "title": "Colour"})
        form = {"mode": "form"} if (exchange.session.capabilities.get("elicitation") or {}).get("form") is not None else {}
        return text(json.dumps(exchange.ask("elicitation/create", {**form, "message": "Which colour?", "requestedSchema": asked})))

    def call_openpage(self, exchange, arguments):
        page = {"mode": "url", "message": "Open the page.", "url": "https://example.com/sign-in?state=1", "elicitationId": "page-1"}
        return text(json.dumps(exchange.ask("elicitation/create", page)))

    def call_roots(self, exchange, arguments):
        return text(json.dumps(exchange.ask("roots/list", {})))

    def call_seconds(self, exchange, arguments):
        cancelled = exchange.session.cancelled.get(exchange.message["id"]) or threading.Event()
        if cancelled.wait(float(arguments.get("seconds", 0))):
            raise Lost
        return text(f"waited {arguments.get('seconds')}")

    def call_remember(self, exchange, arguments):
        exchange.session.remembered = arguments.get("value")
        return text("remembered")

    def call_recall(self, exchange, arguments):
        return text(str(exchange.session.remembered))

    def call_touch(self, exchange, arguments):
        uri = arguments.get("value")
        for session in list(self.sessions.values()):
            if uri in session.subscribed:
                session.standing.put({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
        return text("touched")

    def call_grow(self, exchange, arguments):
        # Another list each time.
        self.added = [{"name": "grown", "description": f"Was added later, by change {next(self.numbers)}.", "inputSchema": OBJECT}]
        self.tell("notifications/tools/list_changed")
        return text("grown")

    def call_grown(self, exchange, arguments):
        return text("as grown")

    def tell(self, method):
        for session in list(self.sessions.values()):
            session.standing.put({"jsonrpc": "2.0", "method": method})

    # Tasks of 2025-11-25.

    def as_task(self, exchange, call):
        task = {"taskId": uuid.uuid4().hex, "status": "working", "createdAt": "2026-01-31T12:00:00Z", "lastUpdatedAt": "2026-01-31T12:00:00Z",
                "ttl": 60000, "pollInterval": 100}
        kept = exchange.session.tasks[task["taskId"]] = {"task": task, "done": threading.Event()}

        def run():
            kept["result"] = call()
            kept["task"] = {**task, "status": "completed"}
            kept["done"].set()

        threading.Thread(target=run, daemon=True).start()
        return {"task": task}

    def task_of(self, exchange):
        kept = exchange.session.tasks.get(exchange.params.get("taskId"))
        if kept is None:
            raise Refused(-32602, "Unknown task")
        return kept

    def task_result(self, exchange):
        kept = self.task_of(exchange)
        kept["done"].wait(20)
        related = {"io.modelcontextprotocol/related-task": {"taskId": kept["task"]["taskId"]}}
        return {**kept["result"], "_meta": related}

    # The transport asks for these.

    def answer(self, exchange):
        method, session = exchange.message["method"], exchange.session
        simple = {
            "ping": lambda: {}, "tools/list": lambda: self.list_tools(exchange), "tools/call": lambda: self.call_tool(exchange),
            "resources/list": lambda: self.paged(exchange, "resources", self.resources()),
            "resources/templates/list": lambda: {"resourceTemplates": [{"uriTemplate": "demo://file/{path}", "name": "file", "mimeType": "text/plain"}]},
            "resources/read": lambda: self.read_resource(exchange), "prompts/list": lambda: self.paged(exchange, "prompts", self.prompts()),
            "prompts/get": lambda: self.get_prompt(exchange), "completion/complete": lambda: self.complete(exchange),
            "tasks/get": lambda: self.task_of(exchange)["task"], "tasks/result": lambda: self.task_result(exchange),
            "tasks/list": lambda: {"tasks": [kept["task"] for kept in session.tasks.values()]},
            "server/discover": lambda: {"supportedVersions": [SESSIONLESS], **self.introduction()},
        }
        if method in simple:
            return simple[method]()
        if method == "resources/subscribe":
            session.subscribed.add(exchange.params.get("uri"))
        elif method == "resources/unsubscribe":
            session.subscribed.discard(exchange.params.get("uri"))
        elif method == "logging/setLevel":
            session.level = exchange.params.get("level")
        else:
            raise Refused(-32601, f"Method not found: {method}")
        return {}

    def response(self, exchange):
        """The JSON-RPC response to a request."""
        try:
            result = self.answer(exchange)
            if exchange.headers.get("mcp-protocol-version") == SESSIONLESS:
                lasting = {"ttlMs": 0, "cacheScope": "private"} if exchange.message["method"].endswith(("/list", "/read", "/discover")) else {}
                result = {"resultType": "complete", **lasting, **result}
            return {"jsonrpc": "2.0", "id": exchange.message["id"], "result": result}
        except Refused as refused:
            return {"jsonrpc": "2.0", "id": exchange.message["id"], "error": refused.error}

    def streams(self, message):
        """Whether the answer comes as a stream, and so may have messages before it."""
        return message["method"] == "tools/call"

    def notified(self, handler, session, message):
        if message["method"] == "notifications/cancelled":
            if event := session.cancelled.get((message.get("params") or {}).get("requestId")):
                event.set()
        handler.reply(202)

    def respond(self, handler, exchange):
        """Answers a request over HTTP."""
        if not self.streams(exchange.message):
            return handler.reply(200, self.response(exchange), exchange.extra)
        handler.begin_stream(exchange.extra)
        exchange.send = handler.event
        response = self.response(exchange)
        handler.event(response)
        handler.end_stream()

    def post(self, handler, message):
        """A message that a client sent."""
        headers = handler.headers
        with self.lock:
            self.record.append({"method": message.get("method"), "params": message.get("params") or {}, "headers": dict(headers), "id": message.get("id"),
                                "session": headers.get("mcp-session-id")})
        session = self.session_of(handler, message)
        if session is None:
            return self.unknown_session(handler, message)
        if "method" not in message:
            if answers := session.pending.get(message.get("id")):
                answers.put(message)
            return handler.reply(202)
        if "id" not in message:
            return self.notified(handler, session, message)
        exchange = Exchange(self, session, message, headers, lambda _: None)
        exchange.extra = {}
        if message["method"] == "initialize":
            exchange.extra = {"Mcp-Session-Id": session.id} if self.sessions.get(session.id) else {}
            return handler.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": self.initialize(exchange.params)}, exchange.extra)
        session.cancelled.setdefault(message["id"], threading.Event())
        try:
            self.respond(handler, exchange)
        finally:
            session.cancelled.pop(message["id"], None)

    def session_of(self, handler, message):
        if message.get("method") == "initialize":
            session = Session((message.get("params") or {}).get("capabilities"))
            self.introduced.append(session.capabilities)
            self.sessions[session.id] = session
            return session
        if handler.headers.get("mcp-protocol-version") == SESSIONLESS and "mcp-session-id" not in handler.headers:
            return Session()
        return self.sessions.get(handler.headers.get("mcp-session-id"))

    def unknown_session(self, handler, message):
        error = {"code": -32001, "message": "Session not found"}
        handler.reply(404 if "mcp-session-id" in handler.headers else 400, {"jsonrpc": "2.0", "id": message.get("id"), "error": error})

    def get(self, handler):
        """The standing stream."""
        session = self.sessions.get(handler.headers.get("mcp-session-id"))
        if session is None:
            return handler.reply(405 if "mcp-session-id" not in handler.headers else 404)
        handler.begin_stream({})
        while (message := session.standing.get()) is not None:
            handler.event(message)
        handler.end_stream()

    def delete(self, handler):
        session = self.sessions.pop(handler.headers.get("mcp-session-id"), None)
        if session is not None:
            session.standing.put(None)
        handler.reply(200 if session else 404)


class Handler(BaseHTTPRequestHandler):
    """HTTP for the servers: JSON bodies and streams of events."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 120

    def log_message(self, *_):
        pass

    def handle(self):
        with contextlib.suppress(OSError):
            super().handle()

    def target(self):
        name = self.path.split("?")[0].strip("/").split("/")[0]
        return self.server.servers.get(name)

    def body(self):
        """The body of a request, whole or in chunks."""
        if "chunked" not in self.headers.get("transfer-encoding", "").lower():
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_POST(self):
        body, server = self.body(), self.target()
        if server is None or not server.present:
            return self.drop() if server else self.reply(404)
        try:
            message = json.loads(body)
        except ValueError:
            return self.reply(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}})
        try:
            server.post(self, message)
        except (Lost, OSError):
            self.drop()

    def do_GET(self):
        server = self.target()
        if server is None or not server.present:
            return self.drop() if server else self.reply(404)
        try:
            server.get(self)
        except OSError:
            self.close_connection = True

    def do_DELETE(self):
        server = self.target()
        server.delete(self) if server and server.present else self.reply(404)

    def drop(self):
        """Ends the connection as a process that dies does."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)

    def reply(self, status, message=None, headers={}, body=None, content_type="application/json"):
        body = body if body is not None else b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        for name, value in {**({"Content-Type": content_type} if body else {}), **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self, headers):
        self.writing = threading.Lock()
        self.send_response(200)
        for name, value in {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Transfer-Encoding": "chunked", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, data):
        with self.writing:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    def event(self, message):
        self.chunk(b"event: message\ndata: " + json.dumps(message, ensure_ascii=False).encode() + b"\n\n")

    def end_stream(self):
        self.chunk(b"")


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request, client_address):
        pass


class Servers:
    """The servers by name, on one port, until `stop`."""

    def __init__(self, servers, port=0):
        self.servers = {server.name: server for server in servers}
        self.listener = Listener(("127.0.0.1", port), Handler)
        self.listener.servers = self.servers
        self.port = self.listener.server_address[1]
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.port}/{name}/mcp"

    def stop(self):
        self.listener.shutdown()
        self.listener.server_close()
