"""The OpenAI package for Python streams a conversation that uses tools. BASE_URL names the gateway's /v1."""

import os

from openai import OpenAI

client = OpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=20)

assert "weather" in [model.id for model in client.models.list()]

question = [{"role": "user", "content": "Is 21.5 °C warm?"}]
whole = client.chat.completions.create(model="weather", messages=question)
assert whole.choices[0].message.content.endswith("70.7 °F."), whole
assert whole.choices[0].finish_reason == "stop" and whole.usage.total_tokens == 332, whole

text, finish, usage = "", None, None
options = {"include_usage": True}
for chunk in client.chat.completions.create(model="weather", messages=question, stream=True, stream_options=options):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
assert text.endswith("70.7 °F.") and finish == "stop" and usage.total_tokens == 332, (text, finish, usage)

# A tool of the client's own: handed out, answered, and the answer goes on.
tools = [{"type": "function", "function": {"name": "click", "parameters": {"type": "object", "properties": {}}}}]
calls = {}
for chunk in client.chat.completions.create(model="clicker", messages=question, tools=tools, stream=True):
    for choice in chunk.choices:
        for call in choice.delta.tool_calls or []:
            calls[call.index] = call
        finish = choice.finish_reason or finish
assert finish == "tool_calls" and calls[0].function.name == "click", (finish, calls)
call = {"id": calls[0].id, "type": "function", "function": {"name": "click", "arguments": calls[0].function.arguments}}
answered = question + [
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": calls[0].id, "content": "clicked"},
]
last = client.chat.completions.create(model="clicker", messages=answered, tools=tools)
assert last.choices[0].message.content == "Clicked.", last

# A mistake is an error of the package's own kind.
try:
    client.chat.completions.create(model="nobody", messages=question)
    raise AssertionError("an unknown model was accepted")
except Exception as error:
    assert type(error).__name__ == "BadRequestError" and "only anthropic" in str(error), error
