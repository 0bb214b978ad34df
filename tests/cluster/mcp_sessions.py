"""Three replicas behind haproxy, without stickiness, and clients of the official TypeScript SDK, whose sessions go from
replica to replica: mcp_sessions.py SEKISHO FOLDER_OF_NODE_MODULES."""
import json, os, pathlib, shutil, subprocess, sys, tempfile, urllib.request
from parts import Balancer, Database, Replica, Upstream, free_port, until

sekisho, modules = sys.argv[1], pathlib.Path(sys.argv[2])
folder = pathlib.Path(tempfile.mkdtemp())
database = Database(os.environ["TEST_DATABASE_URL"], os.environ["TEST_DATABASE_CONTROL"])
upstream = Upstream([])


def settings():
    cluster = {"enabled": True, "address": f"127.0.0.1:{free_port()}", "secret": "a secret of the replicas of this test"}
    keys = [{"id": "ann", "key": "key-of-ann"}, {"id": "ada", "key": "key-of-ada", "roles": ["admin"]}]
    return {"store": {"url": database.url}, "cluster": cluster, "auth": {"api_keys": keys},
            "outbound": {"allow_networks": ["127.0.0.0/8"], "openapi_allowed_domains": ["127.0.0.1"]}}


def id_of(replica):
    request = urllib.request.Request(f"http://127.0.0.1:{replica.port}/readyz", headers={"X-API-Key": "key-of-ada"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)["replica"]


replicas = [Replica(sekisho, folder / f"r{at}", None, settings()) for at in range(3)]
balancer = None
try:
    for replica in replicas:
        replica.start()
    for replica in replicas:
        until(replica.is_ready, 60, "a replica is ready")
    balancer = Balancer(folder, replicas)
    until(lambda: urllib.request.urlopen(f"http://127.0.0.1:{balancer.port}/healthz").status == 200, 20, "haproxy answers")
    script = shutil.copy(pathlib.Path(__file__).with_suffix(".mjs"), modules)
    registration = json.dumps({"name": "effects", "spec_inline": json.dumps(upstream.document())})
    client = subprocess.Popen(["node", script, f"http://127.0.0.1:{balancer.port}", "key-of-ada", registration],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    owner = client.stdout.readline().strip()
    killed = next(replica for replica in replicas if id_of(replica) == owner)
    killed.kill()
    client.communicate("killed\n", timeout=120)
    assert client.returncode == 0, "the client failed"
finally:
    if balancer:
        balancer.stop()
    for replica in replicas:
        if replica.process and replica.process.poll() is None:
            replica.kill()
    shutil.rmtree(folder, ignore_errors=True)
