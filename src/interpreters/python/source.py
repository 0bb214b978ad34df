"""From the text of a call to compiled code: Markdown fences, commands of notebooks, and `await` outside of functions are
accepted, since models write them. Lines keep their numbers."""

import ast

from _sekisho_package_values import rewrite

FENCE = "```"
# `inspect.CO_COROUTINE`, without the import.
CO_COROUTINE = 0x80

# Whether the program that was compiled last awaits something outside of functions.
awaits = False


def compile_program(text, name, warn):
    """Code objects: the statements, and the last expression if there is one."""
    tree = _parse(_not_indented(_without_fences(text.removeprefix("\ufeff"))), name, warn)
    if "gather" in text:
        _StartTogether().visit(tree)
    rewrite(tree, text)
    expression = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        expression = _compile(ast.Expression(tree.body.pop().value), name, "eval")
    codes = [_compile(tree, name, "exec")] + ([expression] if expression else [])
    global awaits
    awaits = any(code.co_flags & CO_COROUTINE for code in codes)
    return codes


def compile_module(text, name, in_package=False):
    """The code object of a module's source. It is no program: it has no commands of notebooks, and awaits nothing outside of
    functions."""
    tree = ast.parse(text.removeprefix("\ufeff"), name)
    if not in_package:
        _FromBeside().visit(tree)
    if "gather" in text:
        _StartTogether().visit(tree)
    rewrite(tree, text)
    return compile(tree, name, "exec", dont_inherit=True)


class _FromBeside(ast.NodeTransformer):
    """In a file that is in no package, `from .a import b` names the module beside it: `from a import b`."""

    def visit_ImportFrom(self, node):
        if node.level != 1:
            return node
        if node.module is None:
            return ast.copy_location(ast.Import(node.names), node)
        node.level = 0
        return node


class _StartTogether(ast.NodeTransformer):
    """`tools.gather(tools.a(x), …)` starts its calls before it waits for any: `tools.gather(tools.a.start(x), …)`."""

    def visit_Call(self, node):
        self.generic_visit(node)
        if _is_of_tools(node.func) and getattr(node.func, "attr", None) == "gather":
            for argument in node.args:
                _start(argument)
        return node


def _start(node):
    if isinstance(node, ast.Starred):
        _start(node.value)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        _start(node.elt)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for element in node.elts:
            _start(element)
    elif isinstance(node, ast.Call) and _is_of_tools(node.func):
        if getattr(node.func, "attr", None) not in ("gather", "result", "search"):
            node.func = ast.copy_location(ast.Attribute(node.func, "start", ast.Load()), node.func)


def _is_of_tools(node):
    """Whether an expression is `tools.NAME` or `tools[…]`."""
    is_part = isinstance(node, (ast.Attribute, ast.Subscript))
    return is_part and isinstance(node.value, ast.Name) and node.value.id == "tools"


def run_compiled(codes, namespace):
    """Runs code objects; the value of the last one."""
    runner = value = None
    try:
        for code in codes:
            value = eval(code, namespace)
            if code.co_flags & CO_COROUTINE:
                if runner is None:
                    import asyncio

                    runner = asyncio.Runner()
                value = runner.run(value)
        return value
    finally:
        if runner is not None:
            runner.close()


def _compile(tree, name, mode):
    return compile(tree, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def _not_indented(text):
    """A program whose lines are all indented, as where it was cut out of a function."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    if not first[:1].isspace():
        return text
    import textwrap

    return textwrap.dedent(text)


def _without_fences(text):
    """The content of a text that is one block of Markdown."""
    if not text.lstrip().startswith(FENCE):
        return text
    lines = text.split("\n")
    first = next(at for at, line in enumerate(lines) if line.strip())
    last = max(at for at, line in enumerate(lines) if line.strip())
    if last == first or lines[last].strip() != FENCE:
        return text
    lines[first] = lines[last] = ""
    return "\n".join(lines)


def _parse(text, name, warn):
    """Commands of notebooks are no Python: each line of one that stops the parser is left out."""
    lines = None
    while True:
        try:
            return ast.parse(text, name)
        except SyntaxError as error:
            lines = lines or text.split("\n")
            at = (error.lineno or 0) - 1
            line = lines[at] if 0 <= at < len(lines) else ""
            command = line.strip()
            if not command.startswith(("%", "!")):
                raise
            why = "nothing can be installed or started here" if command.startswith(("!", "%pip")) else "not needed here"
            warn(f"line {at + 1}: `{command[:80]}` is skipped: {why}")
            lines[at] = line[: len(line) - len(line.lstrip())] + "pass"
            text = "\n".join(lines)
