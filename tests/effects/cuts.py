"""Gold calls whose gateway and upstream are killed between effect and answer, and that are sent again."""
import collections
import contextlib
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mcp"))
from gateway import Gateway  # noqa: E402
from upstream import NAME, reader_of  # noqa: E402

# Every so many points, they are killed before the effect: then the call must be made when it is sent again.
BEFORE_EACH = 5
# Seconds of a tool, after which a call without an effect was not made.
TOOL_TIMEOUT = 2
# Seconds until a call that is sent again has its answer.
ANSWER_TIMEOUT = 30
NO_LIMIT = 1_000_000_000
# Its own rate is less than what a part of the suite makes in a minute.
PYTHON = {"python_executor": {"rate_limit": NO_LIMIT}}


class Pair:
    """Gateway and upstream, which are killed together and started again on the same state; `further` topics of its configuration."""

    def __init__(self, program, folder, store, names, keys="", **further):
        self.keys = keys
        self.program, self.folder, self.tools = program, folder, names
        self.journal, self.cut = folder / "journal", folder / "cut"
        # The same after each start: a tool at another address is another tool.
        self.port = 0
        self.settings = {
            "store": {"url": store} if store else {},
            "secrets": {"key": "0a" * 32},
            "session": {"record_effects": True},
            "limits": {name: NO_LIMIT for name in ("mcp_tool_rate_limit", "caller_rate_limit", "tenant_rate_limit")},
            "tools": {"overrides": {f"{NAME}__{tool}": overrides(tool) for tool in names} | PYTHON},
            **further,
        }
        self.start()

    def start(self):
        command = [sys.executable, pathlib.Path(__file__).with_name("upstream.py"), self.journal, self.cut, str(self.port), *self.tools]
        self.upstream = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.upstream.stdout.readline())
        url = f"http://127.0.0.1:{self.port}/{NAME}"
        settings = {**self.settings, "mcp": {"servers": {NAME: {"url": url, "share": "all"}}}}
        # Each line is YAML, a superset of JSON.
        yaml = "".join(f"{topic}: {json.dumps(value)}\n" for topic, value in settings.items())
        self.gateway = Gateway(self.program, self.folder, {}, yaml=yaml, keys=self.keys)
        expected = {f"{NAME}__{tool}" for tool in self.tools}
        self.gateway.until(lambda: expected <= set(self.gateway.tools()), 60, "all tools are listed")

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        for process in (self.gateway.process, self.upstream):
            process.kill()
            process.wait()
        self.upstream.stdout.close()
        self.gateway.log.close()

    def call(self, tool, arguments, session):
        """The reply, or nothing where the gateway was killed."""
        body = {"tool_name": f"{NAME}__{tool}", "parameters": arguments, "session_context": {"session_id": session}}
        with contextlib.suppress(http.client.HTTPException, ConnectionError):
            connection, response = self.gateway.request("POST", "/tools/execute", body)
            with contextlib.closing(connection):
                return json.loads(response.read())
        return None

    def effects(self):
        return self.journal.read_text().count("\n") if self.journal.exists() else 0


def overrides(tool):
    return {"found_by": f"{NAME}__{reader_of(tool)}", "timeout_seconds": TOOL_TIMEOUT}


def play(pair, number, tool, arguments, when):
    """The counts of a call that is cut and sent again."""
    session = f"point-{number}"
    pair.journal.unlink(missing_ok=True)
    pair.cut.write_text(f"{when} {pair.gateway.process.pid}")
    if (reply := pair.call(tool, arguments, session)) is not None:
        raise AssertionError(f"{tool}: it was not cut: {reply}")
    pair.restart()
    end = time.monotonic() + ANSWER_TIMEOUT
    while True:
        reply = pair.call(tool, arguments, session) or {"success": False, "error_info": {"code": "no answer"}}
        code = (reply.get("error_info") or {}).get("code")
        wait = (reply.get("error_info") or {}).get("retry_after_ms")
        if code != "unknown_outcome" or wait is None or time.monotonic() > end:
            break
        time.sleep(wait / 1000)
    effects = pair.effects()
    counts = {
        "calls": 1,
        "unknown": 1,
        "resolved": int(reply["success"]),
        "duplicated": int(effects > 1),
        "lost": int(reply["success"] and effects == 0),
        "wrongly_failed": int(not reply["success"] and code != "unknown_outcome"),
    }
    if counts["duplicated"] or counts["lost"] or not reply["success"]:
        print(f"{when} {tool} {json.dumps(arguments)}: {effects} effects, {code}: {reply.get('error')}", file=sys.stderr)
    return counts


def chosen(entries, points):
    """So many entries, spread over all of them."""
    step = max(1, len(entries) // points) if points else 1
    return entries[::step][:points]


def counts(program, sources, points, stores):
    """The sums over all stores; `points` of each data set, or all."""
    total = collections.Counter()
    for place, store in stores.items():
        calls = [call for tasks in sources for call in chosen([call for task in tasks for call in task], points)]
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(program, pathlib.Path(folder), store, sorted({tool for tool, _ in calls}))
            try:
                for number, (tool, arguments) in enumerate(calls):
                    when = "before" if number % BEFORE_EACH == BEFORE_EACH - 1 else "after"
                    total.update(play(pair, number, tool, arguments, when))
                    if number % 50 == 49:
                        print(f"{place}: {number + 1} of {len(calls)}", file=sys.stderr, flush=True)
            finally:
                pair.stop()
        print(f"{place}: {dict(total)}", file=sys.stderr, flush=True)
    return total
