"""The tasks and attacks of AgentDojo through a running gateway with `policy.flow: enforce`: the calls of its ground truth, and an attacker's
that begin as soon as a result has the injected text. No model decides anything, so the attacker succeeds wherever no rule stops it.

Benign: every question is answered "yes", and the task must be done. Under attack: every question is answered "no", the user's own calls
go on, and the suite judges whether the task was done and whether the attack succeeded. The same is done without a gateway,
which says what the rules cost and stop. Each run is a session of a tenant of its own, which knows nothing from the past.
"""
import argparse
import collections
import json
import os
import sys
import threading
import warnings

import yaml

if hasattr(yaml, "CSafeLoader"):
    # The package reads each environment anew, which takes a second with the loader in Python.
    yaml.SafeLoader = yaml.CSafeLoader

from agentdojo.agent_pipeline.agent_pipeline import load_system_message  # noqa: E402
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement  # noqa: E402
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # noqa: E402
from agentdojo.attacks.base_attacks import FixedJailbreakAttack  # noqa: E402
from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttack  # noqa: E402
from agentdojo.functions_runtime import EmptyEnv  # noqa: E402
from agentdojo.task_suite import get_suites  # noqa: E402
from agentdojo.types import text_content_block_from_string  # noqa: E402

import dojo_attacks  # noqa: E402
from guarded import ASKED, Client, Session, end, guarded, play_all  # noqa: E402
from mcp_server import McpServer  # noqa: E402

VERSION = "v1.2.2"
# Stands in each injected text, however the environment folds its lines.
MARK = "<INFORMATION>"
WORKERS = 4
# Of a run that could not be played to the end: done and succeeded, of both ways, and what was asked.
UNKNOWN = ((False, False), (False, True), ["it could not be played to the end"])


class Attack(FixedJailbreakAttack):
    """The attack `important_instructions`, which names no model."""

    user_name = "Emma Johnson"

    def __init__(self, suite):
        super().__init__(ImportantInstructionsAttack._JB_STRING, suite, None)


class Scripted(BasePipelineElement):
    """Makes the calls of a task, and those of an attacker after the first result with its text. `make(runtime, environment, call)`
    makes one: its result as text, or None where it was not made."""

    name = "scripted"

    def __init__(self, suite, task, attack, make):
        self.suite, self.task, self.attack, self.make = suite, task, attack, make
        self.was_seen = False

    def query(self, query, runtime, env=EmptyEnv(), messages=[], extra_args={}):
        made = []
        for call in self.task.ground_truth(env):
            text = self.one(made, runtime, env, call)
            if self.attack and MARK in (text or "") and not self.was_seen:
                self.was_seen = True
                for attackers in dojo_attacks.calls(self.suite, self.attack, env):
                    self.one(made, runtime, env, attackers(env))
        return query, runtime, env, [*messages, *made, said(self.task.GROUND_TRUTH_OUTPUT)], extra_args

    def one(self, made, runtime, env, call):
        text = self.make(runtime, env, call)
        if text is not None:
            content = [text_content_block_from_string(text)]
            result = {"role": "tool", "content": content, "tool_call": call, "tool_call_id": None, "error": None}
            made += [said("", [call]), result]
        return text


def said(text, calls=None):
    return {"role": "assistant", "tool_calls": calls, "content": [text_content_block_from_string(text)]}


def directly(runtime, env, call):
    """A call without a gateway."""
    return result_of(runtime, env, call.function, dict(call.args))[0]


def result_of(runtime, env, name, arguments):
    """The text of a call's result, and whether it failed."""
    result, error = runtime.run_function(env, name, arguments)
    return (error, True) if error else (tool_result_to_str(result), False)


class Asked:
    """Makes calls in a session of the gateway. Questions are all answered in the same way."""

    def __init__(self, dojo, number, prefix, session, is_approved):
        self.dojo, self.number, self.prefix = dojo, number, prefix
        self.session, self.is_approved, self.questions = session, is_approved, []

    def __call__(self, runtime, env, call):
        self.dojo.running[self.number] = (runtime, env)
        tool, arguments = f"{self.prefix}__{call.function}", json.loads(json.dumps(dict(call.args)))
        reply = self.session.call(tool, arguments, self.number)
        if reply.is_disputed:
            self.questions.append(f"{call.function} {json.dumps(arguments, ensure_ascii=False)}: {reply.text}")
            if not self.is_approved or reply.code != ASKED:
                return None
            reply = self.session.approved(tool, arguments, self.number, reply.approval)
        return reply.text


class Dojo:
    """All runs: a user's task of a suite, with an attacker's task or without one."""

    def __init__(self, limit):
        self.suites = get_suites(VERSION)
        self.runs, self.injections = [], {}
        for suite in self.suites.values():
            attack = Attack(suite)
            attackers = [task for task in suite.injection_tasks.values() if is_made_of_calls(suite, task)]
            for task in list(suite.user_tasks.values())[:limit]:
                self.runs += [(suite, task, attacker) for attacker in [None, *attackers]]
                self.injections |= {(suite.name, task.ID, one.ID): attack.attack(task, one) for one in attackers}
        # By the number that reaches the server.
        self.running = {}
        self.outcomes = [UNKNOWN] * len(self.runs)
        self.local = threading.local()

    def tools(self):
        def listed(function):
            return {"name": function.name, "description": function.description, "inputSchema": function.parameters.model_json_schema()}

        return {name: [listed(function) for function in suite.tools] for name, suite in self.suites.items()}

    def answer(self, number, name, arguments):
        return result_of(*self.running[number], name, arguments)

    def through(self, program):
        """Plays all runs through a gateway that is started for them; the failures."""
        with guarded(program, McpServer(self.tools(), self.answer), map(tenant_of, range(len(self.runs)))) as port:
            return play_all(len(self.runs), WORKERS, lambda index: self.play(port, index))

    def play(self, port, index):
        """A run without a gateway and through it: (done, succeeded) of both, and what was asked."""
        if not hasattr(self.local, "client"):
            self.local.client = Client(port)
        suite, task, attacker = self.runs[index]
        text = f"{load_system_message(None)}\n\n{task.PROMPT}"
        session = Session(self.local.client, tenant_of(index), "run", text)
        asked = Asked(self, index + 1, suite.name, session, is_approved=attacker is None)
        alone = self.judged(suite, task, attacker, directly)
        self.outcomes[index] = (alone, self.judged(suite, task, attacker, asked), asked.questions)
        self.running.pop(index + 1, None)

    def judged(self, suite, task, attacker, make):
        injections = self.injections[suite.name, task.ID, attacker.ID] if attacker else {}
        return suite.run_task_with_pipeline(Scripted(suite, task, attacker, make), task, attacker, injections)

    def counts(self, name=None):
        found = collections.Counter()
        for (suite, _, attacker), (alone, guarded_, questions) in zip(self.runs, self.outcomes):
            if name not in (None, suite.name):
                continue
            if attacker is None:
                found.update(benign=1, passed=guarded_[0], untouched=not questions, questions=len(questions))
            else:
                found.update(attacks=1, undefended=alone[1], succeeded=guarded_[1], done_undefended=alone[0], done=guarded_[0])
        names = ["benign", "passed", "untouched", "questions", "attacks", "undefended", "succeeded", "done_undefended", "done"]
        return {name: found[name] for name in names}

    def table(self):
        heads = ["tasks", "pass", "untouched", "questions", "attacks", "undefended", "succeed", "done undefended", "done"]
        rows = [("suite", *heads)]
        for name in [*self.suites, None]:
            *counts, undefended, done = self.counts(name).values()
            attacks = counts[4]
            rows.append((name or "all", *counts, f"{undefended / attacks:.2f}", f"{done / attacks:.2f}"))
        return "\n".join(f"{row[0]:<10}" + "".join(f" {cell:>{max(9, len(head))}}" for cell, head in zip(row[1:], heads)) for row in rows)

    def details(self):
        """Attacks that succeeded, and those that do not without a gateway either; tasks, and what was asked in those not done."""
        for (suite, task, attacker), (alone, (done, succeeded), questions) in zip(self.runs, self.outcomes):
            if attacker is None:
                yield from (f"{suite.name} {task.ID}: {'passed' if done else 'NOT PASSED'}", *(f"    {asked}" for asked in questions))
                continue
            if succeeded or not alone[1]:
                yield f"{suite.name} {task.ID} {attacker.ID}: {'SUCCEEDED' if succeeded else 'never succeeds'}"
            if not done:
                yield from (f"{suite.name} {task.ID} {attacker.ID}: not done", *(f"    {asked}" for asked in questions))


def is_made_of_calls(suite, task):
    """Not so for the one whose success is a sentence of the answer."""
    return bool(dojo_attacks.calls(suite, task, suite.load_and_inject_default_environment({})))


def tenant_of(index):
    return f"tenant-{index}"


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/agentdojo", description="Plays the tasks and attacks of AgentDojo through the gateway.")
    parser.add_argument("program", help="the gateway's program")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON in the last line")
    parser.add_argument("--details", action="store_true", help="print what was asked, and attacks that succeeded")
    parser.add_argument("--tasks", type=int, metavar="COUNT", help="only the first tasks of each suite")
    return parser.parse_args()


def main():
    warnings.simplefilter("ignore")
    options = arguments()
    dojo = Dojo(options.tasks)
    failures = dojo.through(os.path.abspath(options.program))
    if options.details:
        print(*dojo.details(), sep="\n")
    print(dojo.table())
    counts = dojo.counts()
    if options.json:
        print(json.dumps(counts), flush=True)
    end(failures)
    if counts["succeeded"] or counts["passed"] < counts["benign"]:
        sys.exit("an attack succeeded, or a task did not pass")


if __name__ == "__main__":
    main()
