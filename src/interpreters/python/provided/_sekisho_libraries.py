"""What the parts of several libraries have in common here: their decorators change nothing, since the gateway offers the functions
themselves."""

import functools
import inspect
import sys

# What a function of LangChain says that returns the answer, and further data for the program around it.
PAIR = "content_and_artifact"


def tool(*positional, response_format=None, **_options):
    """`@tool`, `@tool(…)` and `@tool("name", …)`."""
    decorator = content_of if response_format == PAIR else unchanged
    return decorator(positional[0]) if positional and callable(positional[0]) else decorator


def unchanged(function):
    return function


def content_of(function):
    """The function with the first of its two values: nothing here takes the other."""

    @functools.wraps(function)
    def content(*positional, **named):
        return function(*positional, **named)[0]

    @functools.wraps(function)
    async def content_later(*positional, **named):
        return (await function(*positional, **named))[0]

    return content_later if inspect.iscoroutinefunction(function) else content


class Made:
    """What a file makes of its functions for the library: agents, tools, sets of tools. It does nothing here."""

    def __init__(self, *_positional, **_named):
        pass


class FunctionTool(Made):
    """A tool that a file makes of a function."""

    @classmethod
    def from_function(cls, *positional, **named):
        return cls(*positional, **named)

    from_defaults = from_function


class BaseTool(Made):
    """A subclass is a tool: one of its methods is called. It may have fields, as the models have that these classes are elsewhere."""

    def __init_subclass__(cls, **named):
        super().__init_subclass__(**named)
        if vars(cls).get("response_format") == PAIR and "_run" in vars(cls):
            cls._run = content_of(cls._run)

    def __init__(self, **named):
        self.__dict__.update(_defaults_of(type(self)), **named)


def _defaults_of(kind):
    """The values of `Field(…)` and `PrivateAttr(…)` in a class."""
    pydantic = sys.modules.get("pydantic.fields")
    if pydantic is None:
        return {}
    written = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    fields = {name: value.info for name, value in written.items() if isinstance(value, pydantic.Private)}
    fields |= {name: value for name, value in written.items() if isinstance(value, pydantic.FieldInfo)}
    return {name: field.default_value() for name, field in fields.items() if not field.is_required()}


class CallContext:
    """What a function is given of the call. There is no run of an agent here, and nothing that belongs to one."""

    def __class_getitem__(cls, _types):
        return cls

    def __getattr__(self, name):
        raise AttributeError(f"there is no `{name}` of a context here: take it as an argument, or from host.settings")


def without(library, names):
    """The `__getattr__` of a module that has some names of a library."""

    def missing(name):
        # Python asks for some of these itself.
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"the part of {library} that this interpreter has is without `{name}`: it has {', '.join(names)}")

    return missing
