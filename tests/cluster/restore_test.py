"""The commands of docs/operations.md bring a PostgreSQL store back: restore_test.py SEKISHO, with a database of scripts/with-postgresql."""
import json, os, pathlib, re, subprocess, sys, tempfile, urllib.request

from parts import READY_SECONDS, Database, Replica, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = {"openapi": "3.1.0", "info": {"title": "Ping", "version": "1"}, "servers": [{"url": "http://127.0.0.1:9"}],
            "paths": {"/ping": {"get": {"operationId": "ping", "responses": {"200": {"description": "pong"}}}}}}


def ask(replica, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{replica.port}{path}", body and json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Authorization": "Bearer root-key"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def register(replica, name):
    ask(replica, "/tools/openapi/register", {"name": name, "spec_inline": json.dumps(DOCUMENT)})


def call(replica):
    assert ask(replica, "/tools/calculator/execute", {"arguments": {"expression": "6*7"}})["success"]


def spent(replica):
    return ask(replica, "/admin/usage?days=1")


def start(replica):
    replica.start()
    until(replica.is_ready, READY_SECONDS, f"the gateway is ready: {replica.tail()}")


def main(sekisho):
    page = (ROOT / "docs/operations.md").read_text()
    dump, restore, check = re.search(r"```bash\n(pg_dump .*?)\n```", page, re.DOTALL)[1].splitlines()
    server = Database(os.environ["TEST_DATABASE_URL"], os.environ["TEST_DATABASE_CONTROL"])
    server.psql("CREATE DATABASE restored")
    url = server.url.rpartition("/")[0] + "/restored"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        settings = {"store": {"url": url}, "auth": {"api_keys": [{"id": "root", "key": "root-key", "roles": ["admin"]}]},
                    "outbound": {"openapi_allowed_domains": ["127.0.0.1"], "allow_networks": ["127.0.0.1/32"]},
                    "tools": {"overrides": {"calculator": {"cost_per_use": 0.1}}}}
        gateway = Replica(sekisho, folder / "gateway", None, settings)
        environment = {"PATH": f"{folder}:{server.programs()}:{os.environ['PATH']}", "HOME": str(folder), "DATABASE_URL": url}
        wrapper = folder / "sekisho"
        wrapper.write_text(f"#!/bin/sh\nexec {sekisho} --config {gateway.config} \"$@\"\n")
        wrapper.chmod(0o755)

        def run(command):
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, (command, done.stdout + done.stderr)
        start(gateway)
        try:
            register(gateway, "before")
            call(gateway)
            until(lambda: "0.1" in json.dumps(spent(gateway)), 20, "the spending is stored")
            run(dump)
            register(gateway, "after")
            call(gateway)
            assert gateway.stop() == 0, gateway.tail()
            run(restore)
            run(check)
            start(gateway)
            tools = json.dumps(ask(gateway, "/tools/list"))
            assert "before__ping" in tools and "after__ping" not in tools, tools
            text = json.dumps(spent(gateway))
            assert "0.1" in text and "0.2" not in text, text
            call(gateway)
            assert gateway.stop() == 0, gateway.tail()
            # The trail has all calls, also those that the store no longer knows.
            run(check)
            lines = gateway.audit("export", "--json").stdout.splitlines() or gateway.audit("export").stdout.splitlines()
            assert sum(json.loads(line).get("tool_name", json.loads(line).get("tool")) == "calculator" for line in lines) == 3, lines
        finally:
            if gateway.process.poll() is None:
                gateway.kill()
    print("restore: the commands of docs/operations.md work")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
