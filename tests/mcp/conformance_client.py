"""sekisho as the client of a test server of the official conformance suite.

conformance_client.py SEKISHO URL: connects sekisho to the server, and uses through it whatever the server offers.
The suite names the scenario in MCP_CONFORMANCE_SCENARIO, and what is to be done in MCP_CONFORMANCE_CONTEXT.
"""
import contextlib, json, os, pathlib, re, sys, tempfile, urllib.request

from gateway import Gateway

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ASKABLE = {"elicitation": {"form": {}}}


def arguments(tool):
    """Any that fit: of numbers and texts only what is demanded."""
    schema = tool["inputSchema"]
    some = {"number": 5, "integer": 5, "string": "text", "boolean": True, "object": {}, "array": []}
    kinds = {name: schema["properties"][name].get("type") for name in schema.get("required", [])}
    return {name: some.get(kind, "text") for name, kind in kinds.items()}


def answer(question):
    """What a user says who accepts all that is proposed."""
    asked = question["params"].get("requestedSchema", {}).get("properties", {})
    content = {name: rules.get("default", True) for name, rules in asked.items()}
    return {"action": "accept", "content": content}


def fetched(url):
    with urllib.request.urlopen(url) as response:
        return json.load(response)


def credentials(url):
    """How the server is configured where the scenario gives a client's credentials."""
    origin, path = re.match(r"(https?://[^/]+)(.*)", url).groups()
    issuer = fetched(f"{origin}/.well-known/oauth-protected-resource{path}")["authorization_servers"][0]
    token_url = fetched(f"{issuer.rstrip('/')}/.well-known/oauth-authorization-server")["token_endpoint"]
    client = {"client_id": CONTEXT["client_id"], "client_secret": CONTEXT["client_secret"]}
    return json.dumps({"mcp": {"servers": {"far": {"url": url, "oauth": {"token_url": token_url, **client}}}}})[1:-1]


def theirs(gateway):
    """The names of the server's tools."""
    tools = gateway.json("GET", "/tools/list?detail=full")
    return {tool["name"] for tool in tools if tool["source"].startswith("mcp:")}


def call(gateway, name, given):
    # Left out or null is the same to the protocol, and not to a schema that knows no null.
    given = {name: value for name, value in given.items() if value is not None}
    if not SCENARIO.startswith(("sep-2322", "elicitation")):
        print(name, json.dumps(gateway.call(name, given))[:200])
        return
    params = {"name": name, "arguments": given}
    result = gateway.mcp("tools/call", params, capabilities=ASKABLE)[-1]["result"]
    while result.get("resultType") == "input_required":
        answers = {key: answer(question) for key, question in result["inputRequests"].items()}
        more = {"inputResponses": answers, "requestState": result["requestState"]}
        result = gateway.mcp("tools/call", {**params, **more}, capabilities=ASKABLE)[-1]["result"]
    print(name, json.dumps(result)[:200])


def main():
    with tempfile.TemporaryDirectory() as folder:
        servers, yaml = {"far": {"url": sys.argv[2]}}, ""
        if "client_secret" in CONTEXT:
            servers, yaml = {}, credentials(sys.argv[2])
        options = ["--mcp-prefix", "never"]
        gateway = Gateway(sys.argv[1], pathlib.Path(folder), servers, options=options, yaml=yaml)
        try:
            log = pathlib.Path(gateway.log.name)
            gateway.until(lambda: "connected" in log.read_text() or "mcp:far" in gateway.ready(), 20, "it was tried")
            with contextlib.suppress(AssertionError):
                # Some of the servers have none.
                gateway.until(lambda: theirs(gateway), 3, "its tools are listed")
            tools = {tool["name"]: tool for tool in gateway.mcp("tools/list", {})[-1]["result"]["tools"]}
            for wanted in CONTEXT.get("toolCalls", []):
                call(gateway, wanted["name"], wanted["arguments"])
            for name in theirs(gateway) - {wanted["name"] for wanted in CONTEXT.get("toolCalls", [])}:
                given = arguments(tools[name])
                if SCENARIO == "json-schema-2020-12-preservation" and "schema" in given:
                    given["schema"] = next(tool["inputSchema"] for tool in tools.values() if "$defs" in tool["inputSchema"])
                call(gateway, name, given)
            for resource in gateway.mcp("resources/list", {})[-1]["result"]["resources"]:
                gateway.mcp("resources/read", {"uri": resource["uri"]})
            for prompt in gateway.mcp("prompts/list", {})[-1]["result"]["prompts"]:
                needed = {argument["name"]: "text" for argument in prompt.get("arguments", [])}
                gateway.mcp("prompts/get", {"name": prompt["name"], "arguments": needed})
            gateway.stop()
            print(log.read_text()[-3000:], file=sys.stderr)
        finally:
            if gateway.process.poll() is None:
                gateway.process.kill()


main()
