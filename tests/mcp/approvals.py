"""Calls that a person must approve, through the official SDKs for Python and TypeScript in both eras of the protocol. A client that
opens pages for its user waits until an approver has decided over REST; one that opens none calls again. A bank counts what was paid.

    approvals.py SEKISHO FOLDER_OF_NODE_MODULES
"""

import asyncio
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

from gateway import KEY, Gateway

APPROVER = "key-of-the-approver"
# How the SDKs name the eras, and the revision that is negotiated.
MODES = {"legacy": "2025-11-25", "auto": "2026-07-28"}


class Bank(http.server.ThreadingHTTPServer):
    """An HTTP API with one operation, which records what it is sent."""

    daemon_threads = True

    def __init__(self):
        paid = self.paid = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                paid.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                answer = json.dumps({"receipt": len(paid)}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def settings(self):
        properties = {"to": {"type": "string"}, "amount": {"type": "number"}}
        schema = {"type": "object", "required": ["to", "amount"], "properties": properties}
        operation = {
            "operationId": "pay",
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {"200": {"description": "paid", "content": {"application/json": {"schema": {"type": "object"}}}}},
        }
        document = {"openapi": "3.1.0", "info": {"title": "Bank", "version": "1"}, "paths": {"/pay": {"post": operation}},
                    "servers": [{"url": f"http://127.0.0.1:{self.server_port}"}]}
        # Each line is YAML, a superset of JSON.
        collections = {"collections": {"bank": {"spec_inline": json.dumps(document)}}}
        overrides = {"overrides": {"bank__pay": {"approval": "always"}}}
        return f"openapi: {json.dumps(collections)}\ntools: {json.dumps(overrides)}\n"


def decide(gateway, approval, decision):
    """As an approver does, whose key is not the client's."""
    headers = {"Authorization": f"Bearer {APPROVER}"}
    connection, response = gateway.request("POST", f"/approvals/{approval}/{decision}", {"reason": "for rent"}, headers)
    assert response.status == 200, response.read()
    connection.close()


def decide_when_it_waits(gateway, approval, decision):
    gateway.until(lambda: gateway.metric("shannon_approval_waiters") == 1, 20, "the call waits")
    decide(gateway, approval, decision)


async def use(gateway, bank, mode):
    """One client that opens pages, one that opens none."""
    http_client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    server = lambda: streamable_http_client(f"http://127.0.0.1:{gateway.port}/mcp", http_client=http_client)
    payment = lambda amount: {"to": f"Zoë 関所 {mode}", "amount": amount}
    decision, opened = "approve", []

    async def open_page(context, params):
        approval = params.url.rpartition("/console/approvals/")[2]
        opened.append(asyncio.create_task(asyncio.to_thread(decide_when_it_waits, gateway, approval, decision)))
        return ElicitResult(action="accept")

    async with Client(server(), mode=mode, elicitation_callback=open_page) as client:
        paid = await client.call_tool("bank__pay", payment(1.5))
        assert not paid.is_error and "receipt" in paid.content[0].text, paid
        decision = "deny"
        denied = await client.call_tool("bank__pay", payment(2))
        assert denied.is_error and "denied this call (for rent)" in denied.content[0].text, denied
        assert denied.structured_content["error_info"]["code"] == "approval_denied", denied
        await asyncio.gather(*opened)
        assert len(opened) == 2, opened
        assert client.protocol_version == MODES[mode], client.protocol_version

    async with Client(server(), mode=mode) as client:
        refused = await client.call_tool("bank__pay", payment(3))
        needed = refused.structured_content["error_info"]
        assert refused.is_error and needed["code"] == "approval_required", refused
        await asyncio.to_thread(decide, gateway, needed["approval"]["id"], "approve")
        paid = await client.call_tool("bank__pay", payment(3))
        assert not paid.is_error, paid
    assert bank.paid == [payment(1.5), payment(3)], bank.paid
    bank.paid.clear()
    await http_client.aclose()
    print(f"Python SDK, {MODES[mode]}: passed")


def use_typescript(gateway, bank, modules):
    """The same, by a script that knows both keys."""
    script = shutil.copy(pathlib.Path(__file__).with_suffix(".mjs"), modules)
    for mode, revision in MODES.items():
        command = ["node", script, f"http://127.0.0.1:{gateway.port}", KEY, APPROVER, mode, revision]
        subprocess.run(command, check=True, timeout=60)
        payments = [{"to": f"Zoë 関所 {mode}", "amount": amount} for amount in [1.5, 3]]
        assert bank.paid == payments, bank.paid
        bank.paid.clear()


def main(sekisho, modules):
    bank = Bank()
    with tempfile.TemporaryDirectory() as folder:
        keys = f", {{id: boss, key: {APPROVER}, roles: [approver]}}"
        gateway = Gateway(sekisho, pathlib.Path(folder), {}, yaml=bank.settings(), keys=keys)
        try:
            gateway.until(lambda: "bank__pay" in gateway.tools(), 30, "the tool is listed")
            for mode in MODES:
                asyncio.run(use(gateway, bank, mode))
            use_typescript(gateway, bank, pathlib.Path(modules))
            gateway.stop()
        finally:
            if gateway.process.poll() is None:
                gateway.process.kill()


main(*sys.argv[1:])
