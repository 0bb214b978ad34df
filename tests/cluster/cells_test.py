"""What docs/cells.md shows works: the router sends tenants to their cells, and a tenant's rows move from one database to another.
With a database of scripts/with-postgresql."""
import http.client, http.server, os, pathlib, re, subprocess, tempfile, threading

from parts import Database, free_port, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cells.md").read_text()
SEPARATOR = "\x1f"


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[1]


def cell(name):
    """A server that answers with its name."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(name)))
            self.end_headers()
            self.wfile.write(name.encode())

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_):
            """Connections of the checks of its health."""
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def the_router_sends_a_tenant_to_its_cell(folder):
    map_file, port = folder / "cells.map", free_port()
    map_file.write_text("acme.tools.example cell-1\nglobex.tools.example cell-2\nwayne.tools.example moving\n")
    config = block("haproxy").replace("bind :8080", f"bind 127.0.0.1:{port}").replace("/etc/haproxy/cells.map", str(map_file))
    for name in ["cell-1", "cell-2"]:
        config = re.sub(rf"{name}-[ab]:8080", f"127.0.0.1:{cell(name)}", config)
    (folder / "haproxy.cfg").write_text("defaults\n    timeout connect 2s\n    timeout client 5s\n    timeout server 5s\n" + config)
    haproxy = subprocess.Popen(["haproxy", "-db", "-q", "-f", folder / "haproxy.cfg"])

    def asked(host):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/tools/list", headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    try:
        until(lambda: asked("acme.tools.example")[0] == 200, 10, "the router answers")
        assert asked("ACME.tools.example:8080") == (200, "cell-1")
        assert asked("globex.tools.example") == (200, "cell-2")
        assert asked("wayne.tools.example")[0] == 503
        assert asked("other.tools.example")[0] == 404
    finally:
        haproxy.kill()
        haproxy.wait()


def rows_of(tenant):
    """A row in each table that has something of a tenant."""
    caller = f"{tenant}{SEPARATOR}ann"
    runs = "".join(f"INSERT INTO {table} ({columns}) VALUES ('run-{tenant}', {values});" for table, columns, values in [
        ("message_logs", "run, position, session_id, message, incomplete", "1, 's', '{}', 0"),
        ("turn_journal", "run, turn, message", "1, '{}'"),
        ("tool_execution_logs", "run, tool_use_id, position, turn, tool_name, tool_input, begun", "'call', 1, 1, 'time', '{}', 1"),
        ("usage_logs", "run, position, agent, model, turns, tool_calls, prompt_tokens, completion_tokens, cached_tokens, "
         "cache_write_tokens, cost_usd, duration_ms", "1, 'a', 'm', 1, 1, 1, 1, 1, 1, '0.1', 1"),
    ])
    return f"""
INSERT INTO daily_usage VALUES ('2026-11-25', 'caller', '{caller}', '0.1', 1), ('2026-11-25', 'tenant', '{tenant}', '0.1', 1);
INSERT INTO model_usage VALUES ('2026-11-25', '{caller}', 'a', 'replay', 'm', 1, 1, 1, 1, 1, 1, 1);
INSERT INTO tenant_resources VALUES ('{tenant}', 'skill', 'pdf', '{{}}');
INSERT INTO thread_summaries VALUES ('{caller}', 'thread', 'text', 1);
INSERT INTO agent_runs VALUES ('2026-11-25T00:00:00Z', '{caller}', 'a', 'm', 'stop', 1, 1, 1, 1, '0.1', 1);
INSERT INTO idempotency_records VALUES ('id-{tenant}', '{tenant}', '{caller}', 'digest', 1, '{{}}', 2, 1, 1);
INSERT INTO conversations (id, caller_key, status, agent, workspace, labels, created, changed, fence, held_until, stop_fence)
VALUES ('talk-{tenant}', '{caller}', 'active', 'a', 0, '{{}}', 1, 1, 1, 1, 0);
INSERT INTO conversation_runs (id, conversation, number, session_id, agent, user_input, status, begun)
VALUES ('run-{tenant}', 'talk-{tenant}', 1, 's', 'a', 'text', 'succeeded', 1);
INSERT INTO session_prefixes VALUES ('talk-{tenant}', 's', 'a', 1, '{{}}', '[]');
INSERT INTO session_summaries VALUES ('talk-{tenant}', 's', 1, 1, 'text');
INSERT INTO plans VALUES ('plan-{tenant}', '{caller}', 'a', '', 'done', '', 'process', 1, '2026-11-25', '2026-11-25', '{{}}');
INSERT INTO plan_vectors VALUES ('plan-{tenant}', 'digest', 'm', 'AAAA');
INSERT INTO managed_keys (id, tenant, person, description, roles, sha256, created, created_by)
VALUES ('key-{tenant}', '{tenant}', 'ann', '', '[]', 'digest', 1, 'default/root');
INSERT INTO approvals (id, tenant, caller_key, caller_id, tool, state, call_digest, tool_digest, details, arguments, decisions,
    uses, fence, revision, created, expires, changed)
VALUES ('approval-{tenant}', '{tenant}', '{caller}', 'ann', 'time', 'pending', 'call', 'tool', '{{}}', 'sealed', '[]',
    0, 0, 1, 1, 1, 1);
INSERT INTO results (handle, tenant, caller_key, session, content_type, bytes, sealed, created, expires)
VALUES ('handle-{tenant}', '{tenant}', '{caller}', '', 'text/plain', 1, 'sealed', 1, 1);
INSERT INTO user_tokens VALUES ('{caller}', 'mcp:crm', '{tenant}', 'ann', 'sealed', '', 1, 0, 0, 1, 1);
INSERT INTO user_sign_ins VALUES ('{caller}', 'mcp:crm', '{tenant}', 'ann', 'sign-in-{tenant}', 'sealed', 0, NULL, NULL, 1);
INSERT INTO results (handle, tenant, caller_key, session, content_type, bytes, sealed, created, expires)
VALUES ('result-{tenant}', '{tenant}', '{caller}', '', 'text/plain', 1, 'sealed', 1, 1);
INSERT INTO source_requests VALUES ('{tenant}', 'mcp:crm', '{caller}', 'request-{tenant}', 'ann', '', 'a reason', 'asked', '', '', 1, 1);
INSERT INTO flow_destinations VALUES ('{tenant}', '', 'mail', '/to', 'hash', 1, 1, 1);
INSERT INTO flow_sessions VALUES ('{caller}', 'digest', 1);
INSERT INTO flow_values VALUES ('{caller}', 'digest', 1, 'sealed', 1);
INSERT INTO paused_runs VALUES ('{caller}', 'call', '{{}}', 2, 1);
INSERT INTO program_runs (id, tenant, caller_key, endpoint, arguments, state, runner, fence, created, expires)
VALUES ('program-{tenant}', '{tenant}', '{caller}', 'all', 'digest', 'stopped', 'process', 1, 1, 1);
INSERT INTO recorded_runs VALUES ('run-{tenant}', '{tenant}', '{caller}', 'agent', 'main', 1, 'sealed', 1, 1);
INSERT INTO program_run_parts VALUES ('program-{tenant}', 0, 'sealed');
INSERT INTO background_runs (id, tenant, caller_key, conversation, kind, state, runs, request, attempts, stopped, created, changed)
VALUES ('background-{tenant}', '{tenant}', '{caller}', 'talk-{tenant}', 'run', 'ended', '', 'sealed', 0, 0, 1, 1);
{runs}"""


def a_tenant_moves_alone(folder, database):
    urls = []
    for name in ["cell_1", "cell_2"]:
        database.psql(f"CREATE DATABASE {name}")
        urls.append(database.url.rpartition("/")[0] + f"/{name}")
        for file in sorted((ROOT / "src/store/migrations").glob("*.sql")):
            database.psql(file.read_text(), urls[-1])
    old, new = urls
    database.psql(rows_of("acme") + rows_of("acme2"), old)
    script = block("bash")
    tables = re.search(r"<<'TABLES'.*?\n(.*?)\nTABLES", script, re.DOTALL)[1].splitlines()
    path = f"{database.programs()}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "from": old, "to": new, "tenant": "acme"}
    subprocess.run(["bash", "-c", script], check=True, cwd=folder, env=environment)
    for table in (line.split()[0] for line in tables):
        # The rows of the other tenant are the same, with its name.
        count = lambda url, text: database.number(f"SELECT COUNT(*) FROM {table} row WHERE row::TEXT LIKE '%{text}%'", url)
        moved = count(new, "acme")
        assert moved == count(old, "acme") - count(old, "acme2") > 0, (table, moved)
        assert count(new, "acme2") == 0, f"{table} has rows of another tenant"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        the_router_sends_a_tenant_to_its_cell(pathlib.Path(folder))
        a_tenant_moves_alone(folder, Database(os.environ["TEST_DATABASE_URL"], os.environ["TEST_DATABASE_CONTROL"]))
    print("cells: the router and the move work as docs/cells.md shows")
