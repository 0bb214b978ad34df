"""openai-agents with its default, the Responses API. BASE_URL names the gateway's /v1."""

import asyncio
import os

from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)
set_default_openai_client(AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0, timeout=20))


@function_tool
def click() -> str:
    """Clicks."""
    return "clicked"


class Temperature(BaseModel):
    fahrenheit: float


async def main():
    weather = Agent(name="weather", model="weather", instructions="Be brief.")
    answered = await Runner.run(weather, "Is 21.5 °C warm?")
    # The last message, without what the model said before its call.
    assert answered.final_output == "It is 21.5 °C in Tokyo, which is 70.7 °F.", answered.final_output

    clicker = Agent(name="clicker", model="clicker", tools=[click])
    assert (await Runner.run(clicker, "Click it.")).final_output == "Clicked."
    # With the conversation kept by the gateway.
    kept = await Runner.run(clicker, "Click it.", auto_previous_response_id=True)
    assert kept.final_output == "Clicked."

    streamed = Runner.run_streamed(clicker, "Click it.")
    kinds = [event.type async for event in streamed.stream_events()]
    assert streamed.final_output == "Clicked." and "run_item_stream_event" in kinds, kinds

    typed = Agent(name="typed", model="typed", output_type=Temperature)
    assert (await Runner.run(typed, "Is it warm?")).final_output == Temperature(fahrenheit=70.7)


asyncio.run(main())
