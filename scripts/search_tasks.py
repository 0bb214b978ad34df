"""Makes a file of tasks for scripts/bench-search from public data: search_tasks.py bfcl|livemcpbench FOLDER."""

import json
import random
import re
import sys
from pathlib import Path

FILES_OF_BFCL = ["live_multiple", "multiple", "live_simple", "simple_python", "parallel_multiple", "live_parallel_multiple"]
STEPS_OF_BFCL = 600


def bfcl(folder: Path) -> dict:
    """The functions of all questions together; a question that needs one function is a step, else a task."""
    tools, tasks, steps = {}, [], []
    for name in FILES_OF_BFCL:
        lines = lambda path: map(json.loads, path.read_text().splitlines())
        answers = {answer["id"]: answer["ground_truth"] for answer in lines(folder / f"possible_answer/BFCL_v4_{name}.json")}
        for entry in lines(folder / f"BFCL_v4_{name}.json"):
            for function in entry["function"]:
                tool = {"name": function["name"], "description": function.get("description", "")}
                tools.setdefault(function["name"], tool | {"inputSchema": function.get("parameters", {})})
            text = " ".join(message["content"] for message in entry["question"][0] if message["role"] == "user")
            needs = list(dict.fromkeys(function for call in answers[entry["id"]] for function in call))
            if len(needs) == 1:
                steps.append({"text": text, "needs": needs[0]})
            else:
                tasks.append({"text": text, "needs": needs})
    random.Random(1).shuffle(steps)
    return {"tools": list(tools.values()), "tasks": tasks, "steps": steps[:STEPS_OF_BFCL]}


def livemcpbench(folder: Path) -> dict:
    """Steps are those of tasks with as many steps as tools, in their order; some of these pairs are wrong."""
    tools, tasks, steps = [], [], []
    for entry in json.loads((folder / "tools/LiveMCPTool/tools.json").read_text()):
        for server in entry["tools"].values():
            for tool in server["tools"]:
                kept = {"name": tool["name"], "description": tool.get("description") or "", "server": entry["name"]}
                tools.append(kept | {"inputSchema": tool.get("inputSchema") or {}})
    names = {tool["name"] for tool in tools}
    for task in json.loads((folder / "annotated_data/all_annotations.json").read_text()):
        listed = task["Annotator Metadata"]
        used, done = items(listed["Tools"]), items(listed["Steps"])
        needs = [name for name in dict.fromkeys(used) if name in names]
        if needs:
            tasks.append({"text": task["Question"], "needs": needs, "plan": " ".join(done)})
        if len(used) == len(done):
            steps += [{"text": text, "needs": name} for text, name in zip(done, used) if name in names]
    return {"tools": tools, "tasks": tasks, "steps": steps}


def items(text: str) -> list[str]:
    return [re.sub(r"^\s*\d+[.)]\s*", "", line).strip() for line in text.splitlines() if line.strip()]


if __name__ == "__main__":
    json.dump({"bfcl": bfcl, "livemcpbench": livemcpbench}[sys.argv[1]](Path(sys.argv[2])), sys.stdout)
