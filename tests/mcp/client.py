"""Lists and calls tools through the official Python SDK, over HTTP in both forms and over standard input and output.

    client.py URL SEKISHO CONFIG
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters


# Operations of the documents that the service at URL was started with.
OFFERED = {"figma__": 47, "github__": 1223, "stripe__": 417, "twilio__": 197}


async def listed(client) -> list[str]:
    names, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def use(server, mode: str) -> list[str]:
    async with Client(server, mode=mode) as client:
        names = await listed(client)
        assert "calculator" in names, mode
        called = await client.call_tool("calculator", {"expression": "6*7"})
        assert called.content[0].text == "42", called
        refused = await client.call_tool("calculator", {})
        assert refused.is_error and "expression" in refused.content[0].text, refused
        print(f"{mode}: {len(names)} tools")
        return names


async def main(url: str, sekisho: str, config: str) -> None:
    for mode in ["legacy", "2026-07-28", "auto"]:
        names = await use(url, mode)
        offered = {prefix: sum(name.startswith(prefix) for name in names) for prefix in OFFERED}
        assert offered == OFFERED, offered
    program = StdioServerParameters(command=sekisho, args=["--config", config, "mcp", "serve"])
    for mode in ["legacy", "auto"]:
        await use(program, mode)


asyncio.run(main(*sys.argv[1:]))
