"""The official SDKs for Python and TypeScript, and mcp-remote, sign their user in through a gateway that stands in front of a provider
without registration (npm oidc-provider), in the shape of Entra and of Google. The user's browser is a program.

    broker.py SEKISHO FOLDER_OF_NODE_MODULES
"""

import html.parser
import http.cookiejar
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from gateway import Gateway

TESTS = pathlib.Path(__file__).parent
CLIENT, SECRET = "gateway-at-the-provider", "secret-of-the-gateway"
PATHS = {"entra": "/0b4c1f5e-3a7d-4c55-9a53-1f2e3d4c5b6a/v2.0", "google": ""}
RULES = {"entra": "roles_claim: roles, roles: {Tools.Admin: [support]}", "google": "roles_claim: email, roles: {ann@acme.example: [support]}"}


class Forms(html.parser.HTMLParser):
    """The first form of a page: its address and its fields, with the first button that has a name."""

    def __init__(self, page):
        super().__init__()
        self.action, self.fields, self.is_open, self.has_button = None, {}, False, False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        name = attributes.get("name")
        if tag == "form" and self.action is None:
            self.action, self.is_open = attributes.get("action", ""), True
        elif self.is_open and tag == "input" and name:
            self.fields[name] = attributes.get("value") or ("ann" if name == "login" else "x")
        elif self.is_open and tag == "button" and name and not self.has_button:
            self.fields[name], self.has_button = attributes.get("value", ""), True

    def handle_endtag(self, tag):
        self.is_open = self.is_open and tag != "form"


class Browser:
    """Follows redirects and answers each form, until a page has none."""

    def __init__(self):
        # Browsers send such cookies to this machine without encryption, too.
        policy = http.cookiejar.DefaultCookiePolicy(secure_protocols=("http", "https"))
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar(policy))
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def sign_in(self, address):
        request, shown = urllib.request.Request(address), []
        for _ in range(6):
            with self.opener.open(request, timeout=30) as response:
                page, url = response.read().decode(), response.url
            form = Forms(page)
            if form.action is None:
                return shown
            shown.append(page)
            target = urllib.parse.urljoin(url, form.action)
            request = urllib.request.Request(target, urllib.parse.urlencode(form.fields).encode())
            request.add_unredirected_header("Origin", "{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(target)))
        raise AssertionError(f"the pages have no end: {shown[-1]}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def sign_in(name, command, folder, environment):
    """Runs a client until it has called as its user; the pages that the user saw."""
    said = folder / f"{name}.log"
    with open(said, "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    try:
        end, address = time.monotonic() + 60, None
        while address is None:
            assert process.poll() is None and time.monotonic() < end, f"{name} asks for no sign-in: {said.read_text()}"
            address = re.search(r"http://127\.0\.0\.1:\d+/\S*code_challenge=\S+", said.read_text())
            time.sleep(0.1)
        pages = Browser().sign_in(address[0])
        assert process.wait(90) == 0, f"{name}: {said.read_text()}"
    finally:
        process.kill()
        process.wait()
    assert "called as a user" in said.read_text(), said.read_text()
    return pages


def clients(url, modules, folder):
    """The commands of the clients, each with its environment."""
    node = str(modules / "node_modules/.bin/node")
    python = [sys.executable, str(TESTS / "broker_client.py")]
    script = modules / "broker_client.mjs"
    shutil.copy(TESTS / "broker_client.mjs", script)
    remote = str(modules / "node_modules/.bin/mcp-remote")
    own = {**os.environ, "PATH": f"{modules}/node_modules/.bin:{os.environ['PATH']}"}
    # It keeps what it registered in its user's folder.
    home = {**own, "HOME": str(folder)}
    yield "Python SDK", [*python, url], own
    yield "TypeScript SDK", [node, str(script), url], own
    yield "mcp-remote", [*python, "--through", remote, url], home


def run(shape, sekisho, modules, folder):
    at_provider, port = free_port(), free_port()
    issuer = f"http://127.0.0.1:{at_provider}{PATHS[shape]}"
    script = modules / "broker_provider.mjs"
    shutil.copy(TESTS / "broker_provider.mjs", script)
    command = [modules / "node_modules/.bin/node", script, str(at_provider), CLIENT, SECRET, shape, PATHS[shape]]
    with open(folder / "provider.log", "w") as log:
        provider = subprocess.Popen(command, stdout=log, stderr=log)
    gateway = None
    try:
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", at_provider)).close()
                break
            except OSError:
                assert provider.poll() is None and time.monotonic() < end, (folder / "provider.log").read_text()
                time.sleep(0.1)
        broker = (
            f"provider: {shape}, issuer: '{issuer}', client_id: {CLIENT}, client_secret: {SECRET}, "
            f"{RULES[shape]}, tokens: {{access: 2s}}"
        )
        gateway = Gateway(sekisho, folder, {}, port=port, auth=f", anonymous: never, broker: {{{broker}}}")
        for name, command, environment in clients(f"http://127.0.0.1:{port}/mcp", modules, folder):
            pages = sign_in(name, command, folder, environment)
            assert "/oauth/consent" in pages[0], f"{name}: the gateway asks first: {pages[0]}"
            print(f"{shape}: {name} signed in, with {len(pages)} pages", flush=True)
        sessions = gateway.json("GET", "/admin/oauth/sessions")["items"]
        assert len(sessions) == 3, sessions
        gateway.stop()
    finally:
        if gateway:
            gateway.process.kill()
        provider.kill()
        provider.wait()


if __name__ == "__main__":
    for shape in PATHS:
        with tempfile.TemporaryDirectory() as folder:
            run(shape, sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(folder))
