"""pydantic-ai asks for typed answers, over Chat Completions and Responses. BASE_URL names the gateway's /v1."""

import os

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none")


class Temperature(BaseModel):
    fahrenheit: float


for kind in [OpenAIChatModel, OpenAIResponsesModel]:
    # A function of the client's own that takes the answer, and the form of the answer itself.
    for model, output_type in [("final", Temperature), ("typed", NativeOutput(Temperature))]:
        agent = Agent(kind(model, provider=provider), output_type=output_type)
        answered = agent.run_sync("Is 21.5 °C warm?")
        assert answered.output == Temperature(fahrenheit=70.7), (kind, model, answered)
    clicker = Agent(kind("clicker", provider=provider))

    @clicker.tool_plain
    def click() -> str:
        """Clicks."""
        return "clicked"

    assert clicker.run_sync("Click it.").output == "Clicked.", kind
