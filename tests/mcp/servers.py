"""Real MCP servers behind sekisho: list, call, progress, cancel, images, over every transport.

servers.py SEKISHO MODULES: the program, and the folder the servers were installed in (scripts/mcp-servers).
"""
import base64, contextlib, http.client, http.server, json, os, pathlib, re, shutil, socket, subprocess, sys, tempfile, threading, time

from gateway import Gateway

SEKISHO, MODULES = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
NODE, PYTHON = MODULES / "node_modules/.bin", MODULES / "python/bin"
CHROMIUM = shutil.which("chromium") or "chromium"
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic", "--no-first-run"]


def everything(gateway, name, wire=None):
    tools = [tool for tool in gateway.tools() if tool.startswith(f"{name}__")]
    assert len(tools) >= 12, tools
    assert gateway.ok(f"{name}__echo", {"message": "関所"})["text"] == "Echo: 関所"
    assert "5" in gateway.ok(f"{name}__get-sum", {"a": 2, "b": 3})["text"]
    weather = gateway.ok(f"{name}__get-structured-content", {"location": "New York"})
    assert isinstance(weather["output"]["temperature"], (int, float)), weather
    image = next(block for block in gateway.ok(f"{name}__get-tiny-image", {})["content"] if block["type"] == "image")
    assert image["mimeType"] == "image/png" and base64.b64decode(image["data"]).startswith(b"\x89PNG"), image
    wrong = gateway.call(f"{name}__get-sum", {"a": "two", "b": 3})
    assert wrong["error_info"]["code"] == "invalid_arguments", wrong

    # Links and embedded resources can be read under the name that they have here.
    links = gateway.mcp("tools/call", {"name": f"{name}__get-resource-links", "arguments": {"count": 2}})[-1]["result"]["content"]
    uri = next(block["uri"] for block in links if block["type"] == "resource_link")
    assert uri.startswith(f"{name}+"), uri
    contents = gateway.mcp("resources/read", {"uri": uri})[-1]["result"]["contents"]
    assert contents[0]["uri"] == uri and (contents[0].get("text") or contents[0].get("blob")), contents
    prompts = {prompt["name"] for prompt in gateway.mcp("prompts/list", {})[-1]["result"]["prompts"]}
    assert any(prompt.startswith(f"{name}__") for prompt in prompts), prompts

    # Progress reaches the client that asked for it, under its own token.
    long = {"name": f"{name}__trigger-long-running-operation", "arguments": {"duration": 2, "steps": 4}}
    messages = gateway.mcp("tools/call", long, token="mine")
    progress = [message["params"] for message in messages if message.get("method") == "notifications/progress"]
    assert [said["progress"] for said in progress][:3] == [1, 2, 3], messages
    assert all(said["progressToken"] == "mine" and said["total"] == 4 for said in progress), progress
    assert "completed" in messages[-1]["result"]["content"][0]["text"].lower(), messages[-1]

    # A caller who hangs up ends the call, the server is told, and goes on.
    line = f'shannon_tool_cancellations_total{{tool_name="{name}__trigger-long-running-operation"}}'
    with contextlib.suppress(TimeoutError):
        body = {"arguments": {"duration": 30, "steps": 3}}
        gateway.request("POST", f"/tools/{name}__trigger-long-running-operation/execute", body, timeout=1)
        raise AssertionError("it answered at once")
    gateway.until(lambda: gateway.metric(line) == 1, 10, "the call is cancelled")
    if wire:
        gateway.until(lambda: "notifications/cancelled" in wire.read_text(), 10, "the server is told")
    assert gateway.ok(f"{name}__echo", {"message": "on"})["text"] == "Echo: on"


def time_server(gateway):
    reply = gateway.ok("time__get_current_time", {"timezone": "Asia/Tokyo"})
    assert "Asia/Tokyo" in reply["text"], reply
    failed = gateway.call("time__get_current_time", {"timezone": "Mars/Olympus"})
    assert failed["error_info"]["code"] == "tool_error", failed


def git(gateway, folder):
    assert "a beginning" in gateway.ok("git__git_log", {"repo_path": str(folder)})["text"]
    (folder / "new.txt").write_text("new")
    assert "new.txt" in gateway.ok("git__git_status", {"repo_path": str(folder)})["text"]


def filesystem(gateway, folder):
    gateway.ok("files__write_file", {"path": str(folder / "a.txt"), "content": "関所"})
    assert gateway.ok("files__read_text_file", {"path": str(folder / "a.txt")})["text"] == "関所"
    outside = gateway.call("files__read_text_file", {"path": "/etc/passwd"})
    assert outside["error_info"]["code"] == "tool_error", outside


def memory(gateway):
    entity = {"name": "sekisho", "entityType": "gateway", "observations": ["looks once"]}
    gateway.ok("memory__create_entities", {"entities": [entity]})
    assert "looks once" in gateway.ok("memory__search_nodes", {"query": "sekisho"})["text"]


def browser(gateway, page):
    reply = gateway.ok("browser__browser_navigate", {"url": page})
    assert "Toll gate" in reply["text"] + json.dumps(gateway.ok("browser__browser_snapshot", {})["output"]), reply
    shot = gateway.ok("browser__browser_take_screenshot", {"type": "png", "scale": "css"})
    image = next(block for block in shot["content"] if block["type"] == "image")
    assert base64.b64decode(image["data"])[:4] in (b"\x89PNG", b"\xff\xd8\xff\xe0"), image["mimeType"]
    snapshot = gateway.ok("browser__browser_snapshot", {})["text"]
    button = re.search(r'button "Pay" .*?\[ref=(\w+)\]', snapshot)
    assert button, snapshot
    gateway.ok("browser__browser_click", {"element": "Pay", "target": button[1]})
    assert "Paid" in gateway.ok("browser__browser_snapshot", {})["text"]


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>Toll gate</title><h1>Toll gate</h1><button onclick=\"this.textContent='Paid'\">Pay</button>")

    def log_message(self, *_):
        pass


def listening(command, port, path):
    """An HTTP server, started and reachable."""
    process = subprocess.Popen(command, env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
            connection.connect()
            return process
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"{command[0]} does not listen")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def descendants(process):
    found, todo = [], [process]
    while todo:
        parent = todo.pop()
        for children in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += children.read_text().split()
                todo += children.read_text().split()
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files, repository, wire = folder / "files", folder / "repository", folder / "wire"
        files.mkdir()
        repository.mkdir()
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", "init", "-q", repository], check=True)
        subprocess.run(["git", *identity, "-C", repository, "commit", "-q", "--allow-empty", "-m", "a beginning"], check=True)
        pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        chrome = folder / "chrome.json"
        chrome.write_text(json.dumps({"browser": {"launchOptions": {"args": QUIET}}}))
        http_port, sse_port = free_port(), free_port()
        over_http = listening([NODE / "mcp-server-everything", "streamableHttp"], http_port, "/mcp")
        over_sse = listening([NODE / "mcp-server-everything", "sse"], sse_port, "/sse")
        servers = {
            # What the gateway sends is written down on the way.
            "everything": {"command": "sh", "args": ["-c", f"tee {wire} | mcp-server-everything stdio"]},
            "streamable": {"url": f"http://127.0.0.1:{http_port}/mcp"},
            "sse": {"url": f"http://127.0.0.1:{sse_port}/sse"},
            "files": {"command": "mcp-server-filesystem", "args": [str(files)]},
            "memory": {"command": "mcp-server-memory", "env": {"MEMORY_FILE_PATH": str(folder / "memory.json")}},
            "time": {"command": "mcp-server-time"},
            "git": {"command": "mcp-server-git", "args": ["--repository", str(repository)]},
            "browser": {
                "command": "playwright-mcp",
                "args": ["--headless", "--isolated", "--no-sandbox", "--browser", "chromium",
                         "--executable-path", CHROMIUM, "--config", str(chrome), "--output-dir", str(folder / "out")],
            },
        }
        try:
            gateway = Gateway(SEKISHO, folder, servers, path=f"{NODE}:{PYTHON}")
            for name in servers:
                gateway.until(lambda: any(tool.startswith(f"{name}__") for tool in gateway.tools()), 120, f"{name} is listed")
            for name, test in {
                "server-everything over stdio": lambda: everything(gateway, "everything", wire),
                "server-everything over streamable HTTP": lambda: everything(gateway, "streamable"),
                "server-everything over SSE": lambda: everything(gateway, "sse"),
                "server-filesystem": lambda: filesystem(gateway, files),
                "server-memory": lambda: memory(gateway),
                "mcp-server-time": lambda: time_server(gateway),
                "mcp-server-git": lambda: git(gateway, repository),
                "@playwright/mcp": lambda: browser(gateway, f"http://127.0.0.1:{pages.server_port}/"),
            }.items():
                began = time.monotonic()
                test()
                print(f"{name}: passed in {time.monotonic() - began:.1f} s", flush=True)
            before = descendants(gateway.process.pid)
            assert before, "the servers are children of the gateway"
            gateway.stop()
            time.sleep(0.5)
            left = [child for child in before if pathlib.Path(f"/proc/{child}/exe").exists()]
            assert not left, f"{len(left)} of {len(before)} programs outlive the gateway"
            print(f"{len(before)} programs ended with the gateway")
        finally:
            if "gateway" in locals() and gateway.process.poll() is None:
                gateway.process.kill()
            over_http.kill()
            over_sse.kill()


main()
