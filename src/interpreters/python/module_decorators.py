"""Functions are made tools by decorators, `@tool` of `host`, `@SERVER.tool` of a FastMCP and those of other libraries, or given to a
FastMCP."""

import ast
import math
import re

from _sekisho_module_methods import PAIR, descriptions_of, fields_of
from _sekisho_module_names import MAX_NAME, Problem, identifier_of, text_of

MAX_LIST = 100
NAME = re.compile(r"[A-Za-z0-9_-]{1,%d}" % MAX_NAME)
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
LABEL = re.compile(r"\S(.{0,98}\S)?")
# Of other libraries.
DECORATORS = (
    "agents.function_tool",
    "crewai.tools.tool",
    "langchain_core.tools.tool",
    "smolagents.tool",
    "strands.tool",
)
# What has decorators `tool` and `tool_plain`.
TOOLSETS = ("pydantic_ai.Agent", "pydantic_ai.FunctionToolset")
# What makes a tool of a function, and the names under which it is given the function.
MAKERS = (
    "autogen_core.tools.FunctionTool",
    "google.adk.tools.FunctionTool",
    "langchain_core.tools.StructuredTool",
    "langchain_core.tools.Tool",
    "llama_index.core.tools.FunctionTool",
)
GIVEN = ("func", "fn", "coroutine", "async_fn")
# Where they say that a person has to approve each call.
APPROVED = ("needs_approval", "requires_approval")


def decorator_of(node, names):
    """The decorator of a function that makes it a tool, or None."""
    for made in node.decorator_list:
        called = made.func if isinstance(made, ast.Call) else made
        if names.of(called) == "host.tool":
            return HostTool(made, names)
        # A module beside the file may have the name of a library.
        if names.of(called) in DECORATORS and names.defined(called)[0] is None:
            return LibraryTool(made, names)
        if isinstance(called, ast.Attribute) and called.attr in ("tool", "tool_plain"):
            found, _, value = names.defined(called.value)
            if found is not None and is_server(value, found):
                return ServerTool(made, names)
            if found is not None and _is_toolset(value, found):
                return LibraryTool(made, names)
    return None


def added_to_servers(tree, names):
    """The functions that a file gives to a server without a decorator: `SERVER.add_tool(f)` and `SERVER.tool(f)`."""
    added = {}
    for statement in tree.body:
        called = statement.value if isinstance(statement, ast.Expr) else None
        is_method = isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute)
        if not is_method or called.func.attr not in ("add_tool", "tool"):
            continue
        found, _, value = names.defined(called.func.value)
        if found is not None and is_server(value, found) and called.args and isinstance(called.args[0], ast.Name):
            rest = ast.Call(called.func, called.args[1:], called.keywords)
            added[called.args[0].id] = ServerTool(rest, names)
    return added


def given_to_libraries(tree, names):
    """The functions of which a file makes tools of a library (`StructuredTool(func=f)`), with what `args_schema` says."""
    given = {}
    statements = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    for call in (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)):
        maker = (names.of(call.func) or "").removesuffix(".from_function").removesuffix(".from_defaults")
        if maker in MAKERS:
            values = [*call.args[:1], *(word.value for word in call.keywords if word.arg in GIVEN)]
            model = next((word.value for word in call.keywords if word.arg == "args_schema"), None)
            options = {"described": descriptions_of(model, names), "fields": fields_of(model, names)}
            given.update((value.id, options) for value in values if isinstance(value, ast.Name))
    return given


def is_server(value, names):
    """Whether a name's value is `FastMCP(…)`."""
    return isinstance(value, ast.Call) and names.of(value.func) == "fastmcp.FastMCP"


def _is_toolset(value, names):
    made = value.func if isinstance(value, ast.Call) else None
    # `Agent[…](…)`.
    return names.of(made.value if isinstance(made, ast.Subscript) else made) in TOOLSETS


class HostTool:
    """`@tool` and `@tool(…)`."""

    is_of_server = False
    is_enabled = True

    def __init__(self, node, names):
        self._node = node
        self._names = names

    def options(self):
        """Raises `Problem`."""
        if not isinstance(self._node, ast.Call):
            return {}
        if self._node.args:
            raise Problem(self._node.args[0], f"@tool takes named values: write name={text_of(self._node.args[0])}")
        options = {}
        for word in self._node.keywords:
            if word.arg not in OPTIONS:
                raise Problem(word.value, f"@tool has no `{word.arg}`: it has {', '.join(OPTIONS)}")
            is_valid, what, written = OPTIONS[word.arg]
            value = self._names.literal(word.value)
            if not is_valid(value):
                raise Problem(word.value, f"`{word.arg}` is {what}, written out: write {word.arg}={written}")
            name = SAME_OPTIONS.get(word.arg, word.arg)
            options[name] = _amount(value) if name == "cost_usd" else value
        return options


class ServerTool:
    """`@SERVER.tool`, `@SERVER.tool()` and `@SERVER.tool(…)`. Titles, schemas and other hints than that it destroys something change
    nothing."""

    is_of_server = True

    def __init__(self, node, names):
        self._node = node
        self._words = {word.arg: word.value for word in node.keywords} if isinstance(node, ast.Call) else {}
        if isinstance(node, ast.Call) and node.args:
            self._words["name"] = node.args[0]
        self._names = names

    @property
    def is_enabled(self):
        return self._literal("enabled") is not False

    def options(self):
        """Raises `Problem`."""
        options = {}
        if "name" in self._words:
            options["name"] = self._valid("name", _is_name, *OPTIONS["name"][1:])
        if "description" in self._words:
            text = self._valid("description", lambda value: isinstance(value, str), "a text", '"what it does"')
            options["description"] = text.strip()
        tags, excluded, timeout = map(self._literal, ("tags", "exclude_args", "timeout"))
        if isinstance(tags, (list, tuple, set)) and _is_list(LABEL)(sorted(tags, key=str)):
            options["labels"] = sorted(tags)
        if isinstance(excluded, (list, tuple)):
            options["excluded"] = excluded
        if isinstance(timeout, (int, float)) and 0 < timeout <= 86_400:
            options["timeout_seconds"] = math.ceil(timeout)
        if self._is_dangerous():
            options["dangerous"] = True
        return options

    def _is_dangerous(self):
        """As of a server's tool with this hint. What is computed may be true."""
        written = self._words.get("annotations")
        hints = {word.arg: word.value for word in getattr(written, "keywords", ())}
        if isinstance(written, ast.Dict):
            hints = {getattr(key, "value", None): value for key, value in zip(written.keys, written.values)}
        hint = hints.get("destructiveHint")
        return hint is not None and self._names.literal(hint) not in (False, None)

    def _literal(self, word):
        """What is written after a word; None where nothing is."""
        return self._names.literal(self._words[word]) if word in self._words else None

    def _valid(self, word, is_valid, what, written):
        value = self._literal(word)
        if not is_valid(value):
            raise Problem(self._words[word], f"`{word}` is {what}, written out: write {word}={written}")
        return value


class LibraryTool(ServerTool):
    """The decorators of other libraries. Names may be titles there: `@tool("Search the web")`."""

    def __init__(self, node, names):
        super().__init__(node, names)
        for word in ("name", "description"):
            if f"{word}_override" in self._words:
                self._words[word] = self._words[f"{word}_override"]
        self._model = self._words.get("args_schema")

    @property
    def is_enabled(self):
        return self._literal("is_enabled") is not False

    def _is_dangerous(self):
        return any(self._literal(word) not in (False, None) for word in APPROVED)

    def options(self):
        title, description = self._literal("name"), self._literal("description")
        for word in ("name", "description", "tags"):
            self._words.pop(word, None)
        options = super().options()
        if identifier_of(title):
            options["name"] = identifier_of(title)
        if isinstance(description, str) and description.strip():
            options["description"] = description.strip()
        fields = fields_of(self._model, self._names)
        is_pair = self._literal("response_format") == PAIR
        return {**options, "described": descriptions_of(self._model, self._names), "fields": fields, "is_pair": is_pair}


def _is_name(value):
    return isinstance(value, str) and bool(NAME.fullmatch(value))


def _is_amount(value):
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return False
    return bool(re.fullmatch(r"\d{1,9}(\.\d{1,12})?", _amount(value)))


def _amount(value):
    """Digits, without an exponent."""
    import decimal

    try:
        return format(decimal.Decimal(str(value)), "f")
    except decimal.InvalidOperation:
        return ""


def _is_count(most):
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_list(form):
    def is_list(value):
        is_one = isinstance(value, (list, tuple)) and len(value) <= MAX_LIST
        return is_one and all(isinstance(text, str) and form.fullmatch(text) for text in value)

    return is_list


OPTIONS = {
    "name": (_is_name, f"a text of at most {MAX_NAME} letters, digits, `_` and `-`", '"lookup"'),
    "cost_per_use": (_is_amount, "an amount that is not negative", "0.001"),
    "cost_usd": (_is_amount, "an amount that is not negative", "0.001"),
    "rate_limit": (_is_count(1_000_000), "a whole number of calls a minute", "60"),
    "timeout_seconds": (_is_count(86_400), "a whole number of seconds", "30"),
    "labels": (_is_list(LABEL), "a list of words", '["internal"]'),
    "dangerous": (lambda value: isinstance(value, bool), "True or False", "True"),
    "needs": (_is_list(TOOL_NAME), "a list of names of tools", '["httpbin__get"]'),
}
# An earlier name.
SAME_OPTIONS = {"cost_per_use": "cost_usd"}
