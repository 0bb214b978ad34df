"""What must hold of a history, whatever failed while it was recorded.

A history is a list of dictionaries with these events:
call     a request and its reply: kind, n (its number), caller, status, success, code, call_id, run (of the effect that the reply shows);
         retry (which of those that were sent at once) of a call that was approved before
effect   the upstream server did what a call asked for: kind, n, caller, time (seconds), day (UTC)
trail    the call ids that the audit trails have
fault    what failed: kind, begun, ended (seconds)
program  a reply to a program or to a request to resume it: run, status, success, code, outcomes (of its calls by their numbers: `done` or a
         code), calls (call_id and code of those that it made)
left_run a run of a program that could not be resumed to its end: id, state
turn     a call in a session of Python, of which one client makes one after the other: session, n (its number), status, success, code; if it was
         answered, generation, kept (the numbers in the session after it) and is_checkpointed
run      a run of a conversation: conversation, id, status, begun, ended (seconds), messages (their roles)
"""
from collections import defaultdict

PRICE, BUDGET = 0.01, 1.00
# Kinds of calls that run once, however often they are sent: with an idempotency key, with an approval, or by a program that is resumed.
ONCE = {"keyed", "large", "approved", "nested"}
# What an approved call may be refused with for good. `internal`: it ran, and its line could not be written. `idempotency_conflict`: it ran,
# and its replica was killed before the reply was kept. `timeout`: its replica lives, and could not record how it ended.
REFUSALS = {"unknown_outcome", "internal", "idempotency_conflict", "timeout"}
# By kind: calls a minute of the tool.
RATES = {"slow_rate": 120, "fast_rate": 1500}
# What replicas may admit more: the refill of two seconds.
AHEAD_SECONDS = 2
# Replicas without the database admit their parts of a rate, while its bucket is refilled for the others. They settle that once they
# have noticed that the database is back: until then, so much more may have been admitted.
PARTS, NOTICED_SECONDS = {"cut": 1 / 3, "stall": 1 / 3, "slow": 1 / 3, "crash_database": 1}, 3


def check(history):
    """The sentences about what does not hold."""
    by_type = defaultdict(list)
    for event in history:
        by_type[event["type"]].append(event)
    calls, effects, programs = by_type["call"], by_type["effect"], by_type["program"]
    # Nobody waits for the line of a call that its program left.
    nested = [call for program in programs for call in program["calls"] if call["code"] != "cancelled"]
    return [
        *calls_run_once(calls, effects),
        *approved_calls_are_answered([call for call in calls if call["kind"] == "approved"]),
        *budgets_are_not_overspent(effects),
        *rates_are_kept(effects, by_type["fault"]),
        *answered_calls_are_in_a_trail([*calls, *nested], by_type["trail"]),
        *programs_go_on_as_they_began(programs, effects, by_type["left_run"]),
        *sessions_keep_what_they_answered(by_type["turn"]),
        *conversations_are_whole(by_type["run"]),
    ]


def calls_run_once(calls, effects):
    done = defaultdict(list)
    for effect in effects:
        if effect["kind"] in ONCE:
            done[effect["kind"], effect["n"]].append(effect)
    for (kind, n), times in done.items():
        if len(times) > 1:
            yield f"the {kind} call {n} ran {len(times)} times"
    replies = defaultdict(set)
    for call in calls:
        if call["kind"] in ONCE and call["success"]:
            replies[call["kind"], call["n"]].add(call["call_id"])
            if not done[call["kind"], call["n"]]:
                yield f"the {call['kind']} call {call['n']} was answered and did not run"
    for (kind, n), ids in replies.items():
        if len(ids) > 1:
            yield f"the {kind} call {n} has {len(ids)} different replies"


def approved_calls_are_answered(calls):
    last = {}
    for call in calls:
        if "retry" in call:
            last[call["n"], call["retry"]] = call
        elif call["success"]:
            yield f"the call {call['n']} ran before it was approved"
    for (n, retry), call in last.items():
        if not call["success"] and call["code"] not in REFUSALS:
            yield f"the retry {retry} of the approved call {n} ended with {call['code']}"


def budgets_are_not_overspent(effects):
    # At midnight (UTC) a new day's budget begins.
    budget = BUDGET * len({effect["day"] for effect in effects})
    spent = defaultdict(int)
    for effect in effects:
        if effect["kind"] == "priced":
            spent[effect["caller"]] += 1
    for caller, times in spent.items():
        if times * PRICE > budget + 1e-9:
            yield f"{caller} spent {times * PRICE:.2f} of {budget:.2f}"


def rates_are_kept(effects, faults):
    partitions = [(fault["begun"], fault["ended"] + NOTICED_SECONDS, PARTS[fault["kind"]]) for fault in faults if fault["kind"] in PARTS]
    apart = lambda since, until: sum(part * max(0, min(until, end) - max(since, begin)) for begin, end, part in partitions)
    for kind, per_minute in RATES.items():
        times = sorted(effect["time"] for effect in effects if effect["kind"] == kind)
        rate = per_minute / 60
        # The bucket as one gateway has it: it holds a minute's calls. One that replicas take ahead may be used later.
        held, last = per_minute + AHEAD_SECONDS * rate, times[0] if times else 0
        for time in times:
            refill = (time - last + apart(last, time)) * rate
            held = min(per_minute + AHEAD_SECONDS * rate, held + refill) - 1
            last = time
            if held < 0:
                yield f"{kind} admitted more than {per_minute} a minute"
                break


# Refusals whose lines are summed up beyond ten a second.
SUMMED = {"rate_limited", "overloaded", "circuit_open"}


def answered_calls_are_in_a_trail(calls, trails):
    if not trails:
        return
    known = {call_id for trail in trails for call_id in trail["call_ids"]}
    missing = {call["call_id"] for call in calls if call["call_id"] and call["code"] not in SUMMED} - known
    if missing:
        yield f"{len(missing)} answered calls are in no audit trail, such as {sorted(missing)[0]}"


def programs_go_on_as_they_began(programs, effects, left):
    done = {effect["n"] for effect in effects if effect["kind"] == "nested"}
    for program in programs:
        if program["code"] == "replay_diverged":
            yield f"the program of the run {program['run']} diverged when it was resumed"
        for n, outcome in program["outcomes"].items():
            if outcome == "done" and int(n) not in done:
                yield f"the nested call {n} was answered and did not run"
    for run in left:
        yield f"the run {run['id']} of a program did not end: it is {run['state']}"


def sessions_keep_what_they_answered(turns):
    """A session that goes on has what its calls with a checkpoint have answered, and no call twice. One that has ended begins anew, with the next
    generation."""
    by_session = defaultdict(list)
    for turn in turns:
        if turn["success"]:
            by_session[turn["session"]].append(turn)
    for session, answered in by_session.items():
        generation, stored = 0, set()
        for turn in answered:
            numbers = turn["kept"]
            if turn["generation"] < generation:
                yield f"the session {session} went back from the generation {generation} to {turn['generation']}"
            if turn["generation"] == generation and stored - set(numbers):
                yield f"the session {session} has lost the call {min(stored - set(numbers))}, which was answered"
            if len(set(numbers)) < len(numbers):
                yield f"a call of the session {session} ran twice: {numbers}"
            generation = max(generation, turn["generation"])
            stored = set(numbers) if turn["is_checkpointed"] else stored & set(numbers)


def conversations_are_whole(runs):
    by_conversation = defaultdict(list)
    for run in runs:
        by_conversation[run["conversation"]].append(run)
        if run["status"] == "running":
            yield f"the run {run['id']} still runs"
        if run["status"] == "succeeded" and run["messages"][-1:] != ["assistant"]:
            yield f"the run {run['id']} succeeded with half a turn: {run['messages']}"
    for conversation, its_runs in by_conversation.items():
        its_runs.sort(key=lambda run: run["begun"])
        for earlier, later in zip(its_runs, its_runs[1:]):
            if earlier["ended"] is not None and later["begun"] < earlier["ended"]:
                yield f"two runs of the conversation {conversation} at once: {earlier['id']}, {later['id']}"
