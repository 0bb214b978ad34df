"""The machines of the test: database, links, upstream server, replicas, load balancer."""
import asyncio, contextlib, http.server, json, os, pathlib, shlex, signal, socket, subprocess, threading, time, urllib.request

CALLERS = ["ann", "bob", "cay"]
# Who approves their calls.
APPROVER = "eve"
# Whose programs make calls.
PROGRAMMER = "dan"
KEY = "key-of-{}"
READY_SECONDS = 60
# Above 4 MiB a reply is not kept in the database.
LARGE_BYTES = 5 << 20
# By kind: how long a call takes, so that replicas are killed meanwhile.
SECONDS = {"approved": 0.5, "nested": 0.2}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(holds, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if found := holds():
                return found
        time.sleep(0.1)
    raise AssertionError(f"not so within {seconds} s: {what}")


class Database:
    """PostgreSQL, which can be stopped as by a crash, and started again."""

    def __init__(self, url, control):
        self.url, self.control = url, shlex.split(control)
        authority = url.split("@")[1].split("/")[0]
        self.port = int(authority.split(":")[1])

    def through(self, port):
        return self.url.replace(f":{self.port}/", f":{port}/")

    def crash(self):
        self.run("stop", "-m", "immediate")

    def start(self):
        self.run("start")

    def programs(self):
        """The folder of PostgreSQL's programs."""
        return pathlib.Path(next(word for word in self.control if word.endswith("/pg_ctl"))).resolve().parent

    def psql(self, sql, url=None):
        """What statements answer, line by line."""
        command = [self.programs() / "psql", "--quiet", "--no-align", "--tuples-only", "--set", "ON_ERROR_STOP=1", url or self.url]
        return subprocess.run(command, input=sql, check=True, capture_output=True, text=True).stdout.strip()

    def number(self, query, url=None):
        return int(self.psql(query, url))

    def run(self, *arguments):
        subprocess.run([*self.control, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")


class Links:
    """TCP proxies in a thread of their own, each of which can be cut, stalled and slowed."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def make(self, target_port):
        link = Link(target_port)
        asyncio.run_coroutine_threadsafe(link.listen(), self.loop).result()
        link.loop = self.loop
        return link


class Link:
    def __init__(self, target_port):
        self.target_port, self.port = target_port, None
        self.is_cut, self.delay = False, 0.0
        self.writers, self.flows = set(), None

    async def listen(self):
        self.flows = asyncio.Event()
        self.flows.set()
        server = await asyncio.start_server(self.carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def carry(self, reader, writer):
        if self.is_cut:
            return writer.close()
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            self.writers |= {writer, far_writer}
            await asyncio.gather(self.copy(reader, far_writer), self.copy(far_reader, writer))
            self.writers -= {writer, far_writer}
        writer.close()

    async def copy(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self.flows.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self):
        self.is_cut = True
        self.loop.call_soon_threadsafe(lambda: [writer.transport.abort() for writer in list(self.writers)])

    def stall(self):
        self.loop.call_soon_threadsafe(self.flows.clear)

    def slow(self, seconds):
        self.delay = seconds

    def heal(self):
        self.is_cut, self.delay = False, 0.0
        self.loop.call_soon_threadsafe(self.flows.set)


class Upstream:
    """An HTTP API whose operations do nothing but record that they were called. The reply of `large` is kept in object storage."""

    KINDS = ["keyed", "large", "priced", "slow_rate", "fast_rate", "approved", "nested"]

    def __init__(self, history):
        record = self.record
        self.history = history

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(record(self.path.strip("/"), body)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                """Connections of replicas that were killed."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def record(self, kind, body):
        self.history.append({"type": "effect", "kind": kind, "n": body["n"], "caller": body["caller"], "time": time.monotonic(),
                             "day": time.strftime("%Y-%m-%d", time.gmtime())})
        time.sleep(SECONDS.get(kind, 0))
        return {"done": body["n"]} | ({"text": "x" * LARGE_BYTES} if kind == "large" else {})

    def document(self):
        schema = {"type": "object", "required": ["n", "caller"],
                  "properties": {"n": {"type": "integer"}, "caller": {"type": "string"}}}
        operation = lambda kind: {
            "operationId": kind, "summary": f"Records a call ({kind}).",
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {"200": {"description": "done", "content": {"application/json": {"schema": {"type": "object"}}}}},
        }
        return {"openapi": "3.1.0", "info": {"title": "Effects", "version": "1"},
                "servers": [{"url": f"http://127.0.0.1:{self.port}"}],
                "paths": {f"/{kind}": {"post": operation(kind)} for kind in self.KINDS}}


class Clock:
    """The wall clock of one replica, which libfaketime moves. Clocks that measure how long something takes go on."""

    def __init__(self, file):
        self.file = file
        self.set(0)

    def set(self, seconds):
        self.file.write_text(f"{seconds:+d}")

    def environment(self):
        library = next(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        return {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
                "DONT_FAKE_MONOTONIC": "1"}


class Replica:
    """One gateway in a process of its own, whose connection to the database is a link."""

    def __init__(self, sekisho, folder, link, settings):
        self.sekisho, self.folder, self.link = sekisho, folder, link
        folder.mkdir()
        self.clock = Clock(folder / "clock")
        self.port = free_port()
        self.config = folder / "sekisho.yaml"
        # YAML is a superset of JSON.
        server = {"listen": f"127.0.0.1:{self.port}", "shutdown_grace_seconds": 10, **settings.get("server", {})}
        self.config.write_text(json.dumps({**settings, "server": server, "state_directory": str(folder / "state")}))
        self.process = None

    def start(self):
        log = open(self.folder / "log", "a")
        # Where the interpreter of programs is set up.
        cache = {name: os.environ[name] for name in ("XDG_CACHE_HOME",) if name in os.environ}
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/tmp"), **cache, **self.clock.environment()}
        self.process = subprocess.Popen([self.sekisho, "--config", self.config, "serve"], stdout=log, stderr=log, env=environment)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def is_ready(self):
        assert self.process.poll() is None, f"{self.folder.name} ended: {self.tail()}"
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as response:
            return response.status == 200

    def tail(self):
        return (self.folder / "log").read_text()[-3000:]

    def audit(self, *arguments):
        command = [self.sekisho, "--config", self.config, "audit", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": "/tmp"})


class Balancer:
    """haproxy: one replica after the other, without stickiness."""

    def __init__(self, folder, replicas):
        self.port = free_port()
        servers = "\n".join(f"    server r{at} 127.0.0.1:{replica.port} check inter 500ms fall 2 rise 1"
                            for at, replica in enumerate(replicas))
        config = folder / "haproxy.cfg"
        config.write_text(f"""
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout check 3s
    option redispatch
    retries 2
frontend all
    bind 127.0.0.1:{self.port}
    default_backend replicas
backend replicas
    balance roundrobin
    option httpchk
    http-check send meth GET uri /readyz hdr Host localhost
{servers}
""")
        self.process = subprocess.Popen(["haproxy", "-db", "-q", "-f", config])

    def stop(self):
        self.process.kill()
        self.process.wait()
