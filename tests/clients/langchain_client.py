"""LangChain's ChatOpenAI streams a conversation that uses tools. BASE_URL names the gateway's /v1."""

import os

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def click() -> str:
    """Clicks."""
    return "clicked"


def model(name):
    return ChatOpenAI(model=name, base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=20)


text = "".join(chunk.content for chunk in model("weather").stream("Is 21.5 °C warm?"))
assert text.endswith("70.7 °F."), text

clicker = model("clicker").bind_tools([click])
messages = [HumanMessage("Click it.")]
asked = None
for chunk in clicker.stream(messages):
    asked = chunk if asked is None else asked + chunk
assert [call["name"] for call in asked.tool_calls] == ["click"], asked
messages += [asked, ToolMessage(click.invoke({}), tool_call_id=asked.tool_calls[0]["id"])]
assert clicker.invoke(messages).content == "Clicked."
