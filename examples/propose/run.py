"""Ann's program orders and pays: one approval for all of it. Boss strikes one order out, and approves the rest.

python3 run.py [ADDRESS OF THE GATEWAY [PORT OF THE SHOP]]
"""
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

from shop import Shop

gateway, port = [*sys.argv[1:], *["http://localhost:8080", "8181"][len(sys.argv) - 1:]]
# Nothing here is behind a proxy.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PROGRAM = pathlib.Path(__file__).with_name("program.py").read_text()
PATIENCE = 120


def send(person, path, body=None):
    headers = {"X-API-Key": f"key-of-{person}", "Content-Type": "application/json"}
    request = urllib.request.Request(gateway + path, None if body is None else json.dumps(body).encode(), headers)
    try:
        with opener.open(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


def run(code, **arguments):
    return send("ann", "/tools/python_executor/execute", {"arguments": {"code": code, **arguments}})


shop = Shop(int(port))
end = time.monotonic() + PATIENCE
while not (ready := run(""))["success"]:
    # The interpreter starts after the gateway.
    if time.monotonic() > end:
        sys.exit(ready["error"])
    time.sleep(1)

asked = run(PROGRAM, mode="propose")["error_info"]
print(f"asked, and {len(shop.effects)} calls have reached the shop's orders and payments")
approval = asked["approval"]["id"]
for effect in send("boss", f"/approvals/{approval}")["arguments"]["effects"]:
    print(f"call {effect['call']}: {effect['tool']} {json.dumps(effect['arguments'])}")
# Call 3 orders sugar.
print(send("boss", f"/approvals/{approval}/approve", {"strike": [3]})["status"])
reply = send("ann", f"/runs/{asked['run']}/resume", {})
if not reply["success"]:
    sys.exit(reply["error"])
for path, body in shop.effects:
    print(f"made: POST {path} {json.dumps(body)}")
print(json.dumps(reply["output"]["result"]))
