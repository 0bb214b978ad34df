"""Runs cases against a gateway: one start of it for the cases that need the same servers and configuration."""
import concurrent.futures, contextlib, dataclasses, json, pathlib, threading, time

from checks import Failed, all_checks
from client import Client, normal
from odd import all_servers
from server import Servers

FOLDER = pathlib.Path(__file__).parent
GROUPS = ["fidelity", "tolerance", "faults", "sharing", "control", "injection", "operations", "cost"]
# A case that ends nothing by itself is given up after this many seconds.
MAX_SECONDS = 90
MAX_COST_SECONDS = 600


@dataclasses.dataclass
class Verdict:
    """`passed`, `failed`, `not offered` or `not run`, and why; for `cost`, `measured` with its values."""

    group: str
    case: str
    verdict: str
    detail: str = ""
    seconds: float = 0.0
    values: dict = dataclasses.field(default_factory=dict)


def cases_of(group):
    cases = json.loads((FOLDER / "cases" / f"{group}.json").read_text())
    return [{"servers": ["plain"], "needs": [], "configuration": "default", **case, "group": group} for case in cases]


# Cases that leave the gateway or the server other than it was; and each fault, so that a gateway that it breaks fails that case only.
ALONE = {"drain", "start-again", "reload", "changed-description", "changed-schema", "added-tool", "rate-parallel", "rate-own", "money-parallel",
         "approval-first", "approval-exact", "flood", "end-own", "memory", "processor", "first-call", *(case["id"] for case in cases_of("faults"))}


def all_cases(groups=GROUPS):
    return [case for group in groups for case in cases_of(group)]


def declared(capabilities, path):
    for name in path.split("."):
        capabilities = capabilities.get(name) if isinstance(capabilities, dict) else None
    return capabilities is not None and capabilities is not False


class Run:
    """What a check uses: clients of the gateway, and the servers behind it."""

    def __init__(self, case, gateway, servers):
        self.case, self.gateway, self.servers = case, gateway, servers
        self.clients = []

    def client(self, user="alice", **options):
        """A session with its standing stream, as clients have it; a gateway may have none."""
        client = Client(self.gateway.url, self.gateway.users.get(user, {}), **options).initialize()
        self.clients.append(client)
        return client.listen() if options.get("answers") else client

    def server(self, name=None):
        return self.servers.servers[name or self.case["servers"][0]]

    def undeclared(self):
        """Whether the gateway does not declare the capability of the case, to clients or (`client.`) to the server: nobody then counts on it."""
        path = self.case.get("declares", "")
        to_server = path.startswith("client.")
        known = self.server().introduced if to_server else [client.server.get("capabilities", {}) for client in self.clients if client.server]
        if not path or not known or any(declared(capabilities, path.removeprefix("client.")) for capabilities in known):
            return ""
        return f"it does not declare {path.removeprefix('client.')} to {'servers' if to_server else 'clients'}"

    def background(self, call):
        """Runs it beside the check; the future of its outcome. Nothing waits for it when the check has ended."""
        future = concurrent.futures.Future()

        def run():
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def close(self):
        for client in self.clients:
            client.end()


def judge(case, gateway, servers):
    """The verdict of a case on a running gateway."""
    begun, outcome, values = time.monotonic(), [], {}
    for server in servers.servers.values():
        with server.lock:
            server.record = []
    run = Run(case, gateway, servers)

    def check():
        try:
            values.update(all_checks()[case["check"]](run) or {})
            outcome.append(("measured" if values else "passed", ""))
        except Failed as failed:
            undeclared = run.undeclared()
            outcome.append(("not offered", undeclared) if undeclared else ("failed", str(failed)))
        except Exception as error:
            # A message of another form than the protocol's, for instance.
            outcome.append(("failed", f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=check, daemon=True)
    thread.start()
    seconds = MAX_SECONDS if case["group"] != "cost" else MAX_COST_SECONDS
    thread.join(seconds)
    verdict, detail = outcome[0] if outcome else ("failed", f"it had not ended after {seconds} s")
    with contextlib.suppress(Exception):
        threading.Thread(target=run.close, daemon=True).start()
    return Verdict(case["group"], case["id"], verdict, " ".join(detail.split())[:600], round(time.monotonic() - begun, 2), values)


def batches(cases):
    """Lists of cases that share a start: the same servers and configuration."""
    shared = {}
    for case in cases:
        key = (case["group"], tuple(case["servers"]), case["configuration"], case["id"] if case["id"] in ALONE else "")
        shared.setdefault(key, []).append(case)
    return list(shared.values())


def unconfigured(gateway, names):
    """The servers of which a gateway lists no tool."""
    try:
        client = Client(gateway.url, gateway.users.get("alice", {})).initialize()
        listed = [normal(tool["name"]) for tool in client.tools()]
        client.end()
    except Failed:
        listed = []
    marks = {name: "recall" if name == "plain" else f"{name}-echo" for name in names}
    return [name for name, mark in marks.items() if not any(tool.endswith(mark) for tool in listed)]


def run_batch(batch, start, servers=None):
    """Starts servers and gateway for these cases; each has failed where the gateway does not start."""
    own = servers is None
    servers = servers or Servers(all_servers(all_cases()))
    try:
        gateway = start({name: servers.url(name) for name in batch[0]["servers"]}, batch[0]["configuration"])
    except Failed as failed:
        if own:
            servers.stop()
        return [Verdict(case["group"], case["id"], "failed", f"the gateway is not ready: {failed}"[:600]) for case in batch]
    try:
        # Whoever runs the gateway may have configured only some of the servers.
        if not own and (missing := unconfigured(gateway, batch[0]["servers"])):
            return [Verdict(case["group"], case["id"], "not run", f"the gateway lists no tool of {', '.join(missing)}") for case in batch]
        return [judge(case, gateway, servers) for case in batch]
    finally:
        gateway.stop()
        if own:
            servers.stop()


def run_cases(cases, peer, said=lambda verdict: None):
    """The verdicts of a peer: `not_offered` and `not_run` of it are reasons by need; `start` makes a gateway."""
    verdicts, judged = [], []
    for case in cases:
        reasons = [(verdict, reasons[need]) for need in case["needs"]
                   for verdict, reasons in (("not offered", peer.not_offered), ("not run", peer.not_run)) if need in reasons]
        if reasons:
            verdicts.append(Verdict(case["group"], case["id"], *reasons[0]))
        else:
            judged.append(case)
    for batch in batches(judged):
        for verdict in run_batch(batch, peer.start, peer.servers):
            verdicts.append(verdict)
            said(verdict)
    order = [(case["group"], case["id"]) for case in cases]
    return sorted(verdicts, key=lambda verdict: order.index((verdict.group, verdict.case)))
