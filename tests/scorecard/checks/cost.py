"""Figures, not verdicts: each check gives its values. They need a machine that does nothing else."""
import json, os, pathlib, subprocess, sys, threading, time

from client import Failed

LOAD = pathlib.Path(__file__).parent.parent / "load.py"
ROUNDS = 5
CALLS = 400
MANY_CALLS = 20_000


def load(url, callers, calls, headers):
    done = subprocess.run([sys.executable, LOAD, url, str(callers), str(calls), json.dumps(headers)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failed(done.stderr.strip()[-300:])
    return json.loads(done.stdout)


def at(seconds, share):
    return seconds[min(len(seconds) - 1, int(len(seconds) * share))] * 1000


def added_time(run):
    """Milliseconds that the gateway adds, from alternating runs; the smallest and largest of the rounds are the bars of error."""
    callers, rows = run.case["with"]["callers"], []
    for _ in range(ROUNDS):
        direct = load(run.servers.url("plain"), callers, CALLS, {})
        through = load(run.gateway.url, callers, CALLS, run.gateway.users.get("alice", {}))
        rows.append({**{f"p{share}": at(through["seconds"], share / 100) - at(direct["seconds"], share / 100) for share in (50, 99)},
                     "rate": through["rate"] / direct["rate"]})
    values = {}
    for name, unit in (("p50", "ms"), ("p99", "ms"), ("rate", "of the direct rate")):
        numbers = sorted(row[name] for row in rows)
        values[f"{name} ({unit})"] = {"median": round(numbers[ROUNDS // 2], 3), "from": round(numbers[0], 3), "to": round(numbers[-1], 3)}
    return values


def resident(run):
    """MiB of all processes of the gateway."""
    total = 0
    for number in run.gateway.processes():
        status = pathlib.Path(f"/proc/{number}/status")
        if status.exists():
            total += sum(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return round(total / 1024, 1)


def memory(run):
    time.sleep(2)
    idle = resident(run)
    load(run.gateway.url, 8, MANY_CALLS, run.gateway.users.get("alice", {}))
    return {"idle (MiB)": idle, f"after {MANY_CALLS} calls (MiB)": resident(run)}


def processor_seconds(run):
    ticks = 0
    for number in run.gateway.processes():
        stat = pathlib.Path(f"/proc/{number}/stat")
        if stat.exists():
            ticks += sum(int(value) for value in stat.read_text().rsplit(") ", 1)[1].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def processor(run):
    before = processor_seconds(run)
    load(run.gateway.url, 8, CALLS * ROUNDS, run.gateway.users.get("alice", {}))
    return {"a call (ms)": round((processor_seconds(run) - before) * 1000 / (CALLS * ROUNDS), 3)}


def first_call(run):
    run.gateway.end()
    begun = time.monotonic()
    threading.Thread(target=run.gateway.begin, daemon=True).start()
    while time.monotonic() - begun < 60:
        try:
            run.client().call("echo", {"value": "a"})
            return {"from the start (s)": round(time.monotonic() - begun, 3)}
        except Failed:
            time.sleep(0.01)
    raise Failed("no call within 60 s")


def disk(run):
    peer = run.gateway.peer
    folder = peer["folder"] if peer.get("install") else pathlib.Path(peer["program"])
    used = subprocess.run(["du", "-sm", folder], capture_output=True, text=True, check=True).stdout
    return {"on disk (MiB)": int(used.split()[0])}
