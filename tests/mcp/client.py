"""Uses sekisho through the official Python SDK, over HTTP in both forms and over standard input and output: lists,
calls, hears progress, and takes a call back.

    client.py URL SEKISHO CONFIG
"""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters


# Operations of the documents that the service at URL was started with.
OFFERED = {"figma__": 47, "github__": 1223, "stripe__": 417, "twilio__": 197}


async def listed(client) -> list[str]:
    names, cursor = [], None
    while True:
        # The client refuses a whole page if one inputSchema lacks its type.
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

        heard = []

        async def hear(progress, total, message):
            heard.append(progress)

        done = await client.call_tool("fixture__test_tool_with_progress", {}, progress_callback=hear)
        assert not done.is_error and heard == [0, 50, 100], (mode, heard)

        read = await client.read_resource("fixture+test://static-text")
        assert "static text" in read.contents[0].text, read
        prompt = await client.get_prompt("fixture__test_simple_prompt")
        assert prompt.messages, prompt

        runs = asyncio.Event()

        async def begun(progress, total, message):
            runs.set()

        slow = asyncio.create_task(client.call_tool("fixture__test_slow", {}, progress_callback=begun))
        await asyncio.wait_for(runs.wait(), 30)
        slow.cancel()
        try:
            await slow
        except asyncio.CancelledError:
            pass
        again = await client.call_tool("calculator", {"expression": "1+1"})
        assert again.content[0].text == "2", again
        print(f"{mode}, {client.protocol_version}: {len(names)} tools")
        return names


async def main(url: str, sekisho: str, config: str) -> None:
    for mode in ["legacy", "2026-07-28", "auto"]:
        names = await use(url, mode)
        offered = {prefix: sum(name.startswith(prefix) for name in names) for prefix in OFFERED}
        assert offered == OFFERED, offered
    program = StdioServerParameters(command=sekisho, args=["--config", config, "mcp", "serve"], env=dict(os.environ))
    for mode in ["legacy", "auto"]:
        await use(program, mode)


asyncio.run(main(*sys.argv[1:]))
