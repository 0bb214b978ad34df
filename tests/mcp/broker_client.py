"""A client of the official Python SDK that signs its user in, calls, and goes on when its access token has expired.

    broker_client.py URL
    broker_client.py --through COMMAND ARGUMENT...     a program that signs in in its place, over standard input and output
"""

import asyncio
import http.server
import sys
import threading
import urllib.parse

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

# Longer than an access token lasts, by which this SDK refreshes it.
PAUSE = 3


class Storage:
    """Tokens and registrations in memory."""

    def __init__(self):
        self.tokens, self.client, self.given = None, None, 0

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens, self.given = tokens, self.given + 1

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Callback(http.server.ThreadingHTTPServer):
    """Where the browser comes back to."""

    daemon_threads = True

    def __init__(self):
        self.came, self.query = threading.Event(), {}
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"Signed in.")
                server.came.set()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}/callback"


async def use(server):
    async with Client(server) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "calculator" in names, names
        for pause in [0, PAUSE, PAUSE]:
            await asyncio.sleep(pause)
            called = await client.call_tool("calculator", {"expression": "6*7"})
            assert called.content[0].text == "42", called
        print(f"called as a user, {client.protocol_version}", flush=True)


async def main(arguments):
    if arguments[0] == "--through":
        program = StdioServerParameters(command=arguments[1], args=arguments[2:], env=None)
        await use(stdio_client(program, errlog=sys.stderr))
        return
    callback, storage = Callback(), Storage()

    async def redirect(url):
        print(url, flush=True)

    async def came_back():
        await asyncio.to_thread(callback.came.wait, 60)
        query = callback.query
        assert "code" in query, query
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))

    auth = OAuthClientProvider(
        server_url=arguments[0],
        client_metadata=OAuthClientMetadata(client_name="Python SDK", redirect_uris=[callback.url]),
        storage=storage,
        redirect_handler=redirect,
        callback_handler=came_back,
    )
    async with httpx2.AsyncClient(auth=auth, timeout=60) as http_client:
        await use(streamable_http_client(arguments[0], http_client=http_client))
    assert storage.given >= 3, f"tokens were given {storage.given} times"


asyncio.run(main(sys.argv[1:]))
