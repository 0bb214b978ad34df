"""What the sandbox of a program costs: a call with and without it in alternating runs, and the memory of its helper processes.

sandbox_cost.py SEKISHO [ROUNDS]: a release build. With `--serve` it is the server that is called.
"""
import contextlib, http.client, json, pathlib, re, statistics, sys, tempfile, time

from gateway import KEY, Gateway

CALLS = 200


def serve():
    tool = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        method, params = request["method"], request.get("params", {})
        if method == "initialize":
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": [tool]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
        else:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "not here"}}), flush=True)
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


def seconds(connection, tool):
    """Of a call, on average."""
    body, headers = json.dumps({"arguments": {"a": 1}}), {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    began = time.perf_counter()
    for _ in range(CALLS):
        connection.request("POST", f"/tools/{tool}/execute", body, headers)
        reply = json.loads(connection.getresponse().read())
        assert reply["success"], reply
    return (time.perf_counter() - began) / CALLS


def sizes(process):
    """What only this process has, in kB: its pages, and its page tables. What it maps of the gateway's file is shared."""
    lines = [line.split() for name in ("smaps_rollup", "status") for line in (process / name).read_text().splitlines()]
    return {line[0]: int(line[1]) for line in lines if line[0] in ("Private_Clean:", "Private_Dirty:", "VmPTE:")}


def helpers(gateway):
    """The sizes of the helper process and of process 1 of each sandbox of the gateway."""
    own = {str(gateway)}
    # The helper is a child of the gateway, and process 1 its child: a parent has the lower number.
    for process in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda process: int(process.name)):
        # Others end meanwhile.
        with contextlib.suppress(OSError):
            parent = re.search(r"(?m)^PPid:\s*(\d+)$", (process / "status").read_text())[1]
            if parent in own and b"\0__sandboxed-program\0" in (process / "cmdline").read_bytes():
                own.add(process.name)
                yield sizes(process)


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    program = {"command": sys.executable, "args": [__file__, "--serve"]}
    servers = {"open": {**program, "sandbox": "off"}, "boxed": program}
    with tempfile.TemporaryDirectory() as folder:
        limits = "limits: {mcp_tool_rate_limit: 1000000}"
        gateway = Gateway(pathlib.Path(sys.argv[1]), pathlib.Path(folder), servers, yaml=limits)
        try:
            gateway.until(lambda: {"open__echo", "boxed__echo"} <= set(gateway.tools()), 60, "both are listed")
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
            for tool in ("open__echo", "boxed__echo"):
                seconds(connection, tool)
            times = {"open__echo": [], "boxed__echo": []}
            for number in range(rounds):
                for tool in sorted(times, reverse=number % 2 == 0):
                    times[tool].append(seconds(connection, tool))
            memory = list(helpers(gateway.process.pid))
        finally:
            gateway.stop()
    ratios = [boxed / without for boxed, without in zip(times["boxed__echo"], times["open__echo"])]
    without, boxed = (statistics.median(times[tool]) * 1e6 for tool in ("open__echo", "boxed__echo"))
    print(f"a call in the sandbox {boxed:.0f} µs, without it {without:.0f} µs: {statistics.median(ratios) - 1:+.1%}, the median of {rounds} pairs   ≤ +2 %")
    programs = len(memory) / 2
    print(f"memory of the helper process and process 1 of a program: {sum(sum(one.values()) for one in memory) / programs / 1000:.1f} MB   ≤ 2 MB")


serve() if sys.argv[1:] == ["--serve"] else main()
