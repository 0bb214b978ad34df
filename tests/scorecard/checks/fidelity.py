"""Whether what servers and clients say to each other arrives unchanged."""
import json

from checks import expect, same
from client import Client, Failed, Refusal
from server import PIXEL, SESSIONLESS, Plain


def matches(expected, observed, place=""):
    """Whether all that is expected is there; an address may have a prefix. The first difference."""
    if isinstance(expected, dict):
        expect(isinstance(observed, dict), f"{place or 'the result'}: expected an object, observed {str(observed)[:200]}")
        for name, value in expected.items():
            expect(name in observed or value in (False, None), f"{place}/{name} is missing")
            if name == "uri":
                ends = [str(value), str(value).split("://", 1)[-1]]
                expect(str(observed[name]).endswith(tuple(ends)), f"{place}/{name}: expected {value}, observed {observed[name]}")
            elif name in observed:
                matches(value, observed[name], f"{place}/{name}")
    elif isinstance(expected, list):
        expect(isinstance(observed, list) and len(observed) == len(expected), f"{place}: expected {len(expected)} items, observed {str(observed)[:200]}")
        for number, pair in enumerate(zip(expected, observed)):
            matches(*pair, f"{place}/{number}")
    else:
        same(place, expected, observed)


def parsed(text):
    """The answer that a server got, as it tells it."""
    try:
        return json.loads(text)
    except ValueError:
        raise Failed(f"the server got no answer: {text[:200]}") from None


def result(run):
    observed = run.client().call("answer", {"case": run.case["id"]}).result
    wanted = run.case["result"]
    if not wanted.get("isError"):
        expect(not observed.get("isError"), f"the call failed: {str(observed.get('content'))[:300]}")
    matches(wanted, observed)


def protocol_error(run):
    wanted = run.case["error"]["message"]
    try:
        answer = run.client().call("answer", {"case": run.case["id"]})
    except Refusal as refusal:
        return expect(wanted in str(refusal), f"the message is not there: {refusal}")
    expect(answer.result.get("isError"), "the error became a success")
    expect(wanted in answer.text(), f"the message is not there: {answer.text()[:300]}")


def numbers(run):
    sent = {"id": 9007199254740993, "small": 1e-7, "exact": 0.1, "long": 1234567890123456789}
    answer = run.client().call("echo", sent)
    reached = run.server().recorded("tools/call")[-1]["params"]["arguments"]
    same("at the server", sent, reached)
    same("at the client", sent, (answer.result.get("structuredContent") or {}).get("arguments", json.loads(answer.text() or "{}")))


def arguments(run):
    sent = {"null": None, "empty": {}, "list": [], "deep": {"a": [{"b": "関所 \"quoted\" \\ \n"}]}, "blank": ""}
    run.client().call("echo", sent)
    same("at the server", sent, run.server().recorded("tools/call")[-1]["params"].get("arguments"))


def request_meta(run):
    run.client().call("metadata", meta={"example.com/tenant": {"id": 7}})
    meta = run.server().recorded("tools/call")[-1]["params"].get("_meta") or {}
    same("_meta at the server", {"id": 7}, meta.get("example.com/tenant"))


def resolved(schema, root=None):
    """A schema with its references to `$defs` filled in: some gateways list it so, which says the same."""
    root = schema if root is None else root
    if isinstance(schema, list):
        return [resolved(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if str(schema.get("$ref", "")).startswith("#/$defs/"):
        return resolved(root.get("$defs", {}).get(schema["$ref"].removeprefix("#/$defs/"), {"$ref": "leads nowhere"}), root)
    return {name: resolved(value, root) for name, value in schema.items() if name != "$defs"}


def listed(run):
    own = next(tool for tool in Plain().tools() if tool["name"] == "shaped")
    tool = run.client().tool("shaped")
    for member in run.case["with"]["members"]:
        expect(member in tool, f"{member} is missing")
        given = [resolved(value[member]) if member.endswith("Schema") else value[member] for value in (own, tool)]
        matches(*given, f"/{member}")


def description(run):
    own = next(tool for tool in Plain().tools() if tool["name"] == "answer")
    same("the description", own["description"], run.client().tool("answer").get("description"))


def tools_changed(run):
    told = "notifications/tools/list_changed"
    # A race in the gateway may tell one client and not the next.
    for _ in range(4):
        client = run.client().listen()
        answer = client.call("grow")
        client.until(lambda: told in answer_methods(answer) + answer_methods(client), 5, "no notifications/tools/list_changed within 5 s")

    def grown():
        try:
            return client.tool("grown")
        except Failed:
            return None

    client.until(grown, 10, "the new tool is not listed within 10 s")
    same("the call", "as grown", client.call("grown").text())


def answer_methods(got):
    """The methods of the messages with an answer, or on a standing stream."""
    return [message.get("method") for message in getattr(got, "messages", None) or getattr(got, "standing", [])]


def unknown_tool(run):
    try:
        answer = run.client().ask("tools/call", {"name": "nowhere", "arguments": {}})
    except Refusal:
        return
    expect(answer.result.get("isError"), f"it succeeded: {str(answer.result)[:200]}")


def progress(run):
    answer = run.client().call("progress", meta={"progressToken": "token-7"})
    same("the text", "done", answer.text())
    got = [(params.get("progressToken"), params.get("progress"), params.get("message")) for params in answer.notified("notifications/progress")]
    same("progress", [("token-7", step, f"step {step}") for step in (1, 2, 3)], got)


def log(run):
    client = run.client().listen()
    answer = client.call("log")
    wanted = {"level": "warning", "data": {"said": "a warning", "count": 2}}

    def found():
        messages = answer.messages + client.standing
        return next((message["params"] for message in messages if message.get("method") == "notifications/message"
                     and message["params"].get("data") == wanted["data"]), None)

    try:
        got = client.until(found, 3, "")
    except Failed:
        messages = [message for message in answer.messages + client.standing if message.get("method") == "notifications/message"]
        raise Failed(f"no notifications/message with the server's data within 3 s; observed {str(messages)[:300] or 'none'}") from None
    same("the level", "warning", got.get("level"))
    expect("scorecard" in str(got.get("logger")), f"the logger: {got.get('logger')}")


def cancellation(run):
    client, server = run.client(), run.server()
    run.background(lambda: client.call("seconds", {"seconds": 8}, number=700))
    client.until(lambda: server.recorded("tools/call", "seconds"), 10, "the call did not reach the server")
    client.send("notifications/cancelled", requestId=700, reason="no longer needed")
    # Either the notification of the protocol, or the end of the request, which says the same without a session.
    client.until(lambda: server.recorded("notifications/cancelled"), 4, "no notifications/cancelled at the server within 4 s")


def sampling(run):
    answer = {"role": "assistant", "content": {"type": "text", "text": "Three."}, "model": "model-1", "stopReason": "endTurn"}
    client = run.client(answers={"sampling/createMessage": answer})
    got = parsed(client.call("sample").text())
    asked = [message["params"] for message in client.asked if message["method"] == "sampling/createMessage"]
    expect(len(asked) == 1, f"the client was asked {len(asked)} times")
    matches({"maxTokens": 77, "systemPrompt": "Count.", "messages": [{"role": "user"}]}, asked[0])
    matches({"role": "assistant", "model": "model-1", "stopReason": "endTurn"}, got)


def elicitation(run):
    client = run.client(answers={"elicitation/create": {"action": "accept", "content": {"colour": "blue"}}})
    got = client.call("elicit").text()
    asked = [message["params"] for message in client.asked if message["method"] == "elicitation/create"]
    expect(len(asked) == 1, f"the client was asked {len(asked)} times: {got[:200]}")
    expect("Which colour?" in asked[0].get("message", ""), f"the message: {asked[0].get('message')}")
    same("the choices", ["red", "blue"], asked[0].get("requestedSchema", {}).get("properties", {}).get("colour", {}).get("enum"))
    matches({"action": "accept", "content": {"colour": "blue"}}, parsed(got))


def elicitation_declined(run):
    got = run.client(answers={"elicitation/create": {"action": "decline"}}).call("elicit").text()
    same("the action", "decline", parsed(got).get("action"))


def elicitation_url(run):
    client = run.client(answers={"elicitation/create": {"action": "accept"}})
    got = client.call("openpage").text()
    asked = [message["params"] for message in client.asked if message["method"] == "elicitation/create"]
    expect(asked, f"the client was not asked: {got[:200]}")
    matches({"mode": "url", "url": "https://example.com/sign-in?state=1"}, asked[0])


def roots(run):
    wanted = {"roots": [{"uri": "file:///home/alice/work", "name": "work"}]}
    got = run.client(answers={"roots/list": wanted}).call("roots").text()
    matches(wanted, parsed(got))


def resource(client, uri):
    """The resource as the gateway lists it: it may put a prefix before the address."""
    items = client.everything("resources/list", "resources")
    found = [item for item in items if item["uri"].endswith(uri) or item["uri"].endswith(uri.split("://")[1])]
    expect(found, f"{uri} is not listed; listed are {[item['uri'] for item in items]}")
    return found[0]


def resources(run):
    matches({"title": "A note", "mimeType": "text/markdown", "size": 8}, resource(run.client(), "demo://note"))


def resource_text(run):
    client = run.client()
    got = client.ask("resources/read", {"uri": resource(client, "demo://note")["uri"]}).result
    matches({"contents": [{"mimeType": "text/markdown", "text": "# A note"}]}, got)


def resource_bytes(run):
    client = run.client()
    got = client.ask("resources/read", {"uri": resource(client, "demo://pixel")["uri"]}).result
    matches({"contents": [{"mimeType": "image/png", "blob": PIXEL}]}, got)


def resource_templates(run):
    client = run.client()
    templates = client.everything("resources/templates/list", "resourceTemplates")
    found = [item["uriTemplate"] for item in templates if item["uriTemplate"].endswith("file/{path}")]
    expect(found, f"the template is not listed; listed are {[item['uriTemplate'] for item in templates]}")
    got = client.ask("resources/read", {"uri": found[0].replace("{path}", "a.txt")}).result
    matches({"contents": [{"text": "a.txt"}]}, got)


def resource_missing(run):
    client = run.client()
    uri = resource(client, "demo://note")["uri"].replace("note", "nowhere")
    try:
        got = client.ask("resources/read", {"uri": uri})
    except Refusal:
        return
    raise Failed(f"it was read: {str(got.result)[:200]}")


def resource_updated(run):
    client = run.client().listen()
    uri = resource(client, "demo://note")["uri"]
    client.ask("resources/subscribe", {"uri": uri})
    client.call("touch", {"value": "demo://note"})

    def told():
        return [message for message in client.standing if message.get("method") == "notifications/resources/updated"]

    got = client.until(told, 5, "no notifications/resources/updated within 5 s")
    same("the address", uri, got[0]["params"].get("uri"))


def prompt_named(client):
    return client.find(client.everything("prompts/list", "prompts"), "review")


def prompts(run):
    got = prompt_named(run.client())
    matches({"description": "Asks for a review.", "arguments": [{"name": "code", "required": True}, {"name": "style"}]}, got)


def prompt(run):
    client = run.client()
    got = client.ask("prompts/get", {"name": prompt_named(client)["name"], "arguments": {"code": "a = 1"}}).result
    wanted = [{"role": "user", "content": {"type": "text", "text": "Review: a = 1"}}, {"role": "user", "content": {"type": "image", "data": PIXEL}},
              {"role": "assistant", "content": {"type": "resource", "resource": {"text": "# A note"}}}]
    matches({"messages": wanted}, got)


def completion(run):
    client = run.client()
    reference = {"type": "ref/prompt", "name": prompt_named(client)["name"]}
    params = {"ref": reference, "argument": {"name": "style", "value": "very"}, "context": {"arguments": {"code": "-c"}}}
    matches({"completion": {"values": ["very-short-c", "very-long-c"], "total": 7, "hasMore": True}}, client.ask("completion/complete", params).result)


def instructions(run):
    got = run.client().server.get("instructions") or ""
    expect("Instructions of plain: use answer first." in got, f"the instructions: {got[:200] or 'none'}")


def ping(run):
    got = run.client().ask("ping").result
    expect({name: value for name, value in got.items() if name != "_meta"} == {}, f"the result: {got}")


def text_ids(run):
    client = run.client()
    client.tools()
    same("the text", '{"value": "a"}', client.call("echo", {"value": "a"}, number="call-one").text())


def task(run):
    client = run.client()
    created = client.call("seconds", {"seconds": 0.3}, task={"ttl": 60000}).result.get("task")
    expect(created and created.get("taskId"), "the call did not become a task")

    def done():
        got = client.ask("tasks/get", {"taskId": created["taskId"]}).result
        return got.get("status") == "completed"

    client.until(done, 10, "the task is not completed within 10 s")
    result = client.ask("tasks/result", {"taskId": created["taskId"]}).result
    matches({"content": [{"type": "text", "text": "waited 0.3"}]}, result)


def revision(run):
    wanted = run.case["with"]["revision"]
    client = run.client(revision=wanted)
    same("the revision", wanted, client.server.get("protocolVersion"))
    same("the call", '{"value": "a"}', client.call("echo", {"value": "a"}).text())


class Sessionless(Client):
    """A client of 2026-07-28: each request says who asks, and there is no session."""

    def post(self, message, seconds=15):
        meta = {"io.modelcontextprotocol/protocolVersion": SESSIONLESS, "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "scorecard", "version": "1"}}
        message = {**message, "params": {**message.get("params", {}), "_meta": meta}}
        self.headers = {**self.plain, "MCP-Protocol-Version": SESSIONLESS, "Mcp-Method": message["method"]}
        if name := message["params"].get("name"):
            self.headers["Mcp-Name"] = name
        return super().post(message, seconds)


def sessionless(run):
    client = Sessionless(run.gateway.url, run.gateway.users.get("alice", {}))
    client.plain = client.headers
    same("the call", '{"value": "a"}', client.call("echo", {"value": "a"}).text())
    expect(client.session is None, "it got a session")
