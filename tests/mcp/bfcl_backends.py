"""The back ends of the multi-turn tasks of the Berkeley Function Calling Leaderboard (PyPI `bfcl-eval`): entries with
their gold calls, and the functions that these call, with their state. As a program, an MCP server over standard input
and output: each function is a tool as the benchmark describes it, `reset` loads the state with which an entry begins,
and `state` shows that of all back ends.
"""
import asyncio
import copy
import importlib
import inspect
import json
import pathlib

import bfcl_eval
import mcp.server.stdio
from bfcl_eval.constants.executable_backend_config import (
    CLASS_FILE_PATH_MAPPING,
    MULTI_TURN_FUNC_DOC_FILE_MAPPING,
    STATELESS_CLASSES,
)
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

CATEGORIES = ["base", "long_context", "miss_func", "miss_param"]
CLASSES = [
    "GorillaFileSystem", "MathAPI", "MessageAPI", "TicketAPI", "TradingBot", "TravelAPI", "TwitterAPI", "VehicleControlAPI",
]
DATA = pathlib.Path(bfcl_eval.__file__).parent / "data"
# How the benchmark names the types of JSON Schema.
TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def entries():
    """All entries by id: what each begins with, and its gold calls in order."""
    found = {}
    for category in CATEGORIES:
        file = f"BFCL_v4_multi_turn_{category}.json"
        gold = {answer["id"]: answer["ground_truth"] for answer in lines(DATA / "possible_answer" / file)}
        for entry in lines(DATA / file):
            calls = [call for turn in gold[entry["id"]] for call in turn]
            found[entry["id"]] = {"category": category, "begin": entry["initial_config"], "calls": calls}
    return found


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


class Backends:
    """One instance of each class."""

    def __init__(self):
        self.reset({}, False)

    def reset(self, begin, has_long_context):
        self.instances, self.functions = {}, {}
        for name in CLASSES:
            # Anew: lists that are default values of its functions keep what calls append.
            module = importlib.reload(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]))
            instance = getattr(module, name)()
            if name not in STATELESS_CLASSES:
                instance._load_scenario(copy.deepcopy(begin.get(name, {})), long_context=has_long_context)
            self.instances[name] = instance
            methods = inspect.getmembers(instance, inspect.ismethod)
            self.functions.update({name: method for name, method in methods if not name.startswith("_")})

    def state(self):
        """What the benchmark compares of the instances: their public attributes."""
        return {name: plain(vars(instance)) for name, instance in self.instances.items()}


def plain(value):
    if isinstance(value, dict):
        return {str(key): plain(member) for key, member in value.items() if not str(key).startswith("_")}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, set):
        return sorted((plain(item) for item in value), key=repr)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    # A folder names the one that it is in, which would not end.
    attributes = {name: member for name, member in vars(value).items() if name != "parent"}
    return plain(attributes)


def tools():
    described = [
        Tool(name=function["name"], description=function["description"], input_schema=schema(function["parameters"]))
        for name in CLASSES
        for function in lines(DATA / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[name])
    ]
    entry = {"type": "object", "properties": {"entry": {"type": "string"}}, "required": ["entry"]}
    return [
        *described,
        Tool(name="reset", description="Loads the state with which an entry begins.", input_schema=entry),
        Tool(name="state", description="The state of all back ends.", input_schema={"type": "object", "properties": {}}),
    ]


def schema(described):
    if isinstance(described, list):
        return [schema(item) for item in described]
    if not isinstance(described, dict):
        return described
    # `type` and `default` may also be names of parameters, which are objects.
    return {
        key: TYPES.get(member, member) if key == "type" and isinstance(member, str) else schema(member)
        for key, member in described.items()
    }


async def serve():
    backends, known, listed = Backends(), entries(), tools()

    def run(name, arguments):
        if name == "reset":
            entry = known[arguments["entry"]]
            return backends.reset(entry["begin"], entry["category"] == "long_context")
        if name == "state":
            return backends.state()
        return backends.functions[name](**arguments)

    async def list_tools(_context, _parameters):
        return ListToolsResult(tools=listed)

    async def call_tool(_context, parameters):
        try:
            result = run(parameters.name, parameters.arguments or {})
        except Exception as error:  # It is an answer of the benchmark too.
            return CallToolResult(content=[TextContent(type="text", text=f"{type(error).__name__}: {error}")], is_error=True)
        text = result if isinstance(result, str) else json.dumps(result)
        structured = result if isinstance(result, dict) else None
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)

    server = Server("bfcl", on_list_tools=list_tools, on_call_tool=call_tool)
    async with mcp.server.stdio.stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(serve())
