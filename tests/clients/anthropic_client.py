"""The Anthropic package for Python, which speaks as Claude Code does. BASE_URL names the gateway's /v1."""

import os

import anthropic

base_url = os.environ["BASE_URL"].removesuffix("/v1")
client = anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0, timeout=20)
question = [{"role": "user", "content": "Is 21.5 °C warm?"}]

whole = client.messages.create(model="weather", max_tokens=500, messages=question, system="Be brief.")
assert whole.content[-1].text.endswith("70.7 °F.") and whole.stop_reason == "end_turn", whole
assert whole.usage.input_tokens == 290 and whole.usage.output_tokens == 42, whole

# The package's own helper joins the events.
with client.messages.stream(model="weather", max_tokens=500, messages=question) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == "".join(block.text for block in whole.content), text
assert final.stop_reason == "end_turn" and final.usage.output_tokens == 42, final

# A tool of the client's own: used, answered, and the answer goes on.
click = {"name": "click", "description": "Clicks.", "input_schema": {"type": "object", "properties": {}}}
with client.messages.stream(model="clicker", max_tokens=500, messages=question, tools=[click]) as stream:
    used = stream.get_final_message()
assert used.stop_reason == "tool_use", used
tool_use = used.content[-1]
assert (tool_use.type, tool_use.name, tool_use.input) == ("tool_use", "click", {}), used
answered = question + [
    {"role": "assistant", "content": used.content},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": tool_use.id, "content": "clicked"}]},
]
last = client.messages.create(model="clicker", max_tokens=500, messages=answered, tools=[click])
assert last.content[0].text == "Clicked.", last

counted = client.messages.count_tokens(model="weather", messages=question, tools=[click])
assert counted.input_tokens > 0, counted

# Mistakes are errors of the package's own kinds.
for mistake, kind in [({"model": "nobody"}, "BadRequestError"), ({"model": "weather", "extra_body": {"top_k": 5}}, "BadRequestError")]:
    try:
        client.messages.create(max_tokens=500, messages=question, **mistake)
        raise AssertionError(f"{mistake} was accepted")
    except anthropic.APIStatusError as error:
        assert type(error).__name__ == kind and error.body["error"]["type"] == "invalid_request_error", error
