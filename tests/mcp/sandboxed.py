"""Real MCP servers in the sandbox and with `sandbox: off`: the list of tools and the outcomes of calls are equal. Then clients of HTTP in
a sandbox: they reach the service that the entry names, and no other.

sandboxed.py SEKISHO MODULES [NAME...]: the program, the folder the servers were installed in (scripts/sandboxed-servers), and which of the
servers; by default those of sandboxed.json, and of matrix.json those that are programs.
"""
import contextlib, http.server, json, os, pathlib, signal, sys, tempfile, threading, time, traceback

import matrix
from gateway import KEY, Gateway

HERE = pathlib.Path(__file__).parent
# Programs that ask a URL, and print the body. Each is a command of a shell.
CLIENTS = {
    "curl": 'curl -sS -m 20 "$URL"',
    "fetch": "node -e 'fetch(process.env.URL).then(a => a.text()).then(console.log)'",
    "undici": "node -e 'require(`undici`).request(process.env.URL).then(a => a.body.text()).then(console.log)'",
    "axios": "node -e 'require(`axios`).get(process.env.URL).then(a => console.log(a.data))'",
    "requests": "python3 -c 'import os, requests; print(requests.get(os.environ[\"URL\"]).text)'",
    "httpx": "python3 -c 'import os, httpx; print(httpx.get(os.environ[\"URL\"]).text)'",
    "aiohttp": """python3 -c 'import aiohttp, asyncio, os
async def main():
    async with aiohttp.ClientSession() as session, session.get(os.environ["URL"]) as answer: print(await answer.text())
asyncio.run(main())'""",
}


@contextlib.contextmanager
def gateway_with(entry, name):
    """A session with the gateway and the one server, whose tools are listed."""
    with tempfile.TemporaryDirectory() as state:
        gateway = Gateway(matrix.SEKISHO, pathlib.Path(state), {name: entry}, path=matrix.PATH)
        try:
            is_listed = lambda: any(tool.startswith(f"{name}__") for tool in gateway.tools())
            gateway.until(is_listed, matrix.TIMEOUT, "its tools are listed")
            yield gateway, matrix.Http(gateway.port, {"Authorization": f"Bearer {KEY}"})
        finally:
            gateway.process.send_signal(signal.SIGTERM)
            gateway.process.wait(20)


def is_in_sandbox(process):
    """Whether the process has files of its own."""
    return os.readlink(f"/proc/{process}/ns/mnt") != os.readlink("/proc/self/ns/mnt")


def answers(server, folder, sandbox):
    """The tools and outcomes of the server, each by its name."""
    name = server["name"]
    matrix.prepare(folder)
    env = {**server["env"], matrix.MARK: name}
    entry = {"command": server["command"], "args": server["args"], "cwd": str(folder), "env": env, "sandbox": sandbox}
    with gateway_with(entry, name) as (_, client):
        own = {tool: listed for tool, listed in client.tools().items() if tool.startswith(f"{name}__")}
        outcomes = matrix.called(client, f"{name}__", server)
        programs = [is_in_sandbox(process) for process in matrix.processes(name)]
        assert programs and all(programs) == any(programs) == (sandbox != "off"), f"in a sandbox: {programs}"
    # Without a sandbox, browsers outlive their server.
    assert sandbox == "off" or not matrix.processes(name), "a process is left"
    return {tool: matrix.described(listed) for tool, listed in own.items()} | outcomes


def compare(server):
    """The differences between the server in the sandbox and without it."""
    with tempfile.TemporaryDirectory() as base:
        folder = pathlib.Path(base) / "files"
        server = matrix.filled({"args": [], "env": {}, **server}, folder, 0)
        without, within = answers(server, folder, "off"), answers(server, folder, server.get("sandbox", "on"))
    found = matrix.differs("names", sorted(without), sorted(within))
    for name in sorted(without.keys() & within.keys()):
        found += matrix.differs(name, without[name], within[name])
    for kind in ("call", "error"):
        if kind in server and without[kind][0] != (kind == "error"):
            found.append(f"without a sandbox, {kind}: {without[kind]}")
    return found


def service(answer):
    """A server of HTTP on this machine; its URL."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://localhost:{server.server_port}/"


def compare_clients():
    """What clients reach in a sandbox that should not, and the reverse."""
    named, other = service(b"the named service"), service(b"another service")
    env = {"SERVICE": named, "NODE_PATH": str(matrix.MODULES / "node_modules")}
    # A part of the modules is in no folder of PATH.
    sandbox = {"folders": [{"path": str(matrix.MODULES)}], "network": ["service.example"]}
    entry = {"command": "mcp-server-commands", "env": env, "sandbox": sandbox}
    found = []
    with gateway_with(entry, "clients") as (_, client):
        for name, command in CLIENTS.items():
            for url in [named, other, other.replace("localhost", "0.0.0.0"), "http://169.254.169.254/", "http://example.com/"]:
                arguments = {"command": f"export URL={url}; {command}"}
                _, text = client.outcome("clients__run_command", arguments)
                if ("the named service" in text) != (url == named) or "another service" in text or "<title>" in text:
                    found.append(f"{name} at {url}: {text[-400:]}")
    return found


def report(name, compared):
    """Prints the differences; whether there are some."""
    began = time.monotonic()
    try:
        found = compared()
    except Exception as error:
        found = ["".join(traceback.format_exception_only(error)).strip()]
    print(f"{name}: {'failed' if found else 'passed'} in {time.monotonic() - began:.1f} s", flush=True)
    for difference in found[:5]:
        print(f"  {difference}", flush=True)
    return bool(found)


def main():
    servers = [server for file in ("sandboxed.json", "matrix.json") for server in json.loads((HERE / file).read_text())]
    servers = [server for server in servers if not server.get("http")]
    chosen = [server for server in servers if not matrix.CHOSEN or server["name"] in matrix.CHOSEN]
    failed = sum(report(server["name"], lambda: compare(server)) for server in chosen)
    if not matrix.CHOSEN or "clients" in matrix.CHOSEN:
        failed += report("clients", compare_clients)
    print(f"{len(chosen)} servers, {failed} failed")
    sys.exit(failed > 0)


main()
