"""The gateways: the one that runs a peer with its configuration of `peers/`, an address, and the server directly."""
import contextlib, http.client, json, os, pathlib, shutil, signal, socket, subprocess, sys, tempfile, time, urllib.parse

from client import Client, Failed, normal

FOLDER = pathlib.Path(__file__).parent
START_SECONDS = 120
UV = "0.13.9"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def filled(template, values):
    """Lines with `@name@` are repeated for each server; other marks get their values."""
    lines = []
    for line in template.splitlines():
        if "@name@" in line:
            lines += [line.replace("@name@", name).replace("@address@", address) for name, address in values["servers"].items()]
        else:
            lines.append(line)
    text = "\n".join(lines) + "\n"
    for name, value in values.items():
        if isinstance(value, str):
            text = text.replace(f"@{name}@", value)
    entries = {name: {"url": address, "transport": "http"} for name, address in values["servers"].items()}
    return text.replace("@mcpServers@", json.dumps(entries, indent=2))


class Direct:
    """The server without a gateway: the floor."""

    users, paths = {}, {}

    def __init__(self, servers):
        self.url = next(iter(servers.values()))

    def stop(self):
        """The server is stopped by who started it."""


class Address:
    """A gateway that somebody else runs."""

    users, paths = {}, {}

    def __init__(self, url):
        self.url = url

    def stop(self):
        """It is not ours."""


class Process:
    """A peer that was started with a configuration of the repository, in a folder of its own."""

    def __init__(self, peer, servers, configuration):
        self.peer, self.servers = peer, servers
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"scorecard-{peer['name']}-"))
        self.port = free_port()
        self.users = peer.get("users", {})
        self.values = {"port": str(self.port), "folder": str(self.folder), "servers": servers, "bin": str(peer["folder"] / "bin"), "program": peer["program"],
                       "address": next(iter(servers.values())),
                       "server_port": str(urllib.parse.urlsplit(next(iter(servers.values()))).port), "admin_port": str(free_port())}
        self.url = filled(peer["url"], self.values).strip()
        self.paths = {name: filled(path, self.values).strip() for name, path in peer.get("paths", {}).items()}
        self.configuration = configuration
        try:
            self.configure()
            self.prepare()
            self.begin()
        except BaseException:
            self.stop()
            raise

    def configure(self):
        """Writes the files of the configuration; a peer without one of that name has its default."""
        configurations = self.peer["configurations"]
        self.write(configurations.get(self.configuration, configurations["default"]))

    def write(self, files):
        for target, name in files.items():
            target = self.folder / target
            target.parent.mkdir(exist_ok=True)
            target.write_text(filled((FOLDER / "peers" / name).read_text(), self.values))

    def environment(self):
        own = {name: filled(value, self.values).strip() for name, value in self.peer.get("environment", {}).items()}
        return {**os.environ, "PATH": f"{self.values['bin']}:{os.environ['PATH']}", "HOME": str(self.folder), **own}

    def command(self, parts):
        return [filled(part, self.values).strip() for part in parts]

    def prepare(self):
        """The commands before the start, such as one that accepts the tools as they are."""
        for parts in self.peer.get("prepare", {}).get(self.configuration, []):
            done = subprocess.run(self.command(parts), env=self.environment(), cwd=self.folder, capture_output=True, text=True, timeout=60)
            if done.returncode:
                raise Failed(f"{parts}: {done.stdout[-300:]}{done.stderr[-300:]}")

    def begin(self):
        self.log = open(self.folder / "log", "a")
        self.process = subprocess.Popen(self.command(self.peer["command"]), env=self.environment(), cwd=self.folder, stdout=self.log, stderr=self.log,
                                        start_new_session=True)
        self.until_ready()

    def until_ready(self):
        """Until it answers; then, for at most 15 s, until it lists tools of a server: there may be none."""
        end = time.monotonic() + START_SECONDS
        registered, observed = not self.peer.get("register"), ""
        answered = False
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Failed(f"it ended with {self.process.returncode}: {self.last_lines()}")
            try:
                if not registered:
                    self.register()
                    registered = True
                client = Client(self.url, self.users.get("alice", {})).initialize(5)
                if not answered:
                    answered, end = True, min(end, time.monotonic() + 15)
                listed = [normal(tool["name"]) for tool in client.tools()]
                client.end()
                if any(name.endswith("echo") for name in listed):
                    return
            except (Failed, OSError) as failed:
                observed = str(failed)
            time.sleep(0.2)
        if not answered:
            raise Failed(f"it does not answer within {START_SECONDS} s: {observed[:200]}")

    def last_lines(self):
        return " ".join((self.folder / "log").read_text(errors="replace")[-400:].split())

    # What only some peers have. The names of the requests are data of the peer.

    def request(self, method, path, body=None, user="operator", form=False):
        parts = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        headers = {"Content-Type": kind, **self.users.get(user, {})}
        encoded = urllib.parse.urlencode(body) if form else None if body is None else json.dumps(body)
        with contextlib.closing(connection):
            connection.request(method, path, encoded, headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def register(self):
        """Peers that take their servers over HTTP: one request for each."""
        from registration import REGISTRATIONS
        REGISTRATIONS[self.peer["register"]](self)

    def approve(self):
        """Approves every call that waits."""
        asked = self.peer["approvals"]
        _, waiting = self.request("GET", asked["list"], user="approver")
        for approval in waiting[asked["member"]]:
            status, answer = self.request("POST", asked["approve"].replace("ID", approval["id"]), {}, user="approver")
            if status >= 300:
                raise Failed(f"the approval failed: {answer}")

    def take_away(self, tool):
        """Replaces the configuration by one without the tool, and tells the process."""
        self.write(self.peer["configurations"]["without"])
        self.process.send_signal(signal.SIGHUP)

    def audit_lines(self):
        lines = []
        for pattern in self.peer["audit"]:
            for file in self.folder.glob(pattern):
                lines += file.read_text(errors="replace").splitlines()
        return lines

    def processes(self):
        """The ids of the process and of all that it started."""
        found, grown = {self.process.pid}, True
        while grown:
            grown = False
            for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    number, parent = int(stat.parent.name), int(stat.read_text().rsplit(") ", 1)[1].split()[1])
                    if parent in found and number not in found:
                        found.add(number)
                        grown = True
        return found

    # Its end.

    def end(self):
        """Tells it to end, as its documentation says, and waits for that: some have a request that lets running calls finish first."""
        if before := self.peer.get("before_end"):
            parts = urllib.parse.urlsplit(filled(before["post"], self.values).strip())
            with contextlib.closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)) as connection:
                connection.request("POST", f"{parts.path}?{parts.query}")
                connection.getresponse().read()
            time.sleep(before["seconds"])
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)

    def stop(self):
        process = getattr(self, "process", None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.log.close()
        if not os.environ.get("SCORECARD_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)


class Peer:
    """A kind of gateway: its row of peers.json, how it is started, and what it does not offer or cannot be tried here."""

    def __init__(self, row, start, servers=None, version=None):
        self.row, self.start, self.servers = row, start, servers
        self.name, self.not_offered, self.not_run = row["name"], row.get("not_offered", {}), row.get("not_run", {})
        self.version = version or row.get("version", "")


def rows():
    return json.loads((FOLDER / "peers.json").read_text())


def installed(row, cache, program):
    """Installs a peer once into the cache; why it cannot be, or None. One at a time, and behind everything else on the machine."""
    row["folder"], row["program"] = cache / row["name"], program
    if "install" not in row:
        return None
    wanted, folder = json.dumps(row["install"]), row["folder"]
    mark = folder / "wanted"
    if mark.exists() and mark.read_text() == wanted:
        return None
    print(f"installing {row['name']} {row['version']} ...", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    log, installer = cache / f"{row['name']}.log", installer_of(cache)
    version = ["--python", row["install"]["python"]] if "python" in row["install"] else []
    steps = [[installer, "venv", *version, str(folder)], [installer, "pip", "install", "--python", str(folder / "bin/python"), *row["install"]["packages"]]]
    if installer is None or not all(ran(step, log) for step in steps):
        return f"its installation failed ({log})"
    mark.write_text(wanted)
    return None


def installer_of(cache):
    """uv, in an environment of its own; None where that cannot be made."""
    folder = cache / "uv"
    program = folder / "bin/uv"
    if not program.exists():
        log = cache / "uv.log"
        cache.mkdir(parents=True, exist_ok=True)
        if not ran([sys.executable, "-m", "venv", str(folder)], log) or not ran([str(folder / "bin/pip"), "install", "--quiet", f"uv=={UV}"], log):
            return None
    return str(program)


def ran(command, log):
    with open(log, "a") as file:
        return subprocess.run(["nice", "-n", "19", *command], stdout=file, stderr=file).returncode == 0


def peer_of(row):
    if row["name"] == "direct":
        return Peer(row, lambda servers, configuration: Direct(servers))
    return Peer(row, lambda servers, configuration: Process(row, servers, configuration))
