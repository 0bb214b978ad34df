"""A part of pydantic 2 for this interpreter, which has no native code of others: models, `Field`, validators and the types that
functions and their tools are written with. The page about Python tools lists what it has."""

from .errors import ValidationError
from .fields import (
    UUID4,
    AfterValidator,
    AnyHttpUrl,
    AnyUrl,
    BeforeValidator,
    ConfigDict,
    EmailStr,
    Field,
    HttpUrl,
    NegativeFloat,
    NegativeInt,
    NonNegativeFloat,
    NonNegativeInt,
    NonPositiveFloat,
    NonPositiveInt,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
    computed_field,
    confloat,
    conint,
    conlist,
    constr,
    field_serializer,
    field_validator,
    model_validator,
)
from .main import BaseModel, TypeAdapter, ValidationInfo

VERSION = "2"
__version__ = VERSION
__all__ = [name for name in dir() if name[0].isupper() or name.startswith(("con", "field_", "model_", "computed_"))]


def __getattr__(name):
    # Python asks for some of these itself.
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(f"the part of pydantic that this interpreter has is without `{name}`: it has {', '.join(sorted(__all__))}")
