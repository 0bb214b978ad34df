"""Programs through sekisho, FastMCP's code mode and pydantic-monty, in turns: a first line, calls of tools, and sessions
that are stored; and the same Python function as a tool of sekisho and of FastMCP. scripts/bench-code-mode runs it: beside.py SEKISHO, or `beside.py -` for the others alone.
"""
import asyncio
import contextlib
import http.client
import itertools
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from gateway import KEY, Gateway
from pydantic_monty import Monty

# Many short rounds: the machine's speed changes from second to second.
ROUNDS = 15
RUNS = 20
# FastMCP's code mode allows 50.
CALLS = 40
ROWS = 10_000
TABLE = f"rows = [{{'n': n, 's': str(n)}} for n in range({ROWS})]"
FUNCTIONS = pathlib.Path(__file__).with_name("functions")
YAML = f"""sandbox: {{sessions: {{max_per_caller: 2}}}}
python_tools: {{directory: '{FUNCTIONS}'}}
tools: {{overrides: {{python_executor: {{rate_limit: 100000000}}, calculator: {{rate_limit: 100000000}},
    weather__frost: {{rate_limit: 100000000}}}}}}"""
# With one fewer in memory than a caller may have, each of three in turn was stored when its next call comes.
STORED = ["one", "two", "three"]


def ours(calls):
    if not calls:
        return "1 + 1"
    return f"from host import tools\nfor n in range({calls}):\n    found = tools.calculator(expression='1')\nfound"


def theirs(calls):
    if not calls:
        return "return 1 + 1"
    return f"for n in range({calls}):\n    found = await call_tool('calculator', {{'expression': '1'}})\nreturn found"


class Rest:
    """One connection to sekisho."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}

    def ask(self, method, path, body=None):
        self.connection.request(method, path, body and json.dumps(body), self.headers)
        return json.loads(self.connection.getresponse().read())

    async def run(self, **arguments):
        reply = self.ask("POST", "/tools/python_executor/execute", {"arguments": arguments})
        assert reply["success"], reply
        return reply

    def stored_bytes(self):
        return max(session["stored_bytes"] or 0 for session in self.ask("GET", "/sessions")["sessions"])


async def over_mcp(client, tool, code):
    result = await client.call_tool(tool, {"code": code})
    assert not result.is_error, result


async def function_over_mcp(client, tool):
    result = await client.call_tool(tool, {"celsius": 1, "wind_kmh": 30})
    assert not result.is_error and "true" in str(result.content).lower(), result


async def in_new_monty(calls):
    """A worker is started for each run, as FastMCP does."""
    with Monty() as pool:
        await in_monty(pool, calls)


async def in_monty(pool, calls):
    """A worker is kept, and begins a session anew for each run."""
    code = f"for n in range({calls}):\n    found = calculator('1')\nfound" if calls else "1 + 1"
    with pool.checkout() as session:
        assert session.feed_run(code, external_lookup={"calculator": lambda expression: 1}) == (1 if calls else 2)


async def monty_turn(session):
    session.feed_run("x")


async def monty_stored(pool, dumped):
    """A session goes on from a dump, and is dumped again."""
    with pool.checkout() as session:
        session.load_session(dumped[-1])
        assert session.feed_run("len(rows)") == ROWS
        dumped[:] = [session.dump()]


async def measured(ways):
    """The median time of each way in milliseconds: of the medians of the rounds."""
    medians = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, run in ways.items():
            times = []
            for _ in range(RUNS):
                begun = time.perf_counter()
                await run()
                times.append((time.perf_counter() - begun) * 1e3)
            # The first round warms up.
            if number:
                medians[name].append(statistics.median(times))
    return {name: statistics.median(found) for name, found in medians.items()}


def row(what, value, unit="ms"):
    print(f"{what:<58} {f'{value:.3f} {unit}':>16}", flush=True)


async def programs(ways):
    first = await measured({name: lambda run=run: run(0) for name, run in ways.items()})
    all_calls = await measured({name: lambda run=run: run(CALLS) for name, run in ways.items()})
    for name, time_of_first in first.items():
        row(f"a first line, {name}", time_of_first)
        row("  a nested call", (all_calls[name] - time_of_first) / CALLS)


async def functions(ways):
    for name, found in (await measured(ways)).items():
        row(f"a function as a tool, {name}", found)


async def sessions(rest, pool, monty_session):
    monty_session.feed_run("x = 1")
    with pool.checkout() as session:
        session.feed_run(TABLE)
        dumped = [session.dump()]
    turns = {"pydantic-monty": lambda: monty_turn(monty_session)}
    stored = {"pydantic-monty": lambda: monty_stored(pool, dumped)}
    if rest:
        for name in STORED:
            await rest.run(code=TABLE, session=name)
        await rest.run(code="x = 1", session="turns")
        turns["sekisho over REST"] = lambda: rest.run(code="x", session="turns")
        following = itertools.cycle(STORED)
        stored["sekisho over REST"] = lambda: rest.run(code="len(rows)", session=next(following))
    for what, ways in {"a turn of a session": turns, f"one stored, one resumed, {ROWS} rows": stored}.items():
        for name, found in (await measured(ways)).items():
            row(f"{what}, {name}", found)
    row("  bytes, pydantic-monty", len(dumped[-1]) / 1e6, "MB")
    if rest:
        row("  bytes, sekisho", rest.stored_bytes() / 1e6, "MB")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def sekisho(program):
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(program, pathlib.Path(folder), {}, yaml=YAML)
        try:
            gateway.until(lambda: gateway.call("python_executor", {"code": ""})["success"], 120, "the interpreter is ready")
            gateway.until(lambda: gateway.call("weather__frost", {"celsius": 1})["success"], 120, "the function is a tool")
            yield gateway.port
        finally:
            gateway.process.kill()


@contextlib.contextmanager
def fastmcp(tools):
    port = free_port()
    server = pathlib.Path(__file__).with_name("fastmcp_server.py")
    process = subprocess.Popen([sys.executable, str(server), str(port), tools])
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                yield port
                return
            time.sleep(0.1)
        sys.exit("the server of FastMCP ended")
    finally:
        process.kill()


def client_at(port):
    return Client(StreamableHttpTransport(f"http://127.0.0.1:{port}/mcp", auth=KEY))


async def main():
    program = sys.argv[1]
    async with contextlib.AsyncExitStack() as opened:
        pool = opened.enter_context(Monty())
        beside = await opened.enter_async_context(client_at(opened.enter_context(fastmcp("code"))))
        plain = await opened.enter_async_context(client_at(opened.enter_context(fastmcp("function"))))
        ways = {
            "FastMCP over MCP": lambda calls: over_mcp(beside, "execute", theirs(calls)),
            "pydantic-monty, a new worker": in_new_monty,
            "pydantic-monty, a kept worker": lambda calls: in_monty(pool, calls),
        }
        of_functions = {"FastMCP over MCP": lambda: function_over_mcp(plain, "frost")}
        rest = None
        if program != "-":
            port = opened.enter_context(sekisho(program))
            rest, client = Rest(port), await opened.enter_async_context(client_at(port))
            ways["sekisho over MCP"] = lambda calls: over_mcp(client, "python_executor", ours(calls))
            ways["sekisho over REST"] = lambda calls: rest.run(code=ours(calls))
            of_functions["sekisho over MCP"] = lambda: function_over_mcp(client, "weather__frost")
        await programs(ways)
        await functions(of_functions)
        await sessions(rest, pool, opened.enter_context(pool.checkout()))


asyncio.run(main())
