"""Computes what the snippets and the one-liners give on a desktop: `python3 tests/sandbox/snippets/expect.py`, with CPython 3.13 or later and

    pip install numpy==2.5.2 pandas==3.0.6 scipy==1.18.1 scikit-learn==1.9.1 statsmodels==0.15.0 sympy==1.14.0 \
        networkx==3.7 openpyxl==3.1.5 matplotlib==3.11.2 lxml beautifulsoup4 html5lib jinja2 pyyaml

which are the versions of the interpreter. Results are encoded as the sandbox encodes them.
"""

import ast
import json
import os
import pathlib
import sys
import tempfile
import types

HERE = pathlib.Path(__file__).resolve().parent
HARNESS = HERE.parents[2] / "src/interpreters/python"


def snippets():
    for part in (HERE / "snippets.txt").read_text().split("#: ")[1:]:
        name, code = part.split("\n", 1)
        yield name, code


def one_liners():
    return [line for line in (HERE / "one_liners.txt").read_text().splitlines() if line and not line.startswith("#")]


def module(name):
    made = sys.modules[f"_sekisho_{name}"] = types.ModuleType(name)
    exec((HARNESS / f"{name}.py").read_text(), made.__dict__)
    return made


def result(code):
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    tree = ast.parse(code)
    last = tree.body.pop()
    exec(compile(tree, "<code>", "exec"), main.__dict__)
    return eval(compile(ast.Expression(last.value), "<code>", "eval"), main.__dict__)


module("errors")
encode = module("encode").encode


def write(file, expected):
    lines = ",\n".join(f" {json.dumps(name, ensure_ascii=False)}: {json.dumps(value)}" for name, value in expected.items())
    (HERE / file).write_text("{\n" + lines + "\n}\n")


os.chdir(tempfile.mkdtemp())
write("expected.json", {name: encode(result(code), 1 << 20) for name, code in snippets()})
preamble = (HERE / "preamble.py").read_text()
outcomes = [f"outcome(lambda: {line})" for line in one_liners()]
values = result(preamble + "\n[" + ",\n".join(outcomes) + "]")
write("one_liners.json", {line: encode(value, 1 << 20) for line, value in zip(one_liners(), values)})
