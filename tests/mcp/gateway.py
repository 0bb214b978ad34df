"""A running sekisho for the tests in Python."""
import contextlib, http.client, json, os, pathlib, re, signal, subprocess, time

KEY = "key-of-the-tests"


class Gateway:
    """A running sekisho with the servers of its `mcpServers` file, which needs no YAML."""

    def __init__(self, sekisho, folder, servers, path="", options=(), yaml="", keys="", auth="", port=0):
        # The gateway's own: in another, `sandbox: off` would not count.
        state = folder / "state"
        state.mkdir(mode=0o700, exist_ok=True)
        (state / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        # Only for a free port, a key with the role that destructive tools ask for, and servers on this machine.
        config = folder / "sekisho.yaml"
        # A port that clients know before is part of the public address.
        public = f', mcp: {{public_url: "http://127.0.0.1:{port}"}}' if port else ""
        config.write_text(
            f'server: {{listen: "127.0.0.1:{port}"{public}}}\n'
            f"auth: {{api_keys: [{{id: tester, key: {KEY}, roles: [operator, admin]}}{keys}]{auth}}}\n"
            'outbound: {allow_networks: ["127.0.0.0/8", "::1/128"], mcp_allowed_domains: ["127.0.0.1", localhost], '
            'openapi_allowed_domains: ["127.0.0.1"]}\n'
            f"{yaml}\n"
        )
        env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "SEKISHO_STATE_DIRECTORY": str(state)}
        self.log = open(folder / "log", "w+")
        command = [sekisho, "--config", config, "serve", *options]
        self.process = subprocess.Popen(command, env=env, stderr=self.log, stdout=self.log)
        # Other lines may name other addresses.
        self.port = self.until(lambda: self.find(r"(?m)^(?=.*is listening).*127\.0\.0\.1:([1-9]\d*)"), 60, "it listens")

    def find(self, pattern):
        text = pathlib.Path(self.log.name).read_text()
        found = re.search(pattern, text)
        return int(found[1]) if found else None

    def until(self, holds, seconds, what):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := holds():
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"not so: {what}\n{pathlib.Path(self.log.name).read_text()[-4000:]}")

    def request(self, method, path, body=None, headers={}, timeout=90):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
        connection.request(method, path, body and json.dumps(body), headers)
        return connection, connection.getresponse()

    def json(self, method, path, body=None):
        connection, response = self.request(method, path, body)
        with contextlib.closing(connection):
            return json.loads(response.read())

    def ready(self):
        return self.json("GET", "/readyz").get("degraded", {})

    def tools(self):
        return self.json("GET", "/tools/list")

    def call(self, tool, arguments):
        return self.json("POST", f"/tools/{tool}/execute", {"arguments": arguments})

    def ok(self, tool, arguments):
        reply = self.call(tool, arguments)
        assert reply["success"], (tool, reply["error"], reply.get("error_info"))
        return reply

    def metric(self, line):
        connection, response = self.request("GET", "/metrics")
        with contextlib.closing(connection):
            text = response.read().decode()
        return next((float(found[len(line):]) for found in text.splitlines() if found.startswith(line)), 0.0)

    def mcp(self, method, params, token=None, capabilities={}):
        """The messages of a request as a client of 2026-07-28 sends it."""
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": capabilities,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}}
        if token is not None:
            meta["progressToken"] = token
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        if name := params.get("name") or params.get("uri"):
            headers["Mcp-Name"] = name
        connection, response = self.request("POST", "/mcp", body, headers)
        with contextlib.closing(connection):
            if "json" in response.getheader("content-type", ""):
                return [json.loads(response.read())]
            return [json.loads(line[5:]) for line in response if line.startswith(b"data:") and line[5:].strip()]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, "it ends in peace"
