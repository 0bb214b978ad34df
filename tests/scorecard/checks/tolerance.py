"""Whether odd but common servers are usable."""
import json

from checks import expect, same
from client import Refusal


def usable(run):
    given, name = run.case.get("with", {}), run.case["servers"][0]
    client = run.client()
    client.tool(f"{name}-echo")
    same("the call", "関所", client.call(f"{name}-echo", {"value": "関所"}).text())
    if "tool" in given:
        answer = client.call(given["tool"], given.get("arguments", {}))
        expect(not answer.result.get("isError"), f"the call failed: {answer.text()[:300]}")
        same("the call", given.get("text", ""), answer.text())


def long_description(run):
    got = run.client().tool("long-text").get("description", "")
    expect(got.endswith(" The end."), f"the description ends after {len(got)} characters: {got[-40:]!r}")


def pages(run):
    client = run.client()
    listed = [tool["name"] for tool in client.tools() if "paged" in tool["name"]]
    same("the number of tools", 250, len(set(listed)))
    same("the call", "paged-249", client.call("paged-249").text())


def structured_only(run):
    try:
        got = run.client().call("nocontent-only").result
    except Refusal as refusal:
        return expect(False, str(refusal))
    texts = [block.get("text", "") for block in got.get("content", [])]
    expect(got.get("structuredContent") == {"rows": []}, f"the structured content: {json.dumps(got)[:200]} {texts}")
