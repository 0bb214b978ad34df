"""sekisho as the client of a test server of the official conformance suite.

conformance_client.py SEKISHO URL: connects sekisho to the server, and uses through it whatever the server offers.
The suite names the scenario in MCP_CONFORMANCE_SCENARIO, and what is to be done in MCP_CONFORMANCE_CONTEXT.
"""
import contextlib, json, os, pathlib, re, sys, tempfile, urllib.error, urllib.request

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


def configured(url):
    """How the server is configured, where the scenario gives credentials or names a document about the client."""
    settings = {"url": url}
    client = {key: CONTEXT[key] for key in ("client_id", "client_secret") if key in CONTEXT}
    if SCENARIO == "auth/client-credentials-basic":
        origin, path = re.match(r"(https?://[^/]+)(.*)", url).groups()
        issuer = fetched(f"{origin}/.well-known/oauth-protected-resource{path}")["authorization_servers"][0]
        token_url = fetched(f"{issuer.rstrip('/')}/.well-known/oauth-authorization-server")["token_endpoint"]
        settings["oauth"] = {"token_url": token_url, **client}
    elif SCENARIO == "auth/pre-registration":
        settings["sign_in"] = {"issuer": CONTEXT["issuer"], **client}
    elif SCENARIO == "auth/basic-cimd":
        settings["sign_in"] = {"client_metadata_url": "https://conformance-test.local/client-metadata.json"}
    return json.dumps({"mcp": {"servers": {"far": settings}}})[1:-1]


def asked_to_sign_in(gateway):
    return "POST /tools/mcp/far/sign_in" in gateway.ready().get("mcp:far", "")


def sign_in(gateway):
    """As an administrator and a user's browser do it, as often as the server asks."""
    times = 0
    while asked_to_sign_in(gateway) and times < 6:
        times += 1
        started = gateway.json("POST", "/tools/mcp/far/sign_in", {})
        if "authorization_url" not in started:
            print("the sign-in was not begun:", started["error"])
            return
        try:
            with urllib.request.urlopen(started["authorization_url"]) as response:
                print(response.read().decode().strip())
        except urllib.error.HTTPError as refusal:
            print("the sign-in came to nothing:", json.load(refusal)["error"])
            return
        with contextlib.suppress(AssertionError):
            gateway.until(lambda: theirs(gateway) and not asked_to_sign_in(gateway), 2, "its tools are listed")


def theirs(gateway):
    """The names of the server's tools that are offered."""
    tools = gateway.json("GET", "/tools/list?detail=full")
    return {tool["name"] for tool in tools if tool["source"].startswith("mcp:") and "unavailable" not in tool}


def call(gateway, name, given):
    # Left out or null is the same to the protocol, and not to a schema that knows no null.
    given = {name: value for name, value in given.items() if value is not None}
    if not SCENARIO.startswith(("sep-2322", "elicitation")):
        reply = gateway.call(name, given)
        if asked_to_sign_in(gateway):
            sign_in(gateway)
            reply = gateway.call(name, given)
        print(name, json.dumps(reply)[:200])
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
        options = ["--mcp-prefix", "never"]
        yaml = configured(sys.argv[2])
        gateway = Gateway(sys.argv[1], pathlib.Path(folder), {}, options=options, yaml=yaml)
        try:
            log = pathlib.Path(gateway.log.name)
            gateway.until(lambda: "connected" in log.read_text() or "mcp:far" in gateway.ready(), 20, "it was tried")
            sign_in(gateway)
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
