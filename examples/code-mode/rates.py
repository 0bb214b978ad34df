"""An MCP server over stdio with one tool: what a unit of a currency is worth in euros on a day."""
import json
import sys

EUROS = {"JPY": 0.0062, "USD": 0.9249, "CHF": 1.0412}
TOOL = {
    "name": "rate",
    "description": "Gives what a unit of a currency is worth in euros on a day.",
    "inputSchema": {
        "type": "object",
        "properties": {"currency": {"type": "string", "enum": list(EUROS)}, "day": {"type": "string", "format": "date"}},
        "required": ["currency", "day"],
    },
    "outputSchema": {"type": "object", "properties": {"euros": {"type": "number"}}, "required": ["euros"]},
}


def answer(method, params):
    if method == "initialize":
        about = {"name": "rates", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        # The same on each day.
        found = {"euros": EUROS[params["arguments"]["currency"]]}
        return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params", {}))
    outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
