"""`dataclass` of pydantic: here the standard library's. Values are checked where a function gets one from JSON."""

from dataclasses import dataclass

__all__ = ["dataclass"]
