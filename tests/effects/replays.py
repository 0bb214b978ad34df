"""Plays every recorded run of a caller again, and counts the runs that come to an equal digest and what was sent meanwhile.

`replays(base_url, key)` is for a gateway with `recording.runs: true` that has made runs of agents and programs. The run of an agent is
played by the program in the environment variable PROGRAM, or `sekisho`; that of a program by the gateway.
"""

import json
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request

# Runs the program that is played again: it is the one tool that a replay may count.
EXECUTOR = "python_executor"
EXECUTIONS = re.compile(r'^\w*tool_executions_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$', re.MULTILINE)


def request(base_url, key, path, body=None):
    """The status and the JSON of a reply."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(base_url.rstrip("/") + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=120) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def executions(base_url, key):
    """The calls that tools have had so far, without the executor of programs."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    asked = urllib.request.Request(base_url.rstrip("/") + "/metrics", headers=headers)
    with urllib.request.urlopen(asked, timeout=30) as reply:
        text = reply.read().decode()
    found = EXECUTIONS.finditer(text)
    return sum(float(one["count"]) for one in found if f'tool_name="{EXECUTOR}"' not in one["labels"])


def listed(base_url, key):
    """All recorded runs of the caller."""
    after, runs = "", []
    while after is not None:
        status, page = request(base_url, key, f"/recorded-runs?limit=100{after}")
        assert status == 200, page
        runs += page["items"]
        after = f"&after={page['next']}" if page.get("next") else None
    return runs


def agent_replay(text):
    """Whether the run is equal, and how many of its requests and calls had no answer in the file."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(text)
        file.flush()
        command = [os.environ.get("PROGRAM", "sekisho"), "--json", "run", "replay", file.name]
        played = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    shown = json.loads(played.stdout)
    return played.returncode == 0 and shown["equal"], shown["further_requests"] + shown["further_calls"]


def replays(base_url, key):
    """The runs, those that were played to an equal digest, and the calls that were sent meanwhile."""
    runs, equal, further = listed(base_url, key), 0, 0
    before = executions(base_url, key)
    for run in runs:
        status, exported = request(base_url, key, f"/recorded-runs/{run['id']}")
        assert status == 200, exported
        if run["kind"] == "agent":
            is_equal, unanswered = agent_replay(exported["file"])
            further += unanswered
        else:
            status, _reply = request(base_url, key, "/recorded-runs/replay", {"file": exported["file"]})
            is_equal = status == 200
        equal += is_equal
    return len(runs), equal, int(executions(base_url, key) - before) + further
