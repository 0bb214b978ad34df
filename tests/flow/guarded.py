"""A gateway with `policy.flow: enforce` for the tests in Python, tenants that call its tools in sessions, and an approver."""
import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import pathlib
import sys
import tempfile
import time

from mcp_server import trace_parent

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/mcp"))
from gateway import Gateway  # noqa: E402

APPROVER = "key-of-the-approver"
NO_LIMIT = 1_000_000_000
# Seconds between two lines of progress.
PROGRESS = 10
# What the gateway answers in place of a call because of where a value came from.
ASKED, REFUSED = "approval_required", "denied"


class Failure(Exception):
    """An answer that no test expects."""


@dataclasses.dataclass(frozen=True)
class Reply:
    """`code` is that of an error. `text` is what a model reads: of the tool, or why the call was not made."""

    code: str | None
    text: str
    approval: str | None

    @property
    def is_disputed(self):
        return self.code in (ASKED, REFUSED)


class Client:
    """One connection to the gateway."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, path, body, key, headers={}):
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **headers}
        self.connection.request("POST", path, json.dumps(body), headers)
        return json.loads(self.connection.getresponse().read())

    def decide(self, approval, decision):
        reply = self.ask(f"/approvals/{approval}/{decision}", {"reason": "of a test"}, APPROVER)
        if "error_info" in reply:
            raise Failure(f"approval {approval}: {reply['error']}")


class Session:
    """A session of a tenant, with the text of its user."""

    def __init__(self, client, tenant, name, user_text):
        self.client, self.key = client, key_of(tenant)
        self.context = {"session_id": name, "user_text": user_text}

    def call(self, tool, arguments, number, approval=None):
        """`number` reaches the server: see mcp_server.py."""
        body = {"tool_name": tool, "parameters": arguments, "session_context": self.context}
        headers = {"traceparent": trace_parent(number), **({"X-Approval-Id": approval} if approval else {})}
        reply = self.client.ask("/tools/execute", body, self.key, headers)
        error = reply.get("error_info") or {}
        code = error.get("code")
        if code not in (None, "tool_error", ASKED, REFUSED):
            raise Failure(f"{tool} {json.dumps(arguments)}: {code}: {reply.get('error')}")
        text = reply["error"] if code else reply.get("text") or ""
        return Reply(code, text, (error.get("approval") or {}).get("id"))

    def approved(self, tool, arguments, number, approval):
        """Approves a call, and makes it."""
        self.client.decide(approval, "approve")
        reply = self.call(tool, arguments, number, approval)
        if reply.is_disputed:
            raise Failure(f"{tool} {json.dumps(arguments)}: it was approved, and is not made: {reply.text}")
        return reply


def key_of(tenant):
    return f"key-of-{tenant}"


@contextlib.contextmanager
def guarded(program, server, tenants):
    """The port of a gateway for these tenants, which offers the tools of `server`."""
    settings = {
        "policy": {"flow": "enforce"},
        "limits": {"mcp_tool_rate_limit": NO_LIMIT, "caller_rate_limit": NO_LIMIT, "tenant_rate_limit": NO_LIMIT},
        "budget": {"max_tokens_per_request": NO_LIMIT, "max_cost_per_request": NO_LIMIT},
        "mcp": server.settings(),
    }
    keys = [{"id": f"caller-of-{tenant}", "tenant": tenant, "key": key_of(tenant), "roles": ["operator"]} for tenant in tenants]
    # As an administrator of the tenant `default`, of all tenants.
    keys.append({"id": "approver", "key": APPROVER, "roles": ["approver", "admin"]})
    expected = {f"{prefix}__{tool['name']}" for prefix, tools in server.tools.items() for tool in tools}
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(
            program,
            pathlib.Path(folder),
            {},
            # Each line is YAML, a superset of JSON.
            yaml="".join(f"{topic}: {json.dumps(value)}\n" for topic, value in settings.items()),
            keys="".join(f", {json.dumps(key)}" for key in keys),
        )
        try:
            gateway.until(lambda: expected <= set(gateway.tools()), 60, "all tools are listed")
            yield gateway.port
            gateway.stop()
        finally:
            if gateway.process.poll() is None:
                gateway.process.kill()


def play_all(count, workers, play, progress=lambda: ""):
    """Plays all runs, some at once, by `play(index)`; the failures of those that could not be played to the end."""
    begun = said = time.monotonic()
    failures = []
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        played = [pool.submit(play, index) for index in range(count)]
        try:
            for done, one in enumerate(concurrent.futures.as_completed(played), 1):
                try:
                    one.result()
                except Failure as failure:
                    failures.append(str(failure))
                if time.monotonic() - said >= PROGRESS or done == count:
                    said = time.monotonic()
                    print(f"{done} of {count} runs{progress()}, {said - begun:.0f} s", file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return failures


def end(failures):
    """Ends the program: with a failure if a run could not be played to the end."""
    if failures:
        sys.exit("\n".join([f"{len(failures)} runs could not be played to the end:", *failures[:10]]))
