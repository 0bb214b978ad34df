"""Programs that propose their effects: what differs from an approved list does not pass."""
import contextlib
import json
import pathlib
import random
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/mcp"), str(ROOT / "examples/propose")]
from cuts import PYTHON, Pair, chosen  # noqa: E402
from gateway import Gateway  # noqa: E402
from shop import Shop  # noqa: E402
from upstream import NAME  # noqa: E402

MUTATIONS = 1_000
# Of the first data set, each as a program.
TASKS = 50
KEYS = """, {id: ann, key: key-of-ann, tenant: acme}, {id: bob, key: key-of-bob, tenant: acme}, {id: far, key: key-of-far, tenant: far},
{id: ann, key: key-of-other-ann, tenant: far}, {id: boss, key: key-of-boss, tenant: acme, roles: [approver]}"""
PROGRAM = """from host import tools
tea = tools.shop__get_article(name="tea")
first = tools.shop__create_order(article="tea", quantity=2, price=tea["price"])
second = tools.shop__create_order(article="sugar", quantity=1, price=1)
tools.shop__pay(order=first["id"], note="for tea")
"""
# In the place of a part of the program. Each gives another list.
TEXTS = {
    "argument": [("quantity=2", "quantity={n}"), ("price=1)", "price={n})"), ("for tea", "for tea {n}")],
    "order": [("first = ", "tools.shop__pay(order=1, note='{n}')\nfirst = ")],
    "extra call": [("tools.shop__pay", "tools.shop__create_order(article='a{n}', quantity=1, price=1)\ntools.shop__pay")],
    "removed call": [('second = tools.shop__create_order(article="sugar", quantity=1, price=1)', "second = {n}")],
    "program": [("from host", "# {n}\nfrom host")],
    "other read": [('name="tea"', 'name="tea{n}"')],
}
# The shop of the gateway that this file has started.
shop = None


class Asked:
    """Requests with a key. Nothing here is behind a proxy."""

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __init__(self, base_url, key):
        self.base_url, self.key = base_url, key

    def send(self, path, body=None, method=None, **headers):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.base_url + path, data, headers, method=method)
        try:
            with self.opener.open(request, timeout=120) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def propose(self, code, **headers):
        return self.send("/tools/python_executor/execute", {"arguments": {"code": code, "mode": "propose"}}, **headers)

    def resume(self, run):
        return self.send(f"/runs/{run}/resume", {})


def approved(caller, approver, code=PROGRAM):
    """The run and the approval of a program whose effects are approved."""
    reply = caller.propose(code)
    info = reply.get("error_info") or {}
    assert info.get("code") == "approval_required" and info.get("run"), reply
    approve(approver, info["approval"]["id"])
    return info["run"], info["approval"]["id"]


def approve(approver, approval):
    decided = approver.send(f"/approvals/{approval}/approve", {})
    assert decided.get("status") == "approved", decided


def mutations(base_url, key, approver="key-of-boss", others=("key-of-bob", "key-of-far", "key-of-other-ann")):
    """How many attempts were made that differ from an approved list or come from somebody else, and how many passed: had an effect, or
    were answered as a success. The gateway is one that `started` has started."""
    caller, boss, draw = Asked(base_url, key), Asked(base_url, approver), random.Random(7)
    run, approval = approved(caller, boss)
    count = passed = 0

    def attempt(ask):
        nonlocal count, passed
        before = len(shop.effects)
        reply = ask()
        count += 1
        passed += bool(reply.get("success")) or len(shop.effects) != before

    for number in range(MUTATIONS - 20):
        kind = [*TEXTS, "caller", "resumes"][number % (len(TEXTS) + 2)]
        other = Asked(base_url, draw.choice(others))
        headers = {"X-Approval-Id": approval}
        if kind == "caller":
            attempt(lambda: other.propose(PROGRAM, **headers))
        elif kind == "resumes":
            attempt(lambda: other.resume(run))
        else:
            old, new = draw.choice(TEXTS[kind])
            code = PROGRAM.replace(old, new.format(n=100 + number))
            assert code != PROGRAM
            attempt(lambda: caller.propose(code, **headers))
    for _ in range(20):
        # Somebody approves each new list, and the read changes again before it is committed.
        shop.price += 1
        reply = {}

        def resumed():
            reply.update(caller.resume(run))
            return reply

        attempt(resumed)
        approve(boss, reply["error_info"]["approval"]["id"])
    # As it was approved, it passes, and once.
    before = len(shop.effects)
    assert caller.resume(run)["success"] and len(shop.effects) == before + 3, "the approved list passes"
    attempt(lambda: caller.resume(run))
    return count, passed


@contextlib.contextmanager
def started(program):
    """A gateway with a shop: its address, and the key of a caller."""
    global shop
    shop = Shop(0)
    yaml = f"""openapi:
  collections:
    shop: {{spec_file: '{ROOT}/examples/propose/shop.openapi.yaml', base_url: 'http://127.0.0.1:{shop.port}', allow_networks: [127.0.0.1/32]}}
tools: {{overrides: {{python_executor: {{rate_limit: 100000000}}, shop__get_article: {{rate_limit: 100000000}}}}}}"""
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(program, pathlib.Path(folder), {}, yaml=yaml, keys=KEYS)
        try:
            gateway.until(lambda: gateway.call("python_executor", {"code": ""})["success"], 120, "the interpreter is ready")
            yield f"http://127.0.0.1:{gateway.port}", "key-of-ann"
            gateway.stop()
        finally:
            if gateway.process.poll() is None:
                gateway.process.kill()
            shop.server.shutdown()


def golds(pair, tasks):
    """How many prompts the tasks need in all, each as a program that proposes its calls."""
    base_url = f"http://127.0.0.1:{pair.gateway.port}"
    caller, boss, prompts = Asked(base_url, "key-of-ann"), Asked(base_url, "key-of-boss"), 0
    pair.gateway.until(lambda: pair.gateway.call("python_executor", {"code": ""})["success"], 120, "the interpreter is ready")
    for calls in tasks:
        lines = [f"tools[{f'{NAME}__{tool}'!r}](**{arguments!r})\n" for tool, arguments in calls]
        reply, asked = caller.propose("from host import tools\n" + "".join(lines)), 0
        while (reply.get("error_info") or {}).get("code") == "approval_required":
            info = reply["error_info"]
            asked += 1
            approve(boss, info["approval"]["id"])
            reply = caller.resume(info["run"])
        assert reply["success"], reply
        assert asked <= 1, f"{asked} prompts for {calls}"
        prompts += asked
    return prompts


def prompts(program, tasks):
    """Prints how many prompts the tasks need, whose tools all ask for approval."""
    tools = sorted({tool for calls in tasks for tool, _ in calls})
    overrides = {f"{NAME}__{tool}": {"approval": "always"} for tool in tools} | PYTHON
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(program, pathlib.Path(folder), None, tools, keys=KEYS, tools={"overrides": overrides})
        try:
            before = pair.effects()
            count = golds(pair, tasks)
            calls = sum(map(len, tasks))
            assert pair.effects() - before == calls, "each call has one effect"
        finally:
            pair.stop()
    print(f"prompts: {count} for {len(tasks)} tasks with {calls} calls that ask for approval")


def counts(program, sources):
    """For `scripts/effects`."""
    prompts(program, chosen(sources[0], TASKS))
    with started(program) as (base_url, key):
        count, passed = mutations(base_url, key)
    return {"mutations": count, "mutations_passed": passed}
