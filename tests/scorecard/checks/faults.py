"""What happens when a server dies, hangs, answers wrongly or starts again."""
import time

from checks import expect, same
from client import Failed, Lost, Refusal


def failed(client, tool, seconds):
    """The call is an error within this time: of the protocol, of HTTP, a failed result, or the end of the connection."""
    try:
        answer = client.call(tool, seconds=seconds)
    except (Refusal, Lost):
        return
    expect(answer.result.get("isError"), f"it succeeded: {str(answer.result)[:200]}")


def answers(run, client, name):
    same("the next call", "next", client.call(f"{name}-echo", {"value": "next"}, seconds=10).text())


def error_then_answer(run):
    client, name = run.client(), run.case["servers"][0]
    client.tools()
    failed(client, run.case["with"]["tool"], 10)
    answers(run, client, name)


def late(run):
    same("the call", "late", run.client().call("faulty-late", seconds=40).text())


def twice(run):
    client = run.client()
    for value in ("a", "b", "c"):
        try:
            client.call("faulty-twice")
        except (Refusal, Lost):
            pass
        same("the next call", value, client.call("faulty-echo", {"value": value}).text())


def large(run):
    client = run.client()
    try:
        answer = client.call("faulty-large", seconds=30)
        expect(answer.result.get("isError") or len(answer.text()) == 50_000_000 or "cut" in answer.text()[-400:],
               f"{len(answer.text())} characters arrived, and nothing says that some are missing")
    except (Refusal, Lost):
        pass
    answers(run, client, "faulty")


def silent_neighbour(run):
    client = run.client()
    client.tools()
    run.background(lambda: client.call("faulty-silent", seconds=20))
    client.until(lambda: run.server().recorded("tools/call", "faulty-silent"), 10, "the call did not reach the server")
    same("the other call", "next", client.call("faulty-echo", {"value": "next"}, seconds=3).text())


def works_again(run, client, name, seconds):
    """A later call works, in this session or in one that the client starts where the gateway ended it."""
    end, observed = time.monotonic() + seconds, "no call"
    while time.monotonic() < end:
        try:
            answer = client.call(f"{name}-echo", {"value": "again"}, seconds=5)
            if answer.text() == "again" and not answer.result.get("isError"):
                return
            observed = answer.text()
        except Refusal as refusal:
            observed = str(refusal)
            if refusal.status in (400, 404):
                # The client is told that its session is over.
                client = run.client()
        except Failed as failed_call:
            observed = str(failed_call)
        time.sleep(0.5)
    raise Failed(f"no call works within {seconds} s: {observed[:300]}")


def restart(run):
    client, server = run.client(), run.server()
    answers(run, client, server.name)
    server.sessions.clear()
    works_again(run, client, server.name, 10)


def server_returns(run):
    client, server = run.client(), run.server()
    answers(run, client, server.name)
    server.present = False
    try:
        failed(client, f"{server.name}-echo", 10)
        time.sleep(3)
    finally:
        server.present = True
    works_again(run, client, server.name, 20)


def listed_within(run, name, seconds):
    end, observed = time.monotonic() + seconds, ""
    while time.monotonic() < end:
        try:
            client = run.client()
            return client, client.tool(name)
        except Failed as failed_list:
            observed = str(failed_list)
        time.sleep(0.5)
    raise Failed(f"not within {seconds} s: {observed[:300]}")


def slow_start(run):
    time.sleep(4)
    run.server("absent").present = True
    client, _ = listed_within(run, "absent-echo", 40)
    answers(run, client, "absent")


def other_server(run):
    client, _ = listed_within(run, "recall", 15)
    same("the call", '{"value": "a"}', client.call("echo", {"value": "a"}, seconds=10).text())
