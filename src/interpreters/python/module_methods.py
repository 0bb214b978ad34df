"""Tools that are methods: those of a class `Tools`, as Open WebUI has them, and the one method of a class for each tool, as
smolagents, LangChain and CrewAI have them."""

import ast
import inspect

from _sekisho_module_names import identifier_of

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# All public methods of it are tools.
TOOLKIT = "Tools"
# Which method of a subclass is the tool.
BASES = {
    "smolagents.Tool": "forward",
    "langchain_core.tools.BaseTool": "_run",
    "crewai.tools.BaseTool": "_run",
}
# What is read as a value, not called.
PROPERTIES = ("property", "cached_property", "setter", "deleter")
# What LangChain gives a method beside its arguments.
GIVEN_BY_LIBRARY = ("run_manager", "callbacks")
# The `response_format` of LangChain of which only the first value is the answer.
PAIR = "content_and_artifact"


class ClassTool:
    """A class that is one tool, with the name and the description that are written in it."""

    is_of_server = True
    is_enabled = True

    def __init__(self, node, names):
        self._values = values_of(node)
        self._names = names
        self._class = node.name

    def options(self):
        name, description = (self._literal(word) for word in ("name", "description"))
        fields = fields_of(self._values.get("args_schema"), self._names)
        options = {"name": identifier_of(name) or self._class, "described": self._described(), "fields": fields}
        options["is_pair"] = self._literal("response_format") == PAIR
        if isinstance(description, str) and description.strip():
            options["description"] = inspect.cleandoc(description)
        return options

    def _literal(self, word):
        return self._names.literal(self._values[word]) if word in self._values else None

    def _described(self):
        """The descriptions of arguments in `inputs` or `args_schema`."""
        inputs = self._literal("inputs")
        if isinstance(inputs, dict):
            texts = {name: entry.get("description") for name, entry in inputs.items() if isinstance(entry, dict)}
            return {name: text.strip() for name, text in texts.items() if isinstance(text, str)}
        return descriptions_of(self._values.get("args_schema"), self._names)


def methods_of(tree, names):
    """The methods that are tools, each with its class and its decorator, if it has one."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [method for method in node.body if isinstance(method, FUNCTIONS) and not _is_property(method, names)]
        if node.name == TOOLKIT and not node.bases:
            found.update({method: (node.name, None) for method in methods if not method.name.startswith("_")})
        # A module beside the file may have the name of a library.
        bases = [names.of(base) for base in node.bases if names.defined(base)[0] is None]
        called = next((BASES[base] for base in bases if base in BASES), None)
        found.update({method: (node.name, ClassTool(node, names)) for method in methods if method.name == called})
    return found


def _is_property(method, names):
    return any((names.of(made) or "").rpartition(".")[2] in PROPERTIES for made in method.decorator_list)


def values_of(node):
    """What is assigned to names in a class."""
    values = {}
    for line in node.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        if isinstance(line, (ast.Assign, ast.AnnAssign)) and line.value is not None and isinstance(targets[0], ast.Name):
            values[targets[0].id] = line.value
    return values


def fields_of(model, names):
    """The calls, such as of `Field`, in the fields of a model that an expression names, each with the names of its module."""
    found, _, node = names.defined(model) if model is not None else (None, None, None)
    if found is None or not isinstance(node, ast.ClassDef):
        return {}
    return {name: (found, value) for name, value in values_of(node).items() if isinstance(value, ast.Call)}


def descriptions_of(model, names):
    """The descriptions of the fields of a model that an expression names."""
    texts = {}
    for name, (found, call) in fields_of(model, names).items():
        word = next((word.value for word in call.keywords if word.arg == "description"), None)
        texts[name] = found.literal(word) if word is not None else None
    return {name: text.strip() for name, text in texts.items() if isinstance(text, str)}


def is_given(name):
    """Whether a parameter of a method is no argument of the tool: Open WebUI and LangChain give it."""
    return name.startswith("__") and name.endswith("__") or name in GIVEN_BY_LIBRARY


def function_of(module, path, settings):
    """The function of a module, or the method of a new instance of its class; None where there is none."""
    owner, _, name = path.rpartition(".")
    if not owner:
        return getattr(module, name, None)
    kind = getattr(module, owner, None)
    if not callable(getattr(kind, name, None)):
        return None
    made = kind()
    if owner == TOOLKIT and hasattr(kind, "Valves"):
        # What its users set there, an operator sets in the configuration.
        made.valves = kind.Valves(**settings)
    return getattr(made, name)


def given_to(function, path):
    """Values of the parameters of a method that have none: there is no chat here, whose events would be shown."""
    parameters = inspect.signature(function).parameters.values() if "." in path else ()
    wanted = [one.name for one in parameters if is_given(one.name) and one.default is one.empty]
    return {name: _ignore if name.startswith("__event_") else {} for name in wanted}


async def _ignore(_event):
    pass
