"""Lists and calls tools through the official Python SDK, over HTTP in both forms and over standard input and output.

    client.py URL SEKISHO CONFIG
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters


async def use(server, mode: str) -> None:
    async with Client(server, mode=mode) as client:
        tools = await client.list_tools()
        assert "calculator" in [tool.name for tool in tools.tools], mode
        called = await client.call_tool("calculator", {"expression": "6*7"})
        assert called.content[0].text == "42", called
        refused = await client.call_tool("calculator", {})
        assert refused.is_error and "expression" in refused.content[0].text, refused
        print(f"{mode}: {len(tools.tools)} tools")


async def main(url: str, sekisho: str, config: str) -> None:
    for mode in ["legacy", "2026-07-28", "auto"]:
        await use(url, mode)
    program = StdioServerParameters(command=sekisho, args=["--config", config, "mcp", "serve"])
    for mode in ["legacy", "auto"]:
        await use(program, mode)


asyncio.run(main(*sys.argv[1:]))
