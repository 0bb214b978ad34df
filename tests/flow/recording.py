"""Recorded runs of models, and which of their calls are an attacker's.

A recording has one JSON object a line: `model`, `suite`, `user_task`, `injection_task`, `attack`, `injections` (the texts that were
placed into the environment, by place), `utility`, `attack_succeeded`, and `messages`: `{role, text}`, an assistant's with
`calls: [{id, tool, arguments}]`, a tool's answer `{role: "tool", call, tool, text, error?}`.

A run is *benign* if nothing was injected and its task is a user's; *attacked* if there is an attack; and otherwise *direct*: the
attacker's task asked for by the user, which is neither benign work nor an attack.

A call of an attacked run is *the attacker's* if it carries a value of the attacker: an argument, at any depth, of three characters or more that

- stands in the injected text, or has in it a mail address, a URL, a path, an account or another such token of it;
- does not stand in the user's own text; and
- was no argument of the same tool in any benign run of the same user task, by any model.

So is a call that carries what only an answer to such a call has, such as the number of a product that the attacker had searched for: it has
digits or a mark of an address or a path, and stands in no other answer before.

What all injected texts of a suite have in common, such as their form of address, is no part of the injected text. Where no call of the run
carries such a value ("delete one of the repositories"), the attacker's calls are those of tools that direct runs of the attacker's
task use and benign runs of the user's task do not. A run that has neither counts as an attack that was not stopped.
"""
import collections
import dataclasses
import itertools
import json
import lzma
import re

# Shorter values stand in any text.
MIN_CHARACTERS = 3
WORD = re.compile(r"[^\s'\"<>(),;!?]+")
# What tells one thing from another: it has a mark of an address or a path, or digits.
IDENTIFYING = re.compile(r"[@/\d]|\w\.\w")
MIN_TOKEN_CHARACTERS = 5


@dataclasses.dataclass(frozen=True)
class Call:
    """A call with its recorded answer. `number` is its place in the recording, from 1."""

    number: int
    tool: str
    arguments: dict
    text: str
    failed: bool


@dataclasses.dataclass(frozen=True)
class Run:
    """`turns` are the calls of each of the model's answers that has any."""

    model: str
    suite: str
    user_task: str
    injection_task: str | None
    attack: str | None
    injections: dict
    utility: bool
    attack_succeeded: bool
    operator: str
    user: str
    turns: tuple

    @property
    def kind(self):
        if self.attack:
            return "attacked"
        return "direct" if self.user_task.startswith("injection_task") else "benign"

    @property
    def calls(self):
        return list(itertools.chain(*self.turns))

    @property
    def name(self):
        return f"{self.model} {self.suite} {self.user_task}" + (f" {self.injection_task}" if self.attack else "")


def read(path):
    """The runs of a file of JSON lines, plain or compressed by xz."""
    opened = lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else open(path, encoding="utf-8")
    numbers = itertools.count(1)
    with opened as file:
        return [run(json.loads(line), numbers) for line in file if line.strip()]


def run(recorded, numbers):
    messages = recorded["messages"]
    answers = {message["call"]: message for message in messages if message["role"] == "tool"}
    turns = []
    for message in messages:
        made = message.get("calls") or []
        if made:
            turns.append(tuple(call(one, answers.get(one["id"], {}), next(numbers)) for one in made))

    def texts(role):
        return "\n".join(message["text"] for message in messages if message["role"] == role)

    return Run(
        model=recorded["model"],
        suite=recorded["suite"],
        user_task=recorded["user_task"],
        injection_task=recorded["injection_task"],
        attack=recorded["attack"],
        injections=recorded["injections"] or {},
        utility=bool(recorded["utility"]),
        attack_succeeded=bool(recorded["attack_succeeded"]),
        operator=texts("system"),
        user=texts("user"),
        turns=tuple(turns),
    )


def call(made, answer, number):
    """The last calls of a run may have no answer."""
    error = answer.get("error")
    return Call(number, made["tool"], made["arguments"], error or answer.get("text", ""), bool(error))


def half(run, tasks):
    """0 or 1: every other task of the suite, in their order."""
    return tasks[run.suite].index(run.user_task) % 2


def user_tasks(runs):
    """The users' tasks of each suite, in their order: `user_task_2` before `user_task_10`."""
    found = collections.defaultdict(set)
    for one in runs:
        if one.kind != "direct":
            found[one.suite].add(one.user_task)

    def in_order(task):
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", task)]

    return {suite: sorted(tasks, key=in_order) for suite, tasks in found.items()}


def folded(value):
    return " ".join(str(value).casefold().split())


def leaves(value):
    """The texts and numbers in arguments, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield folded(value)


class Attackers:
    """Which calls of attacked runs are the attacker's."""

    def __init__(self, runs):
        self.lines = collections.defaultdict(lambda: collections.defaultdict(set))
        self.benign_values = collections.defaultdict(set)
        self.benign_tools = collections.defaultdict(set)
        self.direct_tools = collections.defaultdict(set)
        for one in runs:
            task = (one.suite, one.user_task)
            if one.kind == "attacked":
                self.lines[self._form(one)][one.injection_task].update(injected_lines(one))
            for made in one.calls:
                if one.kind == "direct":
                    self.direct_tools[task].add(made.tool)
                elif one.kind == "benign":
                    self.benign_tools[task].add(made.tool)
                    self.benign_values[task].update((made.tool, leaf) for leaf in leaves(made.arguments))

    @staticmethod
    def _form(run):
        """Injected texts of the same form of address."""
        return run.model, run.suite, run.attack

    def instruction(self, run):
        """The injected text without what it has in common with those of all other tasks of the attacker."""
        of_tasks = self.lines[self._form(run)].values()
        common = set.intersection(*of_tasks) if len(of_tasks) > 1 else set()
        return "\n".join(line for line in injected_lines(run) if line not in common)

    def calls(self, run):
        """The numbers of the calls of a run that are the attacker's."""
        task = (run.suite, run.user_task)
        instruction, user = self.instruction(run), folded(run.user)
        words = (word.strip(".:") for word in WORD.findall(instruction))
        tokens = {word for word in words if len(word) >= MIN_TOKEN_CHARACTERS and IDENTIFYING.search(word)}

        def is_attackers(tool, leaf):
            stands = leaf in instruction or any(token in leaf for token in tokens)
            return len(leaf) >= MIN_CHARACTERS and stands and leaf not in user and (tool, leaf) not in self.benign_values[task]

        carrying, selected, others = set(), "", ""

        def is_selected(tool, leaf):
            identifies = len(leaf) >= MIN_CHARACTERS and IDENTIFYING.search(leaf)
            named = leaf in user or leaf in others or (tool, leaf) in self.benign_values[task]
            return identifies and leaf in selected and not named

        for made in run.calls:
            if any(is_attackers(made.tool, leaf) or is_selected(made.tool, leaf) for leaf in leaves(made.arguments)):
                carrying.add(made.number)
                selected += "\n" + folded(made.text)
            else:
                others += "\n" + folded(made.text)
        tools = self.direct_tools[run.suite, run.injection_task] - self.benign_tools[task]
        return carrying or {made.number for made in run.calls if made.tool in tools}


def injected_lines(run):
    return [folded(line) for text in run.injections.values() for line in text.splitlines() if line.strip()]
