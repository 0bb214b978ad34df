"""The cluster test: main.py SEKISHO [SECONDS [SEED]], with a database of scripts/with-postgresql."""
import collections, datetime, json, os, pathlib, random, sys, tempfile, threading, time

import disk
from checker import BUDGET, PRICE, RATES, check
from load import Load
from parts import (APPROVER, CALLERS, KEY, LARGE_BYTES, PROGRAMMER, READY_SECONDS, Balancer, Database, Links, Replica, Upstream,
                   until)

REPLICAS = 3
SEALING_KEY = "0a" * 32
ROOT = pathlib.Path(__file__).resolve().parents[2]


def settings(database_url, upstream, shared):
    overrides = {f"effects__{kind}": {"rate_limit": 1_000_000, "cost_per_use": 0} for kind in upstream.KINDS}
    overrides["effects__priced"]["cost_per_use"] = PRICE
    overrides["effects__large"]["max_output_bytes"] = 2 * LARGE_BYTES
    overrides["effects__approved"]["approval"] = "always"
    for kind, rate in RATES.items():
        overrides[f"effects__{kind}"]["rate_limit"] = rate
    overrides["python_executor"] = {"rate_limit": 1_000_000, "cost_per_use": 0}
    return {
        "store": {"url": database_url}, "cluster": {"enabled": True, "blobs": {"url": f"file://{shared}"}},
        "secrets": {"key": SEALING_KEY},
        "audit": {"durability": "strict"},
        "auth": {"api_keys": [{"id": caller, "key": KEY.format(caller)} for caller in [*CALLERS, PROGRAMMER]]
                             + [{"id": APPROVER, "key": KEY.format(APPROVER), "roles": ["approver"]}]},
        "budget": {"max_cost_per_caller_per_day": BUDGET},
        "outbound": {"allow_networks": ["127.0.0.1/32"], "openapi_allowed_domains": ["127.0.0.1"]},
        "openapi": {"collections": {"effects": {"spec_inline": json.dumps(upstream.document())}}},
        "tools": {"overrides": overrides},
        "sandbox": {"workers": 1},
        "agent": {"default_profile": "weather",
                  "profiles": {"weather": {"provider": "replay", "model": str(ROOT / "config/examples/weather.yaml")}}},
    }


class Faults:
    """What fails, one after the other, until the time is over."""

    def __init__(self, database, replicas, disks, random, history):
        self.database, self.replicas, self.random, self.history = database, replicas, random, history
        self.disks = disks
        self.happened = collections.Counter()

    def run(self, seconds):
        end = time.monotonic() + seconds
        kinds = [self.kill, self.kill, self.cut, self.stall, self.slow, self.crash_database, self.move_clock]
        kinds += [self.fill_disk] if self.disks else []
        while time.monotonic() < end:
            fault = self.random.choice(kinds)
            self.happened[fault.__name__] += 1
            replica, begun = self.random.choice(self.replicas), time.monotonic()
            fault(replica)
            self.history.append({"type": "fault", "kind": fault.__name__, "replica": replica.folder.name, "begun": begun,
                                 "ended": time.monotonic()})
            time.sleep(self.random.uniform(0.5, 2.0))

    def kill(self, replica):
        replica.kill()
        time.sleep(self.random.uniform(0.2, 3.0))
        replica.start()
        self.ready(replica)

    def cut(self, replica):
        replica.link.cut()
        self.heal(replica)

    def stall(self, replica):
        replica.link.stall()
        self.heal(replica)

    def slow(self, replica):
        replica.link.slow(self.random.uniform(0.02, 0.2))
        self.heal(replica)

    def heal(self, replica):
        time.sleep(self.random.uniform(1.0, 6.0))
        replica.link.heal()

    def crash_database(self, _):
        self.database.crash()
        time.sleep(self.random.uniform(0.2, 3.0))
        self.database.start()

    def move_clock(self, replica):
        # Half a day away it is another day for one of the two, whenever the test runs.
        replica.clock.set(self.random.choice([-93_600, -20, 20, 93_600]))
        time.sleep(self.random.uniform(1.0, 6.0))
        replica.clock.set(0)

    def fill_disk(self, replica):
        """Calls are refused meanwhile: the audit trail cannot take their lines."""
        self.disks[replica].fill()
        time.sleep(self.random.uniform(1.0, 4.0))
        self.disks[replica].free()
        self.ready(replica)

    def ready(self, replica):
        until(replica.is_ready, READY_SECONDS, f"{replica.folder.name} is ready: {replica.tail()}")


def has_python(load):
    """Whether programs can run here. The first answer takes a while."""
    def answered():
        body = {"arguments": {"code": "1"}}
        status, _ = load.request("POST", "/tools/python_executor/execute", PROGRAMMER, body)
        return [status == 200] if status in (200, 500) else None
    [is_there] = until(answered, READY_SECONDS, "the interpreter answers")
    return is_there


def seconds_of(text):
    return text and datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def all_of(load, caller, path, name, cursor):
    """The entries of all pages. Asked again by `until` if a page is refused, such as by a balancer that has no replica just now."""
    found, after = [], ""
    while True:
        status, page = load.request("GET", f"{path}?limit=100{after}", caller)
        if status != 200:
            raise ConnectionError(f"{path}: {status} {page}")
        found += page[name]
        if page["next"] is None:
            return found
        after = f"&{cursor}={page['next']}"


def record_conversations(load, history):
    """Runs of replicas that were killed are ended by the others, within a minute."""
    for caller, conversation in load.conversations:
        path = f"/api/conversations/{conversation}"

        def ended():
            runs = all_of(load, caller, f"{path}/runs", "runs", "before")
            # A list, since a conversation may have no run.
            return [runs] if all(run["status"] != "running" for run in runs) else None
        roles = collections.defaultdict(list)
        [runs] = until(ended, 100, f"all runs of {conversation} have ended")
        [messages] = until(lambda: [all_of(load, caller, f"{path}/messages", "messages", "offset")], 10, f"the messages of {conversation}")
        for message in messages:
            roles[message["run_id"]].append(next(iter(message["message"])))
        for run in runs:
            history.append({"type": "run", "conversation": conversation, "id": run["id"], "status": run["status"],
                            "begun": seconds_of(run["begun_at"]), "ended": seconds_of(run["ended_at"]),
                            "messages": roles[run["id"]]})


def record_programs(load, history):
    """Each run of a program ends, if it is resumed by a replica that works."""
    load.resume_programs(PROGRAMMER, 100, threading.Event())

    def runs():
        status, listed = load.request("GET", "/runs", PROGRAMMER)
        return [listed["runs"]] if status == 200 else None
    [listed] = until(runs, 10, "the runs of programs")
    history.extend({"type": "left_run", "id": run["id"], "state": run["state"]} for run in listed)


def record_trails(replicas, history):
    """Each trail is whole, and what it has is recorded."""
    for replica in replicas:
        verified = replica.audit("verify")
        assert verified.returncode == 0, (replica.folder.name, verified.stdout + verified.stderr)
        lines = replica.audit("export").stdout.splitlines()
        ids = [json.loads(line).get("call_id") for line in lines]
        history.append({"type": "trail", "call_ids": [call_id for call_id in ids if call_id]})


def main(sekisho, seconds=60, seed=None):
    seconds, seed = float(seconds), int(seed or random.randrange(1_000_000))
    print(f"seed {seed}: scripts/test-cluster {seconds:.0f} {seed} repeats the order of faults", flush=True)
    history = []
    upstream = Upstream(history)
    database = Database(os.environ["TEST_DATABASE_URL"], os.environ["TEST_DATABASE_CONTROL"])
    links = Links()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shared = folder / "shared"
        shared.mkdir()
        made = [links.make(database.port) for _ in range(REPLICAS)]
        replicas = [Replica(sekisho, folder / f"replica-{at}", link, settings(database.through(link.port), upstream, shared))
                    for at, link in enumerate(made)]
        balancer, disks = None, disk.mount(replicas)
        try:
            for replica in replicas:
                replica.start()
                until(replica.is_ready, READY_SECONDS, f"{replica.folder.name} is ready: {replica.tail()}")
            balancer = Balancer(folder, replicas)
            load = Load(balancer.port, history)
            until(lambda: load.request("GET", "/readyz", "ann")[0] == 200, 10, "the balancer has a replica")
            programs = has_python(load)
            load.start(programs)
            faults = Faults(database, replicas, disks, random.Random(seed), history)
            faults.run(seconds)
            for replica in replicas:
                faults.ready(replica)
            time.sleep(3)
            load.stop()
            record_conversations(load, history)
            if programs:
                record_programs(load, history)
            for replica in replicas:
                assert replica.stop() == 0, (replica.folder.name, replica.tail())
            record_trails(replicas, history)
        finally:
            if keep := os.environ.get("CLUSTER_HISTORY"):
                pathlib.Path(keep).write_text("\n".join(json.dumps(event) for event in history))
            for replica in replicas:
                if replica.process and replica.process.poll() is None:
                    replica.kill()
            if balancer:
                balancer.stop()
            disk.unmount(disks)
    if not disks:
        print("left out: full disks, since no tmpfs can be mounted here")
    if not programs:
        print("left out: programs, since the interpreter is not set up here: scripts/setup_python_wasi.sh")
    summary(history, faults)
    violations = check(history)
    for violation in violations:
        print(f"VIOLATION: {violation}")
    return 1 if violations else 0


def summary(history, faults):
    calls = collections.Counter((event["kind"], event["status"], event["code"]) for event in history if event["type"] == "call")
    print("faults:", dict(faults.happened))
    for (kind, status, code), times in sorted(calls.items(), key=str):
        print(f"{kind:<10} {status} {code}: {times}")
    talks = collections.Counter((event["status"], event["ends"], event["code"]) for event in history if event["type"] == "talk")
    print("conversations:", dict(talks), collections.Counter(event["status"] for event in history if event["type"] == "run"))
    programs = [event for event in history if event["type"] == "program"]
    outcomes = collections.Counter(outcome for event in programs for outcome in event["outcomes"].values())
    print("programs:", dict(collections.Counter((event["status"], event["code"]) for event in programs)), dict(outcomes))
    assert not programs or outcomes["done"] > 20, "too few programs made calls: the test shows nothing of them"
    turns = collections.Counter((event["status"], event["code"], event["is_checkpointed"]) for event in history if event["type"] == "turn")
    print("calls in sessions:", dict(turns))
    assert not turns or turns[200, None, True] > 10, "too few calls in sessions were stored: the test shows nothing of them"
    print("given up:", sum(event["type"] == "given_up" for event in history))
    # What programs call is in what they return.
    for kind in set(Upstream.KINDS) - {"nested"}:
        done = sum(event["kind"] == kind and event["success"] for event in history if event["type"] == "call")
        assert done > (5 if kind == "large" else 20), f"only {done} calls of {kind} succeeded: the test shows nothing"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
