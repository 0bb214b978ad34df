"""The names of `typing_extensions` that the standard library has too."""

import typing
from typing import *  # noqa: F403

__all__ = typing.__all__


def __getattr__(name):
    return getattr(typing, name)
