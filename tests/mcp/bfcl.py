"""The gold calls of BFCL's multi-turn entries, three times each: through sekisho one by one, through sekisho as one
program in `python_executor`, and in this process. The state at the end must be the same, and each result of the first
two.

bfcl.py SEKISHO all|COUNT: the program, and how many entries of each category, spread over all of it
"""
import ast
import collections
import copy
import inspect
import json
import pathlib
import sys
import tempfile
import time

from bfcl_backends import CATEGORIES, Backends, entries
from gateway import Gateway

YAML = """limits: {mcp_tool_rate_limit: 100000000}
tools: {overrides: {python_executor: {rate_limit: 100000000}}}"""
# What the program calls for each gold call. A call that fails is a result, and the program goes on.
BEGINNING = """import json
from host import tools, ToolError
results = []


def keep(call):
    try:
        results.append(call())
    except ToolError as error:
        results.append([error.code, error.message])


"""
# As a text: a result with integers beyond 2^53 would have objects in their place.
END = "json.dumps(results)"


class Call:
    """A gold call, such as `sort('final_report.pdf')`."""

    def __init__(self, text):
        call = ast.parse(text, mode="eval").body
        self.function = call.func.id
        # As it is written, with its positional values.
        self.values = text[text.index("("):]
        self.positional = [ast.literal_eval(value) for value in call.args]
        self.named = {argument.arg: ast.literal_eval(argument.value) for argument in call.keywords}

    def arguments(self, backends):
        names = inspect.signature(backends.functions[self.function]).parameters
        return {**dict(zip(names, self.positional)), **self.named}

    def line(self):
        return f"keep(lambda: tools.bfcl__{self.function}{self.values})\n"


def in_this_process(backends, entry, calls):
    backends.reset(entry["begin"], entry["category"] == "long_context")
    for call in calls:
        # Copies: what it is given becomes a part of the state.
        positional, named = copy.deepcopy((call.positional, call.named))
        try:
            backends.functions[call.function](*positional, **named)
        except Exception:  # The benchmark goes on with the next call.
            pass
    return json.loads(json.dumps(backends.state()))


def one_by_one(gateway, backends, calls):
    results = []
    for call in calls:
        reply = gateway.call(f"bfcl__{call.function}", call.arguments(backends))
        info = reply.get("error_info") or {}
        results.append(reply["output"] if reply["success"] else [info["code"], reply["error"]])
    return results


def as_a_program(gateway, calls):
    reply = gateway.ok("python_executor", {"code": BEGINNING + "".join(map(Call.line, calls)) + END})
    count = (reply["receipt"].get("nested") or {"count": 0})["count"]
    assert count == len(calls), f"{count} calls for {len(calls)}"
    return json.loads(reply["output"]["result"])


def compare(gateway, backends, name, entry):
    """Counts of the entry, and how long each way took."""
    calls = [Call(text) for text in entry["calls"]]
    took, states, results = {}, {}, {}
    for way, run in {
        "one by one": lambda: one_by_one(gateway, backends, calls),
        "as one program": lambda: as_a_program(gateway, calls),
    }.items():
        gateway.ok("bfcl__reset", {"entry": name})
        begun = time.monotonic()
        results[way] = run()
        took[way] = time.monotonic() - begun
        states[way] = gateway.ok("bfcl__state", {})["output"]
    failures = [result[0] for result in results["one by one"] if isinstance(result, list)]
    # The benchmark itself does not check the types that it describes.
    is_refused = "invalid_arguments" in failures
    if not is_refused:
        states["in this process"] = in_this_process(backends, entry, calls)
    for found in (states, results):
        first, *others = found
        for other in others:
            assert found[first] == found[other], f"{name} ends differently\n{first}: {found[first]}\n{other}: {found[other]}"
    return {"calls": len(calls), "failures": len(failures), "refused": int(is_refused), **took}


def chosen(known, count):
    """So many of each category, spread over all of it: neighbours have the same back ends."""
    for category in CATEGORIES:
        of_category = [name for name, entry in known.items() if entry["category"] == category]
        step = max(1, len(of_category) // count) if count else 1
        yield from of_category[::step][:count]


def main():
    sekisho, count = sys.argv[1:]
    known, backends = entries(), Backends()
    names = list(chosen(known, None if count == "all" else int(count)))
    server = {"command": sys.executable, "args": [str(pathlib.Path(__file__).with_name("bfcl_backends.py"))]}
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(sekisho, pathlib.Path(folder), {"bfcl": server}, yaml=YAML)
        try:
            gateway.until(lambda: "bfcl__state" in gateway.tools(), 60, "the back ends are listed")
            gateway.until(lambda: gateway.call("python_executor", {"code": ""})["success"], 120, "the interpreter is ready")
            total = collections.Counter()
            for name in names:
                total.update(compare(gateway, backends, name, known[name]))
            gateway.stop()
        finally:
            if gateway.process.poll() is None:
                gateway.process.kill()
    print(
        f"{len(names)} of {len(known)} entries end in the same state in all ways: {total['calls']} calls, {total['failures']} of "
        f"them failures; one by one {total['one by one']:.1f} s, as programs {total['as one program']:.1f} s\n"
        f"{total['refused']} of them have a gold call with arguments of other types than the benchmark describes, which is refused: "
        "these are not compared with this process"
    )


main()
