#!/usr/bin/env python3
"""Runs a program that was built with some features, and calls tools of each kind that it must have.

Usage: features.py PROGRAM MCP-SERVER [FEATURE...]
"""

import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

PROGRAM, MCP_SERVER, *FEATURES = sys.argv[1:]
FEATURES = {feature for feature in FEATURES if feature}
START = 60


def configuration(api):
    """A gateway with the MCP server, and with an HTTP API of one operation at this address."""
    answers = {"200": {"description": "alive", "content": {"application/json": {"schema": {"type": "object"}}}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Health", "version": "1"},
        "servers": [{"url": f"http://{api}"}],
        "paths": {"/health": {"get": {"operationId": "health", "responses": answers}}},
    }
    return {
        "server": {"listen": "127.0.0.1:0"},
        "outbound": {"openapi_allowed_domains": ["127.0.0.1"], "allow_networks": ["127.0.0.1/32"]},
        "mcp": {"servers": {"time": {"command": MCP_SERVER}}},
        "openapi": {"collections": {"service": {"spec_inline": json.dumps(document)}}},
    }


class Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"path": self.path}).encode())

    def log_message(self, *_):
        pass


def ask(address, path, body=None):
    """The status and the body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}{path}", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def run(*arguments, home):
    environment = {"HOME": home, "PATH": os.environ["PATH"]}
    return subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=60)


class Features(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.home = cls.folder.name
        cls.api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
        threading.Thread(target=cls.api.serve_forever, daemon=True).start()
        # JSON is YAML.
        file = pathlib.Path(cls.home, "sekisho.yaml")
        file.write_text(json.dumps(configuration("127.0.0.1:%d" % cls.api.server_port)))
        log = pathlib.Path(cls.home, "log")
        environment = {"HOME": cls.home, "PATH": os.environ["PATH"]}
        with log.open("w") as output:
            command = [PROGRAM, "serve", "--config", str(file)]
            cls.gateway = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=cls.home)
        cls.address = cls.wait(lambda: re.search(r"127\.0\.0\.1:[1-9]\d*", log.read_text()), log).group()
        cls.wait(lambda: "time__get_current_time" in ask(cls.address, "/tools/list")[1], log)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.terminate()
        cls.gateway.wait(30)
        cls.api.shutdown()
        cls.folder.cleanup()

    @classmethod
    def wait(cls, condition, log):
        end = time.monotonic() + START
        while time.monotonic() < end:
            if found := condition():
                return found
            if cls.gateway.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"the gateway did not get ready:\n{log.read_text()}")

    def execute(self, tool, arguments):
        status, text = ask(self.address, f"/tools/{tool}/execute", {"arguments": arguments})
        return status, json.loads(text)

    def test_built_in_tools_answer(self):
        status, answer = self.execute("calculator", {"expression": "(2+3)*7"})
        self.assertEqual((status, answer["success"]), (200, True), answer)
        self.assertIn("35", json.dumps(answer["output"]))

    def test_tools_of_an_mcp_server_answer(self):
        status, answer = self.execute("time__get_current_time", {"timezone": "Asia/Tokyo"})
        self.assertEqual((status, answer["success"]), (200, True), answer)
        self.assertIn("Asia/Tokyo", json.dumps(answer["output"]))

    def test_operations_of_an_http_api_answer(self):
        status, answer = self.execute("service__health", {})
        self.assertEqual((status, answer["success"]), (200, True), answer)
        self.assertIn("/health", json.dumps(answer["output"]))

    def test_the_sandbox_is_there_or_says_why_not(self):
        status, answer = self.execute("python_executor", {"code": "print(1)"})
        self.assertNotEqual(status, 200, "its interpreter is not prepared in this home")
        message = json.dumps(answer)
        self.assertEqual("built without" in message, "sandbox" not in FEATURES, message)
        listed = run("sandbox", "list", home=self.home)
        self.assertEqual(listed.returncode == 0, "sandbox" in FEATURES, listed)

    def test_the_console_is_there_or_not(self):
        status, text = ask(self.address, "/console")
        self.assertEqual(status != 404, "console" in FEATURES, text)
        self.assertEqual("/console/plans" in text, {"agent", "console"} <= FEATURES, text)

    def test_agents_are_there_or_not(self):
        status, text = ask(self.address, "/v1/models")
        self.assertEqual(status, 200 if "agent" in FEATURES else 404, text)
        document = json.loads(ask(self.address, "/openapi.json")[1])
        tags = {tag["name"] for tag in document["tags"]}
        self.assertEqual("plans" in tags, "agent" in FEATURES, tags)
        self.assertIn("tools", tags)
        self.assertEqual("/api/conversations" in document["paths"], "agent" in FEATURES)
        helped = run("chat", "--help", home=self.home)
        self.assertEqual(helped.returncode == 0, "agent" in FEATURES, helped)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
