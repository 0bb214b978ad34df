"""Simulates the host under an ordinary Python, for the tests of the harness.

`driver.py PRELUDE TURN CODE FRAMES RESULT-BYTES [CODE…]`, all but the number being files: runs the program as the sandbox
would, and writes the frames that the harness sent, one a line. A file `CODE.module` beside a program has what is done with
it as a module of tools, one or several tasks after each other. With further programs it is a session, whose variables are asked for by a program `# inspect`; a
program that begins with `# copy` is the first of a copy. It has some tools, whose calls end in the order in which they are
waited for, the last one first.
"""

import json
import os
import sys
import types


def schema(required, **properties):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


TOOLS = {
    "add": {
        "description": "Adds two numbers.",
        "inputSchema": schema(["b", "a"], a={"type": "number", "description": "The first."}, b={"type": "number"}),
        "outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}},
    },
    "weather": {
        "description": "The weather.",
        "inputSchema": schema(
            ["from"],
            days={"type": "integer", "default": 3},
            units={"enum": ["metric", "imperial"]},
            **{"from": {"type": "string"}, "X-Note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        ),
    },
    "buy": {
        "description": "Buys the items.",
        "inputSchema": {
            **schema(["lines"], lines={"type": "array", "items": {"$ref": "#/$defs/Line"}}),
            "$defs": {
                "Line": schema(["sku"], sku={"type": "string"}, unit={"enum": ["kg", "pc"], "default": "pc"}, parts={
                    "anyOf": [{"type": "array", "items": schema(["id"], id={"type": "integer"})}, {"type": "null"}],
                }),
            },
        },
        "outputSchema": {"type": "array", "items": schema([], price={"type": "number"})},
    },
    "import": {"description": "Imports.", "inputSchema": {"type": "object"}},
    "a-b": {"description": "One of two.", "inputSchema": {"type": "object"}},
    "a_b": {"description": "The other.", "inputSchema": {"type": "object"}},
}

# Stored results, by their handles.
RESULTS = {
    "rows": {"content_type": "application/json", "value": [{"city": "Bern", "n": 1}, {"city": "Kyoto", "n": None}]},
    "numbers": {"content_type": "application/json", "value": [1, {"n": 2}]},
    "object": {"content_type": "application/json", "value": {"rows": [{"n": 1}]}},
    "csv": {"content_type": "text/plain", "text": 'city,n\n"Bern, old",1\nKyoto,2\n'},
    "semicolons": {"content_type": "text/plain", "text": "city;n\r\nBern;1,5\r\n"},
    "prose": {"content_type": "text/plain", "text": "First, a line.\nThen another one.\n"},
    "repeated": {"content_type": "text/plain", "text": "a,a\n1,2\n"},
    "head": {"content_type": "text/plain", "text": "city,n\n"},
    "quote": {"content_type": "text/plain", "text": 'city,n\n"Bern"x,1\n'},
    "codes": {
        "content_type": "text/csv",
        "text": "zip,country,iban,version,share,price,active,n,empty\n"
        "00001,NA,12345678901234567,1.9,0.30000000000000004,12.50,true,7,\n"
        "10115,,98765432109876543,1.10,2,3.00,false,,\n",
    },
    "ids": {
        "content_type": "application/json",
        "value": [
            {"v": 0, "price": 1, "open": True, "any": 1},
            {"id": 9007199254740995, "v": 1, "price": 2.5, "any": "x"},
            {"large": 1 << 63, "sum": 9007199254740993, "v": 2},
            {"v": 3, "sum": 0.5},
        ],
    },
    "late": {"content_type": "text/plain", "text": "city,n\n" + "Bern,1\n" * 200 + "a,b,c\n"},
    "empty": {"content_type": "text/plain", "text": ""},
}


class Host:
    """Answers what programs ask of tools."""

    def __init__(self):
        self.started = {}

    def answer(self, message):
        return getattr(self, message["op"])(message)

    def describe(self, message):
        name, identifier = message.get("tool"), message.get("identifier")
        names = [tool for tool in TOOLS if tool == name or identifier and tool.replace("-", "_") == identifier]
        if len(names) != 1:
            refuse("unknown_tool", "unknown_tool", f"there is no tool {name or identifier}", alternatives=names)
        return {"name": names[0], **TOOLS[names[0]]}

    def search(self, message):
        found = [name for name in TOOLS if message["query"] in TOOLS[name]["description"]]
        hits = [{"name": name, "description": TOOLS[name]["description"]} for name in found[: message["limit"]]]
        return [{**hit, "ambiguous": hit["name"].replace("-", "_") == "a_b"} for hit in hits]

    def call(self, message):
        arguments = message["args"]
        if arguments.get("b") == 0:
            refuse("budget_exceeded", "rate_limited", "too many calls", retry_after_ms=1500)
        if message["tool"] == "read_result":
            if arguments["handle"] not in RESULTS:
                refuse("tool_error", "unknown_result", "there is no such result")
            return RESULTS[arguments["handle"]] if arguments["whole"] is True else None
        if arguments.get("from") == "an effect":
            return {"$effect": "{{effect:ab:3:}}"}
        if message["tool"] == "weather" and arguments["from"] == "nowhere":
            detail = {"path": "/from", "rule": "enum", "message": '`from` must be one of "here"; did you mean "here"?'}
            refuse("invalid_arguments", "invalid_arguments", "wrong", details=[detail])
        if message["tool"] == "add" and isinstance(arguments.get("a"), (int, float)):
            return {"sum": arguments["a"] + arguments["b"]}
        return [message["tool"], arguments]

    def start(self, message):
        sizes = [call["args"].get("size", 0) for call in [*self.started.values(), message]]
        if len(sizes) > 32 or sum(sizes) > 10:
            raise Refused({"kind": "too_large", "message": "too much is under way"})
        number = message["at"]
        self.started[number] = message
        return number

    def wait(self, message):
        number = max(message["ids"], default=None)
        if number is None or message.get("timeout_ms") == 0:
            return None
        call = self.started.pop(number)
        try:
            return {"id": number, "ok": True, "value": self.call(call)}
        except Refused as refused:
            return {"id": number, "ok": False, "error": refused.args[0]}


class Refused(Exception):
    pass


def refuse(kind, code, message, **more):
    raise Refused({"kind": kind, "message": json.dumps({"code": code, "message": message, **more})})


def main(prelude, turn, code, frames, result_bytes, *further):
    programs = [{"code": text_of(file), "result_bytes": int(result_bytes)} for file in (code, *further)]
    if os.path.exists(code + ".module"):
        tasks = json.loads(text_of(code + ".module"))
        programs = [{**programs[0], "module": task} for task in (tasks if isinstance(tasks, list) else [tasks])]
    if further:
        for program in programs:
            program["session"] = "inspect" if program["code"] == "# inspect" else "call"
            program["reseed"] = program["code"].startswith("# copy\n")
    sent = open(frames, "w", encoding="utf-8")
    tools, count = Host(), 0

    def call(frame):
        nonlocal count
        message = json.loads(frame)
        if message["op"] == "job":
            return json.dumps({"v": 1, "id": 0, "ok": True, "value": programs.pop(0)}).encode()
        print(frame.decode(), file=sent, flush=True)
        if message["op"] not in ("done", "image"):
            count += 1
            try:
                answer = {"ok": True, "value": tools.answer({**message, "at": count})}
            except Refused as refused:
                answer = {"ok": False, "error": refused.args[0]}
            return json.dumps({"v": 1, "id": 0, **answer}).encode()
        return b'{"v":1,"id":0,"ok":true}'

    host = types.ModuleType("_host")
    host.call = call
    sys.modules["_host"] = host
    exec(compile(text_of(prelude), "<turn 0>", "exec"), {})
    # As in the interpreter's own turns, `single` displays the value of an expression.
    for number in range(1, len(programs) + 1):
        exec(compile(text_of(turn), f"<turn {number}>", "single"), {})


def text_of(file):
    with open(file, encoding="utf-8", newline="") as opened:
        return opened.read()


main(*sys.argv[1:])
