"""A gateway that is a command and speaks MCP on standard input and output: over HTTP for the checks, one process for each session."""
import contextlib, json, os, queue, shlex, signal, subprocess, threading, uuid

from server import Handler as Messages, Listener


class Session:
    """One process. What it sends before an answer goes to the stream of the newest request, or else to the standing stream."""

    def __init__(self, command):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        self.waiting, self.standing, self.lock = {}, queue.Queue(), threading.Lock()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                self.target(message).put(message)
        for waiting in [*self.waiting.values(), self.standing]:
            waiting.put(None)

    def target(self, message):
        with self.lock:
            # Nothing follows an answer on its stream.
            if "method" not in message:
                return self.waiting.pop(message.get("id"), self.standing)
            return next(reversed(self.waiting.values()), self.standing)

    def send(self, message):
        with self.lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def exchange(self, message):
        """The messages up to the answer."""
        with self.lock:
            own = self.waiting[message["id"]] = queue.Queue()
        try:
            self.send(message)
            while (got := own.get(timeout=90)) is not None:
                yield got
                if "method" not in got:
                    return
        finally:
            self.waiting.pop(message["id"], None)

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Handler(Messages):
    """HTTP of a command."""

    def do_POST(self):
        command, message = self.server.command, json.loads(self.body())
        if message.get("method") == "initialize":
            name = uuid.uuid4().hex
            session = command.sessions[name] = Session(command.line)
        else:
            name, session = None, command.sessions.get(self.headers.get("mcp-session-id"))
        if session is None:
            return self.reply(404)
        if "id" not in message or "method" not in message:
            session.send(message)
            return self.reply(202)
        try:
            self.begin_stream({"Mcp-Session-Id": name} if name else {})
            for got in session.exchange(message):
                self.event(got)
            self.end_stream()
        except (OSError, queue.Empty):
            self.drop()

    def do_GET(self):
        session = self.server.command.sessions.get(self.headers.get("mcp-session-id"))
        if session is None:
            return self.reply(404)
        try:
            self.begin_stream({})
            while (got := session.standing.get()) is not None:
                self.event(got)
            self.end_stream()
        except OSError:
            self.close_connection = True

    def do_DELETE(self):
        session = self.server.command.sessions.pop(self.headers.get("mcp-session-id"), None)
        if session:
            session.stop()
        self.reply(200 if session else 404)


class Command:
    """A command in the place of a gateway."""

    users, paths = {}, {}

    def __init__(self, line):
        self.line, self.sessions = line, {}
        self.listener = Listener(("127.0.0.1", 0), Handler)
        self.listener.command = self
        self.url = f"http://127.0.0.1:{self.listener.server_address[1]}/mcp"
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.listener.shutdown()
        self.listener.server_close()
        # Requests that are being answered may still end their sessions.
        for session in list(self.sessions.values()):
            session.stop()
