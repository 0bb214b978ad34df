"""A server of FastMCP in code mode, as it is without options, with one tool: fastmcp_server.py PORT"""
import sys

from fastmcp import FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode

server = FastMCP("beside", transforms=[CodeMode()])


@server.tool
def calculator(expression: str) -> int:
    """Evaluates an expression."""
    return 1


server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="error")
