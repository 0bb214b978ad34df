"""An MCP server of the official Python SDK with what the scenarios of the conformance suite call: `conformance_fixture.py PORT`.
It speaks the revisions with a handshake, in which it asks its client while a call runs, and 2026-07-28."""
import asyncio, hmac, json, pathlib, sys

import mcp.types as types
import uvicorn
from mcp.server import Server
from mcp.shared.exceptions import MCPError

FIXTURE = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())


def text(value):
    return {"type": "text", "text": value}


def signed(step):
    return f"{step}:{hmac.new(b'for tests only', str(step).encode(), 'sha256').hexdigest()}"


def declared(context):
    return (context.meta or {}).get("io.modelcontextprotocol/clientCapabilities", {})


def rounds(name, context, params):
    """The questions of 2026-07-28, which a client answers in further requests; after the last round the answers."""
    given, state = params.input_responses or {}, params.request_state
    steps = FIXTURE["rounds"][name]
    step = int(state.split(":")[0]) if state else 0
    if state and not hmac.compare_digest(state, signed(step)):
        raise MCPError(-32602, "the request state was changed")
    kinds = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
    asked = {key: request for key, request in steps[step].items() if kinds[request["method"]] in declared(context)}
    if asked and all(key in given for key in asked):
        step += 1
        if step == len(steps):
            return None, text(json.dumps({key: answer.model_dump(mode="json") for key, answer in given.items()}))
        asked = steps[step]
    return types.InputRequiredResult.model_validate({"inputRequests": asked, "requestState": signed(step)}), None


async def list_tools(context, params):
    return types.ListToolsResult.model_validate({"tools": FIXTURE["tools"]})


async def call_tool(context, params):
    name, arguments, session = params.name, params.arguments or {}, context.session
    content = FIXTURE["content"].get(name)
    if name in FIXTURE["rounds"]:
        required, answers = rounds(name, context, params)
        if required:
            return required
        content = [answers]
    if name == "test_missing_capability" and "sampling" not in declared(context):
        raise MCPError(-32021, "it needs a model", {"requiredCapabilities": {"sampling": {}}})
    if name in ("test_tool_with_logging", "test_logging_tool"):
        for message in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
            await session.send_log_message("info", message, related_request_id=context.request_id)
            await asyncio.sleep(0.05)
    elif name == "test_tool_with_progress":
        for progress in [0, 50, 100]:
            await session.report_progress(progress, 100)
            await asyncio.sleep(0.05)
    elif name == "test_sampling":
        asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=arguments["prompt"]))
        answer = await session.create_message([asked], max_tokens=100, related_request_id=context.request_id)
        content = [text(f"LLM response: {answer.content.text}")]
    elif schema := FIXTURE["questions"].get(name):
        answer = await session.elicit_form(arguments.get("message", "Please answer"), schema, context.request_id)
        content = [text(f"User response: action={answer.action}, content={json.dumps(answer.content)}")]
    if content is None:
        raise MCPError(-32602, f"there is no tool {name}")
    return types.CallToolResult.model_validate({"content": content, "isError": name == "test_error_handling"})


async def list_resources(context, params):
    listed = [{"uri": uri, "name": uri, "mimeType": found["mimeType"]} for uri, found in FIXTURE["resources"].items()]
    return types.ListResourcesResult.model_validate({"resources": listed})


async def list_templates(context, params):
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": [template]})


async def read_resource(context, params):
    uri = str(params.uri)
    found = FIXTURE["resources"].get(uri)
    if uri.startswith("test://template/"):
        key = uri.split("/")[3]
        data = {"id": key, "templateTest": True, "data": f"Data for ID: {key}"}
        found = {"mimeType": "application/json", "text": json.dumps(data)}
    if found is None:
        code = -32602 if context.protocol_version == "2026-07-28" else -32002
        raise MCPError(code, "Resource not found", {"uri": uri})
    return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, **found}]})


async def list_prompts(context, params):
    return types.ListPromptsResult.model_validate({"prompts": FIXTURE["prompts"]})


async def get_prompt(context, params):
    if params.name in FIXTURE["rounds"]:
        required, answers = rounds(params.name, context, params)
        message = {"role": "user", "content": answers}
        return required or types.GetPromptResult.model_validate({"messages": [message]})
    blocks = json.dumps(FIXTURE["messages"][params.name])
    for name, value in (params.arguments or {}).items():
        blocks = blocks.replace("{" + name + "}", value)
    messages = [{"role": "user", "content": block} for block in json.loads(blocks)]
    return types.GetPromptResult.model_validate({"messages": messages})


async def complete(context, params):
    completion = {"values": [params.argument.value + "!"], "total": 1, "hasMore": False}
    return types.CompleteResult.model_validate({"completion": completion})


async def done(context, params):
    return types.EmptyResult()


server = Server(
    "conformance", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool, on_list_resources=list_resources,
    on_list_resource_templates=list_templates, on_read_resource=read_resource, on_subscribe_resource=done,
    on_unsubscribe_resource=done, on_list_prompts=list_prompts, on_get_prompt=get_prompt, on_completion=complete,
    on_set_logging_level=done,
)
port = int(sys.argv[1])
print(f"listening on http://127.0.0.1:{port}/mcp", flush=True)
uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="warning")
