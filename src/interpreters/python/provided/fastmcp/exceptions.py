"""Errors that functions raise."""


class FastMCPError(Exception):
    pass


class ToolError(FastMCPError):
    pass


class ValidationError(FastMCPError):
    pass
