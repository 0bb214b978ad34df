"""The constraints of `annotated_types`, as this interpreter checks them."""

from pydantic.fields import FieldInfo

__all__ = ["Ge", "Gt", "Interval", "Le", "Len", "Lt", "MaxLen", "MinLen", "MultipleOf"]


def Gt(gt):
    return FieldInfo(gt=gt)


def Ge(ge):
    return FieldInfo(ge=ge)


def Lt(lt):
    return FieldInfo(lt=lt)


def Le(le):
    return FieldInfo(le=le)


def Interval(**bounds):
    return FieldInfo(**bounds)


def MultipleOf(multiple_of):
    return FieldInfo(multiple_of=multiple_of)


def MinLen(min_length):
    return FieldInfo(min_length=min_length)


def MaxLen(max_length):
    return FieldInfo(max_length=max_length)


def Len(min_length=0, max_length=None):
    return FieldInfo(min_length=min_length, max_length=max_length)
