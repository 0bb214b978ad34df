"""Peers that take their servers over HTTP, after the start."""
import subprocess, time

from client import Failed


def token(gateway, user, *options):
    """A token for a user, by the peer's own program."""
    command = ["@bin@/python", "-m", "mcpgateway.utils.create_jwt_token", "--username", user, "--exp", "10080", "--secret", gateway.peer["secret"], *options]
    done = subprocess.run(gateway.command(command), env=gateway.environment(), cwd=gateway.folder, capture_output=True, text=True, timeout=60)
    lines = done.stdout.split()
    if not lines:
        raise Failed(f"no token: {done.stderr[-300:]}")
    return lines[-1]


def contextforge(gateway):
    """Registers each server, and makes one virtual server of all their tools, resources and prompts."""
    if "operator" not in gateway.users:
        admin = {"Authorization": f"Bearer {token(gateway, 'admin@example.com', '--admin')}"}
        gateway.users = {user: admin for user in ("operator", "alice", "bob")}
    status, _ = gateway.request("GET", "/health")
    if status != 200:
        raise Failed(f"it is not healthy: {status}")
    problems = []
    for name, address in gateway.servers.items():
        status, answer = gateway.request("POST", "/gateways", {"name": name, "url": address, "transport": "STREAMABLEHTTP"})
        if status >= 300 and status != 409:
            problems.append(f"{name}: {status}: {str(answer)[:200]}")
    if len(problems) == len(gateway.servers):
        raise Failed("; ".join(problems))
    end = time.monotonic() + 10
    while not (listed := items(gateway, "tools")) and time.monotonic() < end:
        time.sleep(0.2)
    server = {"name": "scorecard", "associated_tools": listed, "associated_resources": items(gateway, "resources"), "associated_prompts": items(gateway, "prompts")}
    status, answer = gateway.request("POST", "/servers", {"server": server})
    if status >= 300:
        raise Failed(f"no virtual server: {status}: {str(answer)[:300]}")
    gateway.url = f"http://127.0.0.1:{gateway.port}/servers/{answer['id']}/mcp"


def items(gateway, kind):
    status, answer = gateway.request("GET", f"/{kind}?limit=0")
    answer = answer.get("items", answer.get(kind, [])) if isinstance(answer, dict) else answer
    return [item["id"] for item in answer] if status == 200 else []


REGISTRATIONS = {"contextforge": contextforge}
