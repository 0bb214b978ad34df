"""Histories that break each rule of the checker, and one that breaks none."""
import copy, unittest

from checker import BUDGET, PRICE, RATES, check


def call(kind, n, call_id, success=True, code=None, **more):
    return {"type": "call", "kind": kind, "n": n, "caller": "ann", "status": 200, "success": success, "code": code, "call_id": call_id, **more}


def refused(n, code, **more):
    return call("approved", n, "c-3", success=False, code=code, **more)


def effect(kind, n, time=0.0, caller="ann", day="2026-01-01"):
    return {"type": "effect", "kind": kind, "n": n, "caller": caller, "time": time, "day": day}


def run(n, status="succeeded", begun=0.0, ended=1.0, messages=("user", "assistant")):
    return {"type": "run", "conversation": "c", "id": f"r{n}", "status": status, "begun": begun, "ended": ended,
            "messages": list(messages)}


def program(outcomes, calls=(), code=None):
    return {"type": "program", "run": "p1", "status": 200, "success": code is None, "code": code, "outcomes": outcomes,
            "calls": [{"call_id": call_id, "code": None} for call_id in calls]}


def turn(n, kept, generation=1, is_checkpointed=True, success=True):
    return {"type": "turn", "session": "s", "n": n, "status": 200, "success": success, "code": None, "generation": generation, "kept": kept,
            "is_checkpointed": is_checkpointed}


GOOD = [
    call("keyed", 1, "c-1"), call("keyed", 1, "c-1"), effect("keyed", 1),
    call("keyed", 2, "c-2", success=False),
    *[effect("priced", n) for n in range(round(BUDGET / PRICE))],
    *[effect("slow_rate", n, time=0.0) for n in range(RATES["slow_rate"])], effect("slow_rate", 500, time=60.0),
    refused(11, "approval_required"), call("approved", 11, "c-1", retry=0), call("approved", 11, "c-1", retry=1), effect("approved", 11),
    refused(12, "approval_required"), refused(12, "overloaded", retry=0), refused(12, "unknown_outcome", retry=0), effect("approved", 12),
    program({}, code="overloaded"), program({"21": "done", "22": "unknown_outcome", "23": "overloaded"}, calls=["c-1"]),
    effect("nested", 21), effect("nested", 22),
    # The call 32 was answered without a checkpoint before its replica was killed, and 33 not at all.
    turn(31, [31]), turn(32, [31, 32], is_checkpointed=False), turn(33, None, success=False), turn(34, [31, 33, 34]),
    turn(35, [35], generation=2), turn(36, [35, 36], generation=2),
    {"type": "trail", "call_ids": ["c-1", "c-2", "c-3"]},
    run(1), run(2, begun=1.0, ended=2.0), run(3, "interrupted", begun=2.0, ended=3.0, messages=["user"]),
]

BROKEN = {
    "keyed call 1 ran 2 times": [effect("keyed", 1)],
    "did not run": [call("keyed", 3, "c-3")],
    "keyed call 1 has 2 different replies": [call("keyed", 1, "c-2")],
    "approved call 11 ran 2 times": [effect("approved", 11)],
    "approved call 12 ran 2 times": [effect("approved", 12)],
    "approved call 11 has 2 different replies": [call("approved", 11, "c-2", retry=2)],
    "13 ran before it was approved": [call("approved", 13, "c-1"), effect("approved", 13)],
    "retry 1 of the approved call 12 ended with approval_denied": [refused(12, "approval_denied", retry=1)],
    "retry 2 of the approved call 12 ended with None": [refused(12, None, retry=2)],
    "spent 1.01 of 1.00": [effect("priced", 1_000)],
    "slow_rate admitted more": [effect("slow_rate", n, time=0.0) for n in range(10)],
    "in no audit trail": [call("priced", 1, "c-9")],
    "such as c-8": [program({}, calls=["c-8"])],
    "nested call 21 ran 2 times": [effect("nested", 21)],
    "nested call 24 was answered and did not run": [program({"24": "done"})],
    "run p1 diverged": [program({}, code="replay_diverged")],
    "p2 of a program did not end": [{"type": "left_run", "id": "p2", "state": "stopped"}],
    "session s has lost the call 35": [turn(37, [36, 37], generation=2)],
    "session s went back": [turn(37, [37], generation=1)],
    "call of the session s ran twice": [turn(37, [35, 36, 36, 37], generation=2)],
    "still runs": [run(4, "running", begun=4.0, ended=None)],
    "half a turn": [run(4, begun=4.0, ended=5.0, messages=["user"])],
    "two runs of the conversation": [run(4, begun=1.5, ended=1.6)],
}


class Checker(unittest.TestCase):
    def test_a_good_history_has_no_violation(self):
        self.assertEqual(check(copy.deepcopy(GOOD)), [])

    def test_a_new_day_has_a_new_budget(self):
        events = [effect("priced", 1_000 + n, day="2026-01-02") for n in range(round(BUDGET / PRICE))]
        self.assertEqual(check(copy.deepcopy(GOOD + events)), [])

    def test_each_rule_finds_what_breaks_it(self):
        for expected, events in BROKEN.items():
            violations = check(copy.deepcopy(GOOD + events))
            self.assertEqual(len(violations), 1, (expected, violations))
            self.assertIn(expected, violations[0])


if __name__ == "__main__":
    unittest.main()
