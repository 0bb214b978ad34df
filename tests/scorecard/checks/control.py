"""Whether the gateway holds what its configuration says: users, rules, limits and approvals. The record of the server decides."""
import time

from checks import expect, same
from checks.sharing import together
from client import Client, Failed, Refusal


def reached(run, tool):
    return len(run.server().recorded("tools/call", tool))


def outcome(call):
    """Whether a call succeeded: an error of any kind is a refusal."""
    try:
        return not call().result.get("isError")
    except Refusal:
        return False


def refused(run, headers):
    try:
        client = Client(run.gateway.url, headers).initialize()
        client.call("echo", {"value": "a"})
    except Refusal as refusal:
        expect(refusal.status in (401, 403), f"the status is {refusal.status}: {str(refusal)[:200]}")
    except Failed as failed:
        expect("not listed" in str(failed), str(failed))
    same("calls at the server", 0, reached(run, "echo"))


def no_credentials(run):
    refused(run, {})


def wrong_credentials(run):
    refused(run, {"Authorization": "Bearer sk-of-nobody-0123456789"})


def credentials_stay(run):
    client = run.client("alice")
    client.call("echo", {"value": "a"})
    secrets = [value.removeprefix("Bearer ") for value in run.gateway.users["alice"].values()]
    headers = run.server().recorded("tools/call")[-1]["headers"]
    leaked = [name for name, value in headers.items() if any(secret in value for secret in secrets)]
    expect(not leaked, f"the server got alice's credentials in {leaked}")


def tools_of_a_user(run):
    run.client("alice").tool("recall")
    listed = [tool["name"] for tool in run.client("bob").tools()]
    expect(listed and not [name for name in listed if name.endswith("recall")], f"bob's list: {listed}"[:300])


def calls_of_a_user(run):
    alice, bob = run.client("alice"), run.client("bob")
    expect(outcome(lambda: alice.call("recall")), "alice's call was refused")
    bob.names = alice.names
    expect(not outcome(lambda: bob.call("recall")), "bob's call succeeded")
    same("calls at the server", 1, reached(run, "recall"))


def arguments_rule(run):
    client = run.client("alice")
    expect(outcome(lambda: client.call("echo", {"value": "allowed"})), "the allowed call was refused")
    expect(not outcome(lambda: client.call("echo", {"value": "forbidden"})), "the forbidden call succeeded")
    same("calls at the server", 1, reached(run, "echo"))


def in_parallel(run):
    """20 calls of 4 sessions at once."""
    clients = [run.client("alice") for _ in range(4)]
    for client in clients:
        client.tools()
    together(*(lambda client=clients[number % 4]: outcome(lambda: client.call("echo", {"value": "a"})) for number in range(20)))
    got = reached(run, "echo")
    expect(1 <= got <= 5, f"{got} calls reached the server")


def rate_parallel(run):
    in_parallel(run)


def rate_own(run):
    alice, bob = run.client("alice"), run.client("bob")
    for _ in range(12):
        outcome(lambda: alice.call("shaped", {"at": {"x": 1, "y": 2}}))
    expect(reached(run, "shaped") <= 6, f"alice's limit of 5 let {reached(run, 'shaped')} through")
    expect(outcome(lambda: bob.call("shaped", {"at": {"x": 1, "y": 2}})), "bob's call was refused")


def money_parallel(run):
    in_parallel(run)


def waits(client, path):
    """Sends a call that waits for an approval, and gives it up after 2 s where the answer waits, too."""
    try:
        return outcome(lambda: client.call("erase", {"path": path}, seconds=2))
    except Failed:
        return False


def approval_first(run):
    client = run.client("alice")
    client.tools()
    expect(not waits(client, "/a"), "the call was not held back")
    same("calls at the server", 0, reached(run, "erase"))
    run.gateway.approve()
    expect(outcome(lambda: client.call("erase", {"path": "/a"})), "the approved call was refused")
    same("calls at the server", 1, reached(run, "erase"))


def approval_exact(run):
    client = run.client("alice")
    client.tools()
    waits(client, "/b")
    run.gateway.approve()
    waits(client, "/c")
    paths = [entry["params"]["arguments"]["path"] for entry in run.server().recorded("tools/call", "erase")]
    expect("/c" not in paths, "the other call reached the server")
    expect(outcome(lambda: client.call("erase", {"path": "/b"})), "the approved call was refused")


def reload(run):
    client = run.client("alice")
    expect(outcome(lambda: client.call("recall")), "alice's call was refused before the change")
    run.gateway.take_away("recall")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if not outcome(lambda: client.call("recall")):
            return
        time.sleep(0.5)
    raise Failed("the call still succeeds after 10 s")
