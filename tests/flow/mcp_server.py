"""An MCP server over HTTP in this process, for tests: a path for each set of tools, whose calls a function answers. It keeps no sessions."""
import http.server
import json
import re
import threading

REVISION = "2025-11-25"
TRACE_PARENT = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-01")


def trace_parent(number):
    """The header that has a call's number reach the server: the gateway continues the trace."""
    return f"00-{number:032x}-{1:016x}-01"


class McpServer(http.server.ThreadingHTTPServer):
    """`tools` are the tools by path; `answer(number, name, arguments)` gives the text of an answer, and whether it is an error."""

    # As many as the gateway opens at once.
    request_queue_size = 256

    def __init__(self, tools, answer, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.tools, self.answer = tools, answer
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def settings(self):
        """The gateway's configuration of all paths; the name of each is the prefix of its tools."""
        url = f"http://127.0.0.1:{self.server_port}"
        # As the server keeps nothing between calls, all callers share a session.
        return {"servers": {name: {"url": f"{url}/{name}", "share": "all"} for name in self.tools}}

    def result(self, name, method, params):
        """The result of a request, or nothing for an unknown method."""
        if method == "initialize":
            server = {"name": name, "version": "1"}
            return {"protocolVersion": REVISION, "capabilities": {"tools": {}}, "serverInfo": server}
        if method == "tools/list":
            return {"tools": self.tools[name]}
        if method == "tools/call":
            trace = TRACE_PARENT.fullmatch(params.get("_meta", {}).get("traceparent", ""))
            text, failed = self.answer(int(trace[1], 16) if trace else 0, params["name"], params.get("arguments") or {})
            return {"content": [{"type": "text", "text": text}], "isError": failed}
        return {} if method == "ping" else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One write: a second small one would wait for the first to be acknowledged.
    wbufsize = -1

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            return self.reply(202)
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        result = self.server.result(self.path.strip("/"), message["method"], message.get("params") or {})
        if result is None:
            answer["error"] = {"code": -32601, "message": f"no such method: {message['method']}"}
        else:
            answer["result"] = result
        return self.reply(200, json.dumps(answer).encode())

    def do_GET(self):
        self.reply(405)

    do_DELETE = do_GET

    def reply(self, status, body=b""):
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
