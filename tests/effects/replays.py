"""Records runs of programs and of agents, plays each again from its file, and counts those that come to an equal digest."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mcp"))
from cuts import Pair, chosen  # noqa: E402
from upstream import NAME  # noqa: E402

# Of each data set: the tasks of the first are programs, those of the second are agents.
RUNS = 50
# Seconds until a run has ended, the first with the start of the interpreter.
RUN_TIMEOUT = 120


def program_of(calls):
    """Python that makes the calls of a task."""
    return "from host import tools\n" + "".join(f"print(tools[{f'{NAME}__{tool}'!r}](**{arguments!r}))\n" for tool, arguments in calls)


def script_of(calls):
    """The turns of a model that makes the calls of a task, one a turn. JSON is YAML."""
    turns = [
        {"calls": [{"id": f"call-{number}", "tool": f"{NAME}__{tool}", "arguments": json.dumps(arguments)}]}
        for number, (tool, arguments) in enumerate(calls)
    ]
    return json.dumps({"turns": [*turns, {"text": ["Done."]}]})


def agent_replay(program, text):
    """Whether the run is equal, and how many of its requests and calls had no answer in the file."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(text)
        file.flush()
        command = [program, "--json", "run", "replay", file.name]
        played = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT)
    if not played.stdout:
        raise AssertionError(f"no replay: {played.stderr}")
    shown = json.loads(played.stdout)
    return played.returncode == 0 and shown["equal"], shown["further_requests"] + shown["further_calls"]


def listed(gateway):
    """All recorded runs of the caller."""
    after, runs = "", []
    while after is not None:
        page = gateway.json("GET", f"/recorded-runs?limit=100{after}")
        runs += page["items"]
        after = f"&after={page['next']}" if page.get("next") else None
    return runs


def record(gateway, programs, agents):
    """The runs."""
    gateway.until(lambda: gateway.call("python_executor", {"code": ""})["success"], RUN_TIMEOUT, "the interpreter is ready")
    before = [run["id"] for run in listed(gateway)]
    for calls in programs:
        reply = gateway.call("python_executor", {"code": program_of(calls)})
        assert reply["success"], reply
    for profile in agents:
        message = {"role": "user", "content": "Do the task."}
        reply = gateway.json("POST", "/v1/chat/completions", {"model": profile, "messages": [message]})
        assert reply.get("choices"), reply
    return [run for run in listed(gateway) if run["id"] not in before]


def play(pair, runs):
    """How many runs are equal, and what was sent meanwhile: effects at the upstream, and requests without an answer in a file."""
    equal, before, further = 0, pair.effects(), 0
    for run in runs:
        text = pair.gateway.json("GET", f"/recorded-runs/{run['id']}")["file"]
        if run["kind"] == "agent":
            is_equal, unanswered = agent_replay(pair.program, text)
            further += unanswered
        else:
            connection, response = pair.gateway.request("POST", "/recorded-runs/replay", {"file": text})
            shown = response.read()
            connection.close()
            is_equal = response.status == 200
            if not is_equal:
                print(f"{run['id']}: {shown.decode()}", file=sys.stderr)
        equal += is_equal
    return equal, pair.effects() - before + further


def counts(program, sources):
    """For `scripts/effects`."""
    programs, agents = (chosen(tasks, RUNS) for tasks in sources)
    tools = sorted({tool for calls in [*programs, *agents] for tool, _ in calls})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        profiles = {}
        for number, calls in enumerate(agents):
            script = folder / f"{number}.yaml"
            script.write_text(script_of(calls))
            profiles[f"task-{number}"] = {"provider": "replay", "model": os.fspath(script)}
        recording = {"runs": True, "max_runs_per_caller": 10 * RUNS}
        pair = Pair(program, folder, None, tools, recording=recording, agent={"profiles": profiles})
        try:
            runs = record(pair.gateway, programs, profiles)
            assert len(runs) == len(programs) + len(agents), [run["name"] for run in runs]
            equal, sent = play(pair, runs)
        finally:
            pair.stop()
    return {"runs": len(runs), "replayed_equal": equal, "sent_upstream": sent}
