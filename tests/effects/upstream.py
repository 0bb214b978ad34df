"""An MCP server in a process of its own, whose tools have effects: each call adds a line to a journal. Beside each tool is one that lists its
lines. It prints its port.

upstream.py JOURNAL CUT PORT TOOL...: PORT is 0 for a free one. Where the file CUT is there, it says `before` or `after` and the id of the
gateway's process: the next call kills that process and this one before its effect, or after it and before the answer
"""
import datetime
import json
import os
import pathlib
import signal
import sys
import threading
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "flow"))
from mcp_server import McpServer  # noqa: E402

NAME = "effects"
# No tool of the data sets begins so.
READER = "list_effects_of_"


def reader_of(tool):
    return f"{READER}{tool}"


def listed(tool):
    """A tool with an effect, and the one that lists its effects."""
    return [
        {"name": tool, "description": "Has an effect.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False}},
        {
            "name": reader_of(tool),
            "description": f"Lists the effects of {tool}.",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": True},
        },
    ]


class Upstream:
    def __init__(self, journal, cut):
        self.journal, self.cut, self.lock = pathlib.Path(journal), pathlib.Path(cut), threading.Lock()

    def answer(self, _number, name, arguments):
        with self.lock:
            if name.startswith(READER):
                return json.dumps({"items": [one for one in self.effects() if reader_of(one["of_tool"]) == name]}), False
            when, gateway = self.cut.read_text().split() if self.cut.exists() else (None, None)
            self.cut.unlink(missing_ok=True)
            if when == "before":
                kill(int(gateway))
            moment = datetime.datetime.now(datetime.timezone.utc).isoformat()
            # With names that no argument has: a member of an argument's name is compared with it alone.
            effect = {"effect_id": str(uuid.uuid4()), "of_tool": name, "arguments": arguments, "created_at": moment}
            with self.journal.open("a") as journal:
                journal.write(json.dumps(effect) + "\n")
            if when == "after":
                kill(int(gateway))
            return json.dumps(effect), False

    def effects(self):
        return [json.loads(line) for line in self.journal.read_text().splitlines()] if self.journal.exists() else []


def kill(gateway):
    os.kill(gateway, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    journal, cut, port, *tools = sys.argv[1:]
    server = McpServer({NAME: [one for tool in tools for one in listed(tool)]}, Upstream(journal, cut).answer, int(port))
    print(server.server_port, flush=True)
    threading.Event().wait()
