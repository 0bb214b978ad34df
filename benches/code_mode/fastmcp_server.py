"""A server of FastMCP, as it is without options: in code mode with one tool, or with a function as a tool: fastmcp_server.py PORT code|function"""
import pathlib
import sys

from fastmcp import FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode

sys.path.append(str(pathlib.Path(__file__).with_name("functions")))
from weather import frost


def calculator(expression: str) -> int:
    """Evaluates an expression."""
    return 1


if sys.argv[2] == "code":
    server = FastMCP("beside", transforms=[CodeMode()])
    server.tool(calculator)
else:
    server = FastMCP("beside")
    server.tool(frost)
server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="error")
