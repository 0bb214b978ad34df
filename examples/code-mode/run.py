"""What are the open orders of each customer worth in euros? Asked twice: by thirty calls, one after the other, as a model makes
them, and by one program. Shows the tree of the program's calls, and what a model writes and reads in each case.

python3 run.py [ADDRESS OF THE GATEWAY [PORT OF THE SHOP]]
"""
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

import shop

gateway, port = [*sys.argv[1:], *["http://localhost:8080", "8181"][len(sys.argv) - 1:]]
# Nothing here is behind a proxy.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PROGRAM = pathlib.Path(__file__).with_name("program.py").read_text()
PATIENCE = 120


class Asked:
    """Calls, and what a model writes and reads of them. The time is that of the calls alone, without a model."""

    def __init__(self):
        self.calls = self.written = self.read = self.seconds = 0

    def call(self, tool, **arguments):
        begun = time.monotonic()
        _, reply = send(tool, arguments)
        if not reply["success"]:
            sys.exit(f"{tool}: {reply['error']}")
        self.seconds += time.monotonic() - begun
        self.calls += 1
        self.written += len(json.dumps(arguments).encode())
        self.read += len(reply["text"].encode())
        return reply


def send(tool, arguments):
    body = json.dumps({"arguments": arguments}).encode()
    request = urllib.request.Request(f"{gateway}/tools/{tool}/execute", body, {"Content-Type": "application/json"})
    try:
        with opener.open(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_until_ready():
    """The interpreter and the MCP server start after the gateway."""
    end = time.monotonic() + PATIENCE
    for tool, arguments in [("python_executor", {"code": ""}), ("rates__rate", {"currency": "USD", "day": "2026-01-01"})]:
        while (answer := send(tool, arguments))[0] in (404, 503) and time.monotonic() < end:
            time.sleep(1)
        if answer[0] != 200:
            sys.exit(f"{tool}: {answer[1]['error']}")


def one_by_one(asked):
    output = lambda tool, **arguments: asked.call(tool, **arguments)["output"]
    totals, page = {}, 1
    while page:
        found = output("shop__list_orders", page=page)
        for number in found["orders"]:
            order = output("shop__get_order", id=number)
            rate = output("rates__rate", currency=order["currency"], day=order["day"])
            lines = " + ".join(f"{line['quantity']} * {line['price']}" for line in order["lines"])
            euros = output("calculator", expression=f"({lines}) * {rate['euros']}")
            totals[order["customer"]] = round(totals.get(order["customer"], 0) + euros, 2)
        page = found.get("next")
    return totals


def show_tree(reply):
    nested = reply["receipt"]["nested"]
    print(f"python_executor  {reply['execution_time_ms']} ms, {nested['count']} calls")
    for at, call in enumerate(nested["calls"], 1):
        branch = "└─" if at == len(nested["calls"]) else "├─"
        print(f"{branch} {call['tool']:<18} {call['code'] or 'ok'} {call['duration_ms']:7.2f} ms  {call['call_id']}")


def show_comparison(rows):
    print(f"\n{'':<24}{'calls':>6}{'written':>10}{'read':>10}{'time of the calls':>20}")
    for name, asked in rows:
        print(f"{name:<24}{asked.calls:>6}{asked.written:>8} B{asked.read:>8} B{asked.seconds:>18.3f} s")


shop.serve(int(port))
wait_until_ready()
calls, program = Asked(), Asked()
totals = one_by_one(calls)
reply = program.call("python_executor", code=PROGRAM)
show_tree(reply)
show_comparison([("one after the other", calls), ("one program", program)])
print(f"\n{reply['output']['result']}")
if reply["output"]["result"] != totals:
    sys.exit(f"the calls came to something else: {totals}")
