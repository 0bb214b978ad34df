"""Uses a governed MCP tool through the official Python SDK, over HTTP and over standard input and output, and is refused the
dangerous one beside it: client.py URL COMMAND..."""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError


async def use(server, name):
    async with Client(server) as client:
        # The gateway listens before its servers have answered.
        while "notes__read" not in [tool.name for tool in (await client.list_tools()).tools]:
            await asyncio.sleep(0.1)
        called = await client.call_tool("notes__read", {})
        assert not called.is_error and called.content[0].text == "buy milk", (name, called)
        try:
            refused = await client.call_tool("notes__delete", {})
        except MCPError as error:
            said = str(error)
        else:
            assert refused.is_error, (name, refused)
            said = refused.content[0].text
        print(f"{name}: {called.content[0].text}; refused: {said}")


async def main(url, command):
    await use(url, "HTTP")
    await use(StdioServerParameters(command=command[0], args=[*command[1:], "mcp", "serve"], env=dict(os.environ)), "stdio")


asyncio.run(asyncio.wait_for(main(sys.argv[1], sys.argv[2:]), 60 * int(os.environ.get("SEKISHO_TEST_SLACK", "1"))))
