"""The OpenAI package for Python with the Responses API, which continues by id. BASE_URL names the gateway's /v1."""

import os
import time

from openai import OpenAI

client = OpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=20)
question = "Is 21.5 °C warm?"

whole = client.responses.create(model="weather", input=question)
assert whole.output_text.endswith("70.7 °F.") and whole.status == "completed", whole
assert whole.usage.total_tokens == 332 and whole.error is None, whole

# The package's own helper joins the events.
with client.responses.stream(model="weather", input=[{"role": "user", "content": question}]) as stream:
    text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert stream.get_final_response().output_text == text == whole.output_text, text

# A function of the client's own: called, answered, and the response goes on by its id.
click = {"type": "function", "name": "click", "strict": False, "parameters": {"type": "object", "properties": {}}}
calls = []
last = None
for event in client.responses.create(model="clicker", input="Click it.", tools=[click], stream=True):
    if event.type == "response.function_call_arguments.done":
        calls.append(event.name)
    last = event
assert last.type == "response.completed" and calls == ["click"], (last, calls)
output = [
    {"type": "function_call_output", "call_id": item.call_id, "output": "clicked"}
    for item in last.response.output
    if item.type == "function_call"
]
after = client.responses.create(model="clicker", input=output, previous_response_id=last.response.id)
assert after.output_text == "Clicked.", after

# The same without a conversation that is kept.
items = [{"role": "user", "content": "Click it."}] + [item.model_dump() for item in last.response.output] + output
again = client.responses.create(model="clicker", input=items, tools=[click], store=False)
assert again.output_text == "Clicked.", again

# In the background, polled until it has ended.
begun = client.responses.create(model="weather", input=question, background=True)
assert begun.status == "queued" and begun.background, begun
until = time.monotonic() + 20
while (polled := client.responses.retrieve(begun.id)).status in ("queued", "in_progress"):
    assert time.monotonic() < until, polled
    time.sleep(0.05)
assert polled.status == "completed" and polled.output_text.endswith("70.7 °F."), polled
assert client.responses.cancel(begun.id).status == "completed"

for mistake in [{"model": "nobody"}, {"model": "weather", "max_tool_calls": 1}]:
    try:
        client.responses.create(input=question, **mistake)
        raise AssertionError(f"{mistake} was accepted")
    except Exception as error:
        assert type(error).__name__ == "BadRequestError", error
try:
    client.responses.create(model="weather", input=question, previous_response_id="resp_unknown")
    raise AssertionError("an unknown response was continued")
except Exception as error:
    assert type(error).__name__ == "NotFoundError", error
