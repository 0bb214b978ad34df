"""An MCP client over streamable HTTP: it answers a server's questions, and records every message that it got."""
import contextlib, http.client, itertools, json, re, threading, time, urllib.parse

REVISION = "2025-11-25"
CAPABILITIES = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
SECONDS = 15


class Failed(Exception):
    """What was observed in place of what is expected."""


class Lost(Failed):
    """The connection ended, or the stream did, without an answer."""


class Refusal(Failed):
    """A JSON-RPC error, or a status of HTTP that is none of success."""

    def __init__(self, text, error=None, status=None):
        super().__init__(text)
        self.error, self.status = error, status


class Answer:
    """The result of a request, and the messages on its stream before it."""

    def __init__(self, result, messages):
        self.result, self.messages = result, messages

    def text(self):
        return "\n".join(block.get("text", "") for block in self.result.get("content", []))

    def notified(self, method):
        return [message.get("params", {}) for message in self.messages if message.get("method") == method]


def normal(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def events(response):
    """The messages of a stream of events."""
    data = []
    for line in response:
        line = line.decode(errors="replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            joined, data = "\n".join(data), []
            if joined.strip():
                yield json.loads(joined)


class Client:
    """One session. `answers` has what it replies to requests of servers, by method."""

    def __init__(self, url, headers={}, capabilities=CAPABILITIES, revision=REVISION, answers={}):
        self.parts = urllib.parse.urlsplit(url)
        self.headers, self.capabilities, self.revision, self.answers = dict(headers), capabilities, revision, answers
        self.numbers, self.asked, self.standing = itertools.count(1), [], []
        self.session, self.stream, self.names, self.server = None, None, None, None

    # Messages.

    def post(self, message, seconds=SECONDS):
        """The connection and the response; the caller closes the first."""
        kind = http.client.HTTPSConnection if self.parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.parts.hostname, self.parts.port, timeout=seconds)
        path = self.parts.path + (f"?{self.parts.query}" if self.parts.query else "")
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **self.headers}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        if self.server:
            headers["MCP-Protocol-Version"] = self.server["protocolVersion"]
        try:
            connection.request("POST", path, json.dumps(message).encode(), headers)
            response = connection.getresponse()
            if response.status in (307, 308):
                # As HTTP libraries follow it, on the same server only.
                response.read()
                connection.request("POST", urllib.parse.urlsplit(response.getheader("location")).path, json.dumps(message).encode(), headers)
                response = connection.getresponse()
            return connection, response
        except TimeoutError:
            connection.close()
            raise Failed(f"no answer to {message.get('method')} within {seconds} s") from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Lost(f"{message.get('method')}: the connection was lost: {type(error).__name__}") from None

    def send(self, method, **params):
        """A notification."""
        connection, response = self.post({"jsonrpc": "2.0", "method": method, "params": params})
        with contextlib.closing(connection):
            response.read()
            return response.status

    def reply(self, request):
        answer = self.answers.get(request["method"])
        answer = answer(request.get("params") or {}) if callable(answer) else answer
        outcome = {"result": {}} if request["method"] == "ping" else {"result": answer} if answer is not None else {
            "error": {"code": -32601, "message": f"the client does not answer {request['method']}"}}
        connection, response = self.post({"jsonrpc": "2.0", "id": request["id"], **outcome})
        with contextlib.closing(connection):
            response.read()

    def took(self, message, kept):
        kept.append(message)
        if "method" in message and "id" in message:
            self.asked.append(message)
            threading.Thread(target=self.reply, args=(message,), daemon=True).start()

    def ask(self, method, params=None, seconds=SECONDS, number=None):
        """The answer to a request; an error is a `Refusal`."""
        number = next(self.numbers) if number is None else number
        message = {"jsonrpc": "2.0", "id": number, "method": method} | ({} if params is None else {"params": params})
        end = time.monotonic() + seconds
        connection, response = self.post(message, seconds)
        with contextlib.closing(connection):
            return self.read(message, response, end, seconds)

    def read(self, message, response, end, seconds):
        kept, method = [], message["method"]
        try:
            if "event-stream" not in response.getheader("content-type", ""):
                return self.outcome(method, response, response.read(), kept)
            self.noted(method, response)
            for got in events(response):
                if "method" not in got and got.get("id") == message["id"]:
                    return self.result(method, got, kept, response.status)
                self.took(got, kept)
                if time.monotonic() > end:
                    break
        except TimeoutError:
            raise Failed(f"no answer to {method} within {seconds} s") from None
        except ValueError as error:
            raise Failed(f"{method}: the answer is no JSON-RPC message: {error}") from None
        except (OSError, http.client.HTTPException) as error:
            raise Lost(f"{method}: the connection was lost: {type(error).__name__}") from None
        raise Lost(f"{method}: the stream ended without an answer")

    def noted(self, method, response):
        if method == "initialize":
            self.session = response.getheader("mcp-session-id")

    def outcome(self, method, response, body, kept):
        self.noted(method, response)
        try:
            got = json.loads(body)
        except ValueError:
            raise Refusal(f"{method}: status {response.status}: {body[:200]!r}", status=response.status) from None
        if not isinstance(got, dict) or not ("result" in got or "error" in got):
            raise Refusal(f"{method}: status {response.status}: {body[:200]!r}", status=response.status)
        return self.result(method, got, kept, response.status)

    def result(self, method, got, kept, status):
        if "error" in got:
            error = got["error"] if isinstance(got["error"], dict) else {"message": str(got["error"])}
            raise Refusal(f"{method}: error {error.get('code')}: {error.get('message')}", error, status)
        return Answer(got["result"], kept)

    # A session.

    def initialize(self, seconds=SECONDS):
        params = {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": {"name": "scorecard", "version": "1"}}
        self.server = self.ask("initialize", params, seconds).result
        self.send("notifications/initialized")
        return self

    def listen(self):
        """Opens the standing stream; its messages are in `standing`. Some gateways send the head of the response with the first message only."""
        connection = http.client.HTTPConnection(self.parts.hostname, self.parts.port, timeout=60)
        headers = {"Accept": "text/event-stream", **self.headers, "MCP-Protocol-Version": self.server["protocolVersion"]}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        connection.request("GET", self.parts.path, headers=headers)
        self.stream, opened = connection, threading.Event()

        def read():
            with contextlib.suppress(Exception):
                response = connection.getresponse()
                opened.set()
                for message in events(response):
                    self.took(message, self.standing)

        threading.Thread(target=read, daemon=True).start()
        opened.wait(1)
        return self

    def end(self):
        """Ends the session, as clients do."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(self.parts.hostname, self.parts.port, timeout=5)
            headers = {**self.headers, "Mcp-Session-Id": self.session or "", "MCP-Protocol-Version": (self.server or {}).get("protocolVersion", REVISION)}
            connection.request("DELETE", self.parts.path, headers=headers)
            connection.getresponse().read()
            connection.close()

    # Lists and calls. Gateways may put a prefix before names.

    def everything(self, method, member, seconds=SECONDS):
        items, cursor = [], None
        for _ in range(100):
            page = self.ask(method, {"cursor": cursor} if cursor else {}, seconds).result
            items += page.get(member, [])
            cursor = page.get("nextCursor")
            if not cursor:
                return items
        raise Failed(f"{method} has more than 100 pages")

    def tools(self):
        tools = self.everything("tools/list", "tools")
        self.names = [tool["name"] for tool in tools]
        return tools

    def find(self, items, name, member="name"):
        """The item of that name, whatever the gateway puts before it: the shortest whose name ends so, or else has it in it."""
        found = [item for item in items if normal(item[member]) == normal(name) or normal(item[member]).endswith(f"-{normal(name)}")]
        found = found or [item for item in items if f"-{normal(name)}-" in normal(item[member])]
        if not found:
            raise Failed(f"{name} is not listed; listed are {', '.join(item[member] for item in items)[:300] or 'none'}")
        return min(found, key=lambda item: len(item[member]))

    def tool(self, name):
        return self.find(self.tools(), name)

    def called(self, name):
        if self.names is None:
            self.tools()
        return self.find([{"name": listed} for listed in self.names], name)["name"]

    def call(self, name, arguments={}, seconds=SECONDS, meta=None, number=None, **further):
        params = {"name": self.called(name), "arguments": arguments, **({"_meta": meta} if meta else {}), **further}
        return self.ask("tools/call", params, seconds, number)

    def until(self, holds, seconds, what):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := holds():
                return found
            time.sleep(0.05)
        raise Failed(what)
