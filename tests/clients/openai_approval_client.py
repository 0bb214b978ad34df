"""The OpenAI package for Python runs an agent, and another person approves or denies the call of its tool meanwhile. BASE_URL names
the gateway's /v1."""

import json
import os
import threading
import time
import urllib.request

from openai import OpenAI

BASE_URL = os.environ["BASE_URL"]
client = OpenAI(base_url=BASE_URL, api_key="key-of-ann", max_retries=0, timeout=40)


def as_approver(path, body=None):
    headers = {"Authorization": "Bearer key-of-boss", "Content-Type": "application/json"}
    request = urllib.request.Request(BASE_URL.removesuffix("/v1") + path, body and json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def decide(decision):
    while not (waiting := as_approver("/approvals?status=pending")["approvals"]):
        time.sleep(0.1)
    as_approver(f"/approvals/{waiting[0]['id']}/{decision}", {"reason": "not today"})


def ask(decision):
    """What the agent answers."""
    approver = threading.Thread(target=decide, args=[decision], daemon=True)
    approver.start()
    messages = [{"role": "user", "content": "What is six times seven?"}]
    for _ in range(3):
        choice = client.chat.completions.create(model="asker", messages=messages).choices[0]
        approver.join(30)
        if choice.finish_reason == "stop":
            return choice.message.content
        # The run did not wait: it goes on when the conversation is sent again, as with a tool of the client.
        messages.append(choice.message.to_dict())
    raise AssertionError(f"the run has not ended: {choice}")


answer = ask("approve")
assert answer == "The tool says: 42", answer
[approval] = as_approver("/approvals")["approvals"]
approval = as_approver(f"/approvals/{approval['id']}")
assert (approval["status"], approval["arguments"]) == ("done", {"expression": "6*7"}), approval

answer = ask("deny")
assert "denied this call (not today)" in answer, answer
assert sorted(approval["status"] for approval in as_approver("/approvals")["approvals"]) == ["denied", "done"]
