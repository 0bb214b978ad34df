"""Whether clients of one gateway stay apart: `alice` and `bob`, with the credentials of the peer where it has users."""
import json, threading, time

from checks import expect, same
from checks.fidelity import resource
from client import Failed, Refusal


def both(run, **options):
    return run.client("alice", **options), run.client("bob", **options)


def together(*calls):
    """Runs the calls at once; their outcomes, or the first failure."""
    outcomes = [None] * len(calls)

    def run(number, call):
        try:
            outcomes[number] = call()
        except Exception as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


def session_state(run):
    alice, bob = both(run)
    alice.call("remember", {"value": "of alice"})
    same("at bob", "None", bob.call("recall").text())
    bob.call("remember", {"value": "of bob"})
    expect(alice.call("recall").text() != "of bob", "alice got bob's state")


def session_kept(run):
    client = run.client()
    client.call("remember", {"value": "a word"})
    same("the next call", "a word", client.call("recall").text())


def same_ids(run):
    alice, bob = both(run)
    for client in (alice, bob):
        client.tools()
    for round in range(5):
        first, second = together(lambda: alice.call("echo", {"value": "alice"}, number=500 + round),
                                 lambda: bob.call("echo", {"value": "bob"}, number=500 + round))
        same("the answers", ('{"value": "alice"}', '{"value": "bob"}'), (first.text(), second.text()))


def nothing_of(client, method):
    time.sleep(0.5)
    got = [message for message in client.standing if message.get("method") == method]
    expect(not got, f"the other client got {str(got)[:200]}")


def progress_own(run):
    alice, bob = both(run)
    bob.listen()
    answer = alice.call("progress", meta={"progressToken": "same"})
    expect(answer.notified("notifications/progress"), "alice got no progress")
    nothing_of(bob, "notifications/progress")


def log_own(run):
    alice, bob = both(run)
    alice.listen()
    bob.listen()
    answer = alice.call("log")
    alice.until(lambda: [message for message in answer.messages + alice.standing if message.get("method") == "notifications/message"], 3, "alice got no message")
    nothing_of(bob, "notifications/message")


def log_level(run):
    alice, bob = both(run)
    alice.listen()
    alice.ask("logging/setLevel", {"level": "debug"})
    bob.ask("logging/setLevel", {"level": "error"})
    answer = alice.call("log")
    alice.until(lambda: [message for message in answer.messages + alice.standing if message.get("method") == "notifications/message"], 3,
                "alice, who asked for all levels, got no message after bob asked for errors only")


def answered_by_own(run, tool, method, answer_of):
    alice = run.client("alice", answers={method: answer_of("alice")})
    bob = run.client("bob", answers={method: answer_of("bob")})
    for client in (alice, bob):
        client.tools()
    for _ in range(3):
        first, second = together(lambda: alice.call(tool), lambda: bob.call(tool))
        expect("alice" in first.text() and "bob" not in first.text(), f"alice's call was answered: {first.text()[:200]}")
        expect("bob" in second.text() and "alice" not in second.text(), f"bob's call was answered: {second.text()[:200]}")


def sampling_own(run):
    answered_by_own(run, "sample", "sampling/createMessage", lambda user: {
        "role": "assistant", "content": {"type": "text", "text": f"by {user}"}, "model": f"model of {user}", "stopReason": "endTurn"})


def elicitation_own(run):
    colours = {"alice": "red", "bob": "blue"}
    clients = {user: run.client(user, answers={"elicitation/create": {"action": "accept", "content": {"colour": colour}}}) for user, colour in colours.items()}
    for client in clients.values():
        client.tools()
    for _ in range(3):
        texts = [answer.text() for answer in together(*(lambda client=client: client.call("elicit") for client in clients.values()))]
        expect("red" in texts[0] and "blue" in texts[1], f"the questions were answered: {texts}")


def roots_own(run):
    answered_by_own(run, "roots", "roots/list", lambda user: {"roots": [{"uri": f"file:///home/{user}", "name": user}]})


def cancel_own(run):
    alice, bob = both(run)
    server = run.server()
    for client in (alice, bob):
        client.tools()
    slow = run.background(lambda: alice.call("seconds", {"seconds": 2}, number=800))
    run.background(lambda: bob.call("seconds", {"seconds": 2}, number=800))
    alice.until(lambda: len(server.recorded("tools/call", "seconds")) >= 2, 10, "the calls did not reach the server")
    bob.send("notifications/cancelled", requestId=800)
    same("alice's call", "waited 2", slow.result(15).text())


def updates_own(run):
    alice, bob = both(run)
    alice.listen()
    bob.listen()
    alice.ask("resources/subscribe", {"uri": resource(alice, "demo://note")["uri"]})
    bob.call("touch", {"value": "demo://note"})
    alice.until(lambda: [message for message in alice.standing if message.get("method") == "notifications/resources/updated"], 5, "alice was not told")
    nothing_of(bob, "notifications/resources/updated")


def end_own(run):
    alice, bob = both(run)
    for client in (alice, bob):
        client.call("recall")
    alice.end()
    same("bob's call", '{"value": "bob"}', bob.call("echo", {"value": "bob"}).text())


def tasks_own(run):
    alice, bob = both(run)
    created = alice.call("seconds", {"seconds": 0.1}, task={"ttl": 60000}).result.get("task")
    expect(created, "the call did not become a task")
    try:
        got = bob.ask("tasks/get", {"taskId": created["taskId"]}).result
    except Refusal:
        return
    raise Failed(f"bob got alice's task: {json.dumps(got)[:200]}")


def session_stolen(run):
    alice = run.client("alice")
    alice.call("remember", {"value": "of alice"})
    if not alice.session:
        return
    thief = run.client("bob")
    thief.session = alice.session
    try:
        got = thief.call("recall")
    except Failed:
        return
    expect("of alice" not in got.text(), "bob read alice's state with the id of her session")


def flood(run):
    alice, bob = both(run)
    server = run.server()
    for client in (alice, bob):
        client.tools()
    for _ in range(32):
        run.background(lambda: alice.call("seconds", {"seconds": 4}, seconds=30))
    # As many as the gateway lets through at once.
    alice.until(lambda: server.recorded("tools/call", "seconds"), 10, "no call reached the server")
    time.sleep(0.5)
    begun = time.monotonic()
    bob.call("echo", {"value": "a"}, seconds=10)
    expect(time.monotonic() - begun < 2, f"bob's call took {time.monotonic() - begun:.1f} s")
