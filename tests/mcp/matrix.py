"""Real MCP servers directly and behind sekisho: the list of tools, a call, a call that fails, and a call after a restart of the server are
equal, whatever variables its `env` has.

matrix.py SEKISHO MODULES [NAME...]: the program, the folder the servers were installed in (scripts/mcp-matrix), and which of the servers
of matrix.json; by default all.
"""
import contextlib, http.client, json, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time, traceback

from gateway import KEY, Gateway

SEKISHO, MODULES, CHOSEN = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
PATH = f"{MODULES / 'node_modules/.bin'}:{MODULES / 'python/bin'}:{os.environ['PATH']}"
REVISION = "2025-11-25"
# The gateway declares these to a server that it lists: some servers list tools by them.
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {},
                "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
MARK = "MATRIX_SERVER"
TIMEOUT = 60


def refusal(request):
    """The answer to a request of a server: without one, some wait for a minute."""
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "not here"}}


class Refused(Exception):
    """A JSON-RPC error."""


class Client:
    """Requests in one session; the answer of `exchange` is a JSON-RPC response."""

    def __init__(self):
        self.ids = 0

    def ask(self, method, params):
        self.ids += 1
        answer = self.exchange({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params})
        if "error" in answer:
            raise Refused(answer["error"].get("message", ""))
        return answer["result"]

    def introduce(self):
        introduction = {"protocolVersion": REVISION, "capabilities": CAPABILITIES, "clientInfo": {"name": "matrix", "version": "1"}}
        self.ask("initialize", introduction)
        self.exchange({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tools(self):
        tools, cursor = [], None
        while True:
            page = self.ask("tools/list", {"cursor": cursor} if cursor else {})
            tools += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                return {tool["name"]: tool for tool in tools}

    def outcome(self, tool, arguments):
        """Whether the call failed, and the text that a model reads."""
        try:
            result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        except Refused as refused:
            return True, str(refused)
        texts = [block.get("text") or block.get("data") or block.get("uri") or "" for block in result.get("content", [])]
        return bool(result.get("isError")), "\n".join(texts)


class Direct(Client):
    """A server started by this test."""

    def __init__(self, server, folder):
        super().__init__()
        # The variables that the gateway passes on, and those of the entry.
        env = {name: os.environ[name] for name in ("HOME", "USER", "LANG") if name in os.environ}
        env |= {"PATH": PATH, **server["env"]}
        command = [shutil.which(server["command"], path=PATH) or server["command"], *server["args"]]
        self.process = subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.watch = threading.Timer(TIMEOUT, self.stop)
        self.watch.start()
        self.introduce()

    def exchange(self, message):
        self.send(message)
        while message.get("id"):
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError("the server ended, or did not answer in time")
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
                if answer.get("method") and "id" in answer:
                    self.send(refusal(answer))
                elif answer.get("id") == message["id"]:
                    return answer

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def stop(self):
        self.watch.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Http(Client):
    """A session over streamable HTTP: of the gateway, or of a server that listens."""

    def __init__(self, port, headers={}):
        super().__init__()
        self.port, self.headers = port, headers
        self.introduce()

    def exchange(self, message):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **self.headers}
        connection.request("POST", "/mcp", json.dumps(message), headers)
        response = connection.getresponse()
        with contextlib.closing(connection):
            if session := response.getheader("mcp-session-id"):
                self.headers = {**self.headers, "Mcp-Session-Id": session, "MCP-Protocol-Version": REVISION}
            if "id" not in message or "method" not in message:
                return None
            if "json" in response.getheader("content-type", ""):
                return json.loads(response.read())
            for line in response:
                if line.startswith(b"data:") and line[5:].strip():
                    answer = json.loads(line[5:])
                    if "method" not in answer and answer.get("id") == message["id"]:
                        return answer
                    if "method" in answer and "id" in answer:
                        self.exchange(refusal(answer))
        raise AssertionError(f"no answer to {message['method']}: {response.status}")


def prepare(folder):
    """What servers find there, the same each time."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "note.md").write_text("# A note\n\nToll gates look once.\n")
    (folder / "data.json").write_text('{"gate": "sekisho"}\n')
    (folder / ".obsidian").mkdir()
    (folder / "repository").mkdir()
    when = {**os.environ, "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", folder / "repository"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a beginning"], check=True, env=when)


def filled(value, folder, port):
    if isinstance(value, str):
        return value.replace("{folder}", str(folder)).replace("{modules}", str(MODULES)).replace("{port}", str(port))
    if isinstance(value, list):
        return [filled(item, folder, port) for item in value]
    if isinstance(value, dict):
        return {name: filled(item, folder, port) for name, item in value.items()}
    return value


def described(tool, bytes_of_description=None):
    """The parts of a tool that a model decides by, with the beginning of its description."""
    schema = tool.get("inputSchema", {})
    properties = sorted((schema.get("properties") or {}).items())
    description = tool.get("description", "").encode()[:bytes_of_description].decode()
    return [description, json.dumps(properties, sort_keys=True), sorted(schema.get("required") or [])]


def compare_tool(name, direct, gateway):
    """The gateway says where it cuts a description."""
    cut = re.search(r"\n\[The description is cut here: (\d+) of \d+ bytes\.\]$", gateway.get("description", ""))
    length = int(cut[1]) if cut else None
    return differs(f"tool {name}", described(direct, length), described(gateway, length))


def comparable(outcome, server):
    failed, text = outcome
    for pattern in server.get("varying", []):
        text = re.sub(pattern, "…", text)
    return failed, text


def words_of(text):
    """Plain words of a text, for variables that are no secrets."""
    return list(dict.fromkeys(re.findall(r"\b[A-Za-z]{4,19}\b", text)))[:8]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes(mark):
    """The ids of programs with this mark in their environment."""
    wanted, found = f"{MARK}={mark}\0".encode(), []
    for environ in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found


@contextlib.contextmanager
def listening(server, folder, port):
    """Where the server is reached over HTTP: a function that starts it again. For a program, nothing runs."""
    running = []

    def start():
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        command = [shutil.which(server["command"], path=PATH), *server["args"]]
        env = {**os.environ, "PATH": PATH, **server["env"]}
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        running[:] = [process]
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            # An answer: a connection to a free port may be one to itself.
            with contextlib.suppress(OSError, http.client.HTTPException), \
                    contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
                connection.request("GET", "/mcp")
                connection.getresponse()
                return
            time.sleep(0.1)
        raise AssertionError("it does not listen")

    try:
        if server.get("http"):
            start()
        yield start
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def called(client, prefix, server):
    """The outcomes of the call and of the call that fails."""
    outcomes = {}
    for kind in ("call", "error"):
        if kind in server:
            tool, arguments = server[kind]
            outcomes[kind] = comparable(client.outcome(prefix + tool, arguments), server)
    return outcomes


def directly(server, folder, port):
    with contextlib.ExitStack() as stack:
        client = Http(port) if server.get("http") else Direct(server, folder)
        if isinstance(client, Direct):
            stack.callback(client.stop)
        tools = client.tools()
        return tools, called(client, "", server)


def behind(server, folder, port, expected, restart):
    """The same behind the gateway, with the words of the errors among the variables, and after a restart."""
    name = server["name"]
    words = words_of(" ".join(text for _, text in expected.values()))
    plain = {f"WORD_{n}": word for n, word in enumerate(words)}
    entry = {"url": f"http://localhost:{port}/mcp"} if server.get("http") else {
        "command": server["command"], "args": server["args"], "cwd": str(folder), "env": {**server["env"], **plain, MARK: name},
    }
    with tempfile.TemporaryDirectory() as state:
        gateway = Gateway(SEKISHO, pathlib.Path(state), {name: entry}, path=PATH)
        try:
            gateway.until(lambda: any(tool.startswith(f"{name}__") for tool in gateway.tools()), TIMEOUT, "its tools are listed")
            client = Http(gateway.port, {"Authorization": f"Bearer {KEY}"})
            tools = {tool.removeprefix(f"{name}__"): listed for tool, listed in client.tools().items() if tool.startswith(f"{name}__")}
            outcomes = called(client, f"{name}__", server)
            if server.get("http"):
                restart()
            else:
                running = processes(name)
                assert running, "the programs of the server are found"
                for process in running:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            again = called_until(client, f"{name}__", server, expected)
        finally:
            gateway.process.send_signal(signal.SIGTERM)
            gateway.process.wait(20)
    return tools, outcomes, again


def called_until(client, prefix, server, expected):
    """The first calls may find the end of the program, or come before it has started again."""
    end = time.monotonic() + 20
    while True:
        outcomes = called(client, prefix, server)
        are_same = not any(same_outcome(kind, expected[kind], outcomes[kind]) for kind in expected)
        if server.get("changes") or are_same or time.monotonic() > end:
            return outcomes
        time.sleep(0.5)


def differs(what, direct, gateway):
    return [] if direct == gateway else [f"{what}:\n    directly: {str(direct)[:600]}\n    behind:   {str(gateway)[:600]}"]


def compare(server):
    """The differences between the server directly and behind the gateway."""
    with tempfile.TemporaryDirectory() as base:
        folder, port = pathlib.Path(base) / "files", free_port()
        server = filled({"args": [], "env": {}, **server}, folder, port)
        prepare(folder)
        with listening(server, folder, port):
            listed, expected = directly(server, folder, port)
        assert listed, "it lists tools"
        prepare(folder)
        with listening(server, folder, port) as restart:
            tools, outcomes, again = behind(server, folder, port, expected, restart)
    found = differs("names of tools", sorted(listed), sorted(tools))
    for tool in sorted(listed.keys() & tools.keys()):
        found += compare_tool(tool, listed[tool], tools[tool])
    for kind, (failed, _) in expected.items():
        assert failed == (kind == "error"), f"directly, {kind} {'failed' if failed else 'succeeded'}: {expected[kind][1][:400]}"
        found += same_outcome(kind, expected[kind], outcomes[kind])
        if not server.get("changes"):
            found += same_outcome(f"{kind} after a restart", expected[kind], again[kind])
    return found


def same_outcome(what, direct, gateway):
    """A JSON-RPC error of the server is an error of the call behind the gateway, with its message."""
    if direct[0] and gateway[0] and direct[1].strip() and direct[1] in gateway[1]:
        return []
    return differs(what, direct, gateway)


def main():
    servers = json.loads((pathlib.Path(__file__).parent / "matrix.json").read_text())
    servers = [server for server in servers if not CHOSEN or server["name"] in CHOSEN]
    failed = 0
    for server in servers:
        began = time.monotonic()
        try:
            found = compare(server)
        except Exception as error:
            found = ["".join(traceback.format_exception_only(error)).strip()]
        failed += bool(found)
        print(f"{server['name']}: {'failed' if found else 'passed'} in {time.monotonic() - began:.1f} s", flush=True)
        for difference in found[:5]:
            print(f"  {difference}", flush=True)
    print(f"{len(servers) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
