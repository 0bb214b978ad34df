"""Reads which functions of a module are tools: names, descriptions, and schemas of what they take and return.

By the syntax tree alone: nothing of the module is executed. A function that cannot be a tool is a problem with its line, and
what to write instead; the others are tools all the same.
"""

import ast

from _sekisho_docstring import Docstring
from _sekisho_module_decorators import added_to_servers, decorator_of, given_to_libraries, is_server
from _sekisho_module_fields import constraints_of, default_of, field_of
from _sekisho_module_methods import TOOLKIT, is_given, methods_of
from _sekisho_module_names import Modules, Names, Problem
from _sekisho_module_types import Types, is_json

MAX_TOOLS = 200
# What gives a function the context of its call.
CONTEXTS = (
    "fastmcp.Context",
    "pydantic_ai.RunContext",
    "agents.RunContextWrapper",
    "google.adk.tools.ToolContext",
    "langchain_core.runnables.RunnableConfig",
)
# What marks an argument that the program around a tool gives, and no model.
INJECTED = ("langchain_core.tools.InjectedToolArg",)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What begins a scope of its own.
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
TOO_DEEP = "it is nested too deep to be read: write it in several steps"


def read(source, file, shared):
    """The tools of a module, and what is wrong: in it as a whole, where a problem names no function. `shared` has the sources
    of the modules beside it, by path."""
    try:
        tree = ast.parse(source.removeprefix("\ufeff"), file)
        modules = Modules(shared)
        used = modules.used_by(tree)
        return {**_Reader(tree, modules).found(), "shared": used}
    except SyntaxError as error:
        problem = {"line": error.lineno or 1, "message": f"{error.msg}: correct the Python here"}
    except (RecursionError, MemoryError):
        problem = {"line": 1, "message": TOO_DEEP}
    except Problem as error:
        problem = {"line": error.line, "message": error.message}
    except ValueError as error:
        problem = {"line": 1, "message": f"{error}: save it as UTF-8 text"}
    return {"tools": [], "problems": [problem], "shared": []}


class _Reader:
    def __init__(self, tree, modules):
        self._tree = tree
        self._names = Names(tree, modules)
        self._methods = methods_of(tree, self._names)
        self._added = added_to_servers(tree, self._names)
        self._given = given_to_libraries(tree, self._names)

    def found(self):
        tools, problems, lines = [], [], {}
        public = self._public()
        if "host.tool" in self._names.imported.values() or public is not None and TOOLKIT not in public:
            # A class with this name that is none of Open WebUI.
            self._methods = {method: of for method, of in self._methods.items() if of[1] is not None}
        functions = self._functions()
        decorators = [self._decorator(node) for node in functions]
        # As with FastMCP itself, the tools of a file with a server are what it decorates.
        is_written_for_another = any(made is not None and made.is_of_server for made in decorators)
        if is_written_for_another or self._methods or self._has_server():
            public = self._given
        for node, decorator in zip(functions, decorators):
            if not self._is_tool(node, decorator, public):
                continue
            try:
                same = [other.lineno for other in functions if self._path(other) == self._path(node)]
                if same[0] != node.lineno:
                    raise Problem(node, f"line {same[0]} defines `{node.name}` already: rename one")
                tool = self._tool(node, decorator)
                first = lines.setdefault(tool["name"], node.lineno)
                if first != node.lineno:
                    raise Problem(node, f"line {first} has a tool with the name `{tool['name']}` already: rename one")
                # Python has the last of several functions of one name.
                if len(same) == 1:
                    tools.append(tool)
            except Problem as problem:
                problems.append({"function": node.name, "line": problem.line, "message": problem.message})
            except RecursionError:
                problems.append({"function": node.name, "line": node.lineno, "message": TOO_DEEP})
        if len(tools) > MAX_TOOLS:
            raise Problem(self._tree, f"it has {len(tools)} tools, and a file may have {MAX_TOOLS}: write several files")
        if not tools and not problems:
            raise Problem(self._tree, "it has no function with annotations: write def NAME(x: int) -> int: …")
        return {"tools": tools, "problems": problems}

    def _functions(self):
        functions = [node for node in self._tree.body if isinstance(node, FUNCTIONS) and not self._is_overload(node)]
        return [*functions, *self._methods]

    def _decorator(self, node):
        if node in self._methods:
            return self._methods[node][1]
        return decorator_of(node, self._names) or self._added.get(node.name)

    def _path(self, node):
        """`NAME`, or `CLASS.NAME` of a method."""
        return f"{self._methods[node][0]}.{node.name}" if node in self._methods else node.name

    def _is_overload(self, node):
        return any(self._names.of(made) == "typing.overload" for made in node.decorator_list)

    def _public(self):
        """The names of `__all__`; None where there is none."""
        listed = self._names.aliases.get("__all__")
        try:
            names = ast.literal_eval(listed) if listed is not None else None
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise Problem(listed, "`__all__` is not written out: write a list of names") from None
        if names is not None and not (isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)):
            raise Problem(listed, "`__all__` is no list of names: write one")
        return names

    def _has_server(self):
        return any(is_server(value, self._names) for value in self._names.aliases.values())

    def _is_tool(self, node, decorator, public):
        if decorator is not None:
            return decorator.is_enabled
        is_public = node.name in public if public is not None else node.name in self._given or not node.name.startswith("_")
        taken = node.args
        every = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, taken.vararg, taken.kwarg]
        is_annotated = node.returns is not None or any(one is not None and one.annotation for one in every)
        return is_annotated and (is_public or node in self._methods)

    def _tool(self, node, decorator):
        options = dict(self._given.get(node.name, {})) if decorator is None else decorator.options()
        if node.name.startswith("_") and node not in self._methods:
            raise Problem(node, f"`{node.name}` is private: call it {node.name.lstrip('_') or 'something'}")
        if _yields(node):
            raise Problem(node, f"`{node.name}` yields, and a tool returns one value: return a list")
        documentation = Docstring(ast.get_docstring(node, clean=False))
        for name, text in options.pop("described", {}).items():
            documentation.parameters.setdefault(name, text)
        types = Types(self._names)
        parameters = self._parameters(node, types, documentation, options.pop("excluded", ()))
        constrained = _constrained(parameters["properties"], options.pop("fields", {}))
        parameters["properties"].update(constrained)
        output = self._output(node, documentation, options.pop("is_pair", False))
        return {
            "function": self._path(node),
            "line": node.lineno,
            "description": documentation.description or node.name.replace("_", " ").capitalize(),
            "parameters": parameters,
            "output": output,
            "converts": types.converts,
            **options,
            "name": options.get("name", node.name),
        }

    def _output(self, node, documentation, is_pair):
        returned = self._first_of(node.returns) if is_pair else node.returns
        if returned is None:
            return None
        types = Types(self._names)
        output = types.schema(returned)
        if documentation.result:
            output.setdefault("description", documentation.result)
        if not types.definitions:
            return output
        if "$ref" in output:
            output = {**types.definitions[output.pop("$ref").removeprefix("#/$defs/")], **output}
        return {**output, "$defs": types.definitions}

    def _first_of(self, pair):
        """The type of the first value of a pair; None where it is not written."""
        if not isinstance(pair, ast.Subscript) or not isinstance(pair.slice, ast.Tuple) or not pair.slice.elts:
            return None
        return pair.slice.elts[0] if self._names.of(pair.value) in ("tuple", "typing.Tuple") else None

    def _parameters(self, node, types, documentation, excluded):
        taken = node.args
        if taken.posonlyargs:
            raise Problem(node, f"`{node.name}` has parameters before `/`, and arguments have names: leave out the `/`")
        if taken.vararg:
            raise Problem(taken.vararg, f"`*{taken.vararg.arg}` has no name for each value: write {taken.vararg.arg}: list[…]")
        if taken.kwarg:
            raise Problem(taken.kwarg, f"`**{taken.kwarg.arg}` takes any name: write {taken.kwarg.arg}: dict[str, …]")
        properties, required = {}, []
        defaults = [None] * (len(taken.args) - len(taken.defaults)) + taken.defaults + taken.kw_defaults
        of_instance = 1 if node in self._methods and not self._is_static(node) else 0
        for parameter, default in [*zip([*taken.args, *taken.kwonlyargs], defaults)][of_instance:]:
            if parameter.arg in excluded and default is not None or node in self._methods and is_given(parameter.arg):
                continue
            # The library gives a function its context.
            if _mentions(CONTEXTS, parameter.annotation, self._names):
                types.converts = True
                continue
            if _mentions(INJECTED, parameter.annotation, self._names):
                if default is None:
                    advice = f"write a default for `{parameter.arg}`, or take it from host.settings"
                    raise Problem(parameter, f"nothing injects `{parameter.arg}` here, and a model must not choose it: {advice}")
                continue
            field = field_of(default, self._names)
            has_default, value = (default is not None, ...) if field is None else default_of(field, self._names)
            properties[parameter.arg] = self._parameter(parameter, (default, field, value), types, documentation)
            if not has_default:
                required.append(parameter.arg)
        needed = {"required": required} if required else {}
        definitions = {"$defs": types.definitions} if types.definitions else {}
        return {"type": "object", "properties": properties, **needed, "additionalProperties": False, **definitions}

    def _is_static(self, node):
        return any(self._names.of(made) == "staticmethod" for made in node.decorator_list)

    def _parameter(self, parameter, given, types, documentation):
        name, (default, field, value) = parameter.arg, given
        if parameter.annotation is None:
            raise Problem(parameter, f"`{name}` has no annotation: write {name}: {self._type_of(default)}")
        schema = types.schema(parameter.annotation)
        if field is not None:
            types.converts = True
            schema = constraints_of(field, self._names).added_to(schema)
        described = documentation.parameters.get(name)
        may_describe = field is not None or _is_annotated(parameter.annotation, self._names)
        if described and not (may_describe and "description" in schema):
            schema["description"] = described
        if field is None and default is not None:
            value = self._names.literal(default)
        if is_json(value) and (value is not None or _admits_null(schema)):
            schema["default"] = value
        return schema

    def _type_of(self, default):
        """What a parameter with this default may be annotated with."""
        value = self._names.literal(default) if default is not None else ...
        return type(value).__name__ if is_json(value) and value is not None else "str"


def _constrained(properties, fields):
    """The schemas of arguments with the constraints that a model of them has: the library checks them."""
    known = {name: field for name, field in fields.items() if name in properties and field_of(field[1], field[0]) is not None}
    constraints = {name: constraints_of(call, found) for name, (found, call) in known.items()}
    return {name: {**added.added_to(properties[name]), **properties[name]} for name, added in constraints.items()}


def _mentions(known, annotation, names):
    return annotation is not None and any(names.of(node) in known for node in ast.walk(annotation))


def _is_annotated(node, names):
    return isinstance(node, ast.Subscript) and names.of(node.value) == "typing.Annotated"


def _admits_null(schema):
    kinds = schema.get("type")
    if kinds is None and not {"anyOf", "enum"} & set(schema):
        return True
    listed = kinds if isinstance(kinds, list) else [kinds]
    return "null" in listed or None in schema.get("enum", ()) or any(map(_admits_null, schema.get("anyOf", ())))


def _yields(function):
    """Whether it is a generator: whether it yields outside of inner functions."""
    left = list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, SCOPES):
            left.extend(ast.iter_child_nodes(node))
    return False
