"""The packages of OpenAI and Anthropic continue runs that pause until a person decides about a call. GATEWAY is its address."""

import json
import os
from urllib.request import ProxyHandler, Request, build_opener

from anthropic import Anthropic
from openai import OpenAI

gateway = os.environ["GATEWAY"]
openai = OpenAI(base_url=f"{gateway}/v1", api_key="key-of-ann", max_retries=0, timeout=20)
anthropic = Anthropic(base_url=gateway, api_key="key-of-ann", max_retries=0, timeout=20)
question = [{"role": "user", "content": "Pay."}]


def approve(paused):
    headers = {"Authorization": "Bearer key-of-boss", "Content-Type": "application/json"}
    request = Request(f"{gateway}/approvals/{paused['id']}/approve", b"{}", headers)
    assert json.load(build_opener(ProxyHandler({})).open(request))["status"] == "approved", paused


paused = openai.chat.completions.create(model="pays", messages=question).choices[0]
assert paused.finish_reason == "approval_required", paused
approve(paused.message.approvals[0])
done = openai.chat.completions.create(model="pays", messages=[*question, paused.message]).choices[0]
assert done.finish_reason == "stop" and done.message.content == "Done.", done

paused = openai.responses.create(model="pays", input="Pay.")
assert paused.status == "incomplete" and paused.incomplete_details.reason == "approval_required", paused
approve(paused.approvals[0])
done = openai.responses.create(model="pays", input=[], previous_response_id=paused.id)
assert done.status == "completed" and done.output_text == "Done.", done

paused = anthropic.messages.create(model="pays", max_tokens=100, messages=question)
assert paused.stop_reason == "pause_turn", paused
approve(paused.approvals[0])
answered = [*question, {"role": "assistant", "content": paused.content}]
done = anthropic.messages.create(model="pays", max_tokens=100, messages=answered)
assert done.stop_reason == "end_turn" and done.content[0].text == "Done.", done
