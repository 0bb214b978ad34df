"""Which layers the sandbox of a program has in each environment, compared with the table of docs/security.md.

sandbox_layers.py IN_SANDBOX: the example of that name of the crate process-sandbox. Needs root, podman, runc, setpriv, and systemd-analyze
for the filter of the unit.
"""
import json, os, pathlib, re, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).parents[2]
UNIT = ROOT / "deploy/systemd/sekisho.service"
ENTRY = json.dumps({"command": "true", "layers": True})
IMAGE = "localhost/sekisho-sandbox-layers:1"
PODMAN = ["podman", "--log-level", "fatal", "--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
LAYERS = ["namespaces", "own /proc", "own network", "supervised connections", "Landlock", "seccomp", "limit of processes", "limit of memory"]
OF_ALL = "limit of memory of all processes"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
DELEGATED = "a machine with a cgroup that is delegated to the gateway"
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]
NO_RIGHTS = ["--cap-drop", "all", "--security-opt", "no-new-privileges"]


def on_machine(*prefix):
    return lambda program, _: [*prefix, program, ENTRY]


def in_container(*options):
    """The image has no files: those of the machine are mounted."""
    def command(program, folder):
        options_here = [option.format(folder=folder) for option in options]
        mounts = [text for path in ("/usr", program) for text in ("-v", f"{path}:{path}:ro")]
        return [*PODMAN, "run", "--rm", "--network", "none", "-e", "HOME=/home/sandbox", *LIMITS, *mounts, *options_here, IMAGE, program, ENTRY]
    return command


def in_delegated_cgroup(program, _):
    """In its child `gateway`, as `DelegateSubgroup` of systemd makes it."""
    enter = 'mkdir -p "$0/gateway" && echo $$ > "$0/gateway/cgroup.procs" && exec "$@"'
    return ["sh", "-c", enter, str(CGROUPS / "sekisho-sandbox-layers"), program, ENTRY]


def can_delegate():
    """Whether this machine has cgroups of version 2 with these controllers, and root may give them to a child."""
    control = CGROUPS / "cgroup.subtree_control"
    try:
        control.write_text("+memory +pids")
        return {"memory", "pids"} <= set(control.read_text().split())
    except OSError:
        return False


# Each row of the table, with all that it stands for.
ENVIRONMENTS = {
    "a machine, as root or as another user, also with no new privileges and without capabilities": [
        on_machine(),
        on_machine("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
        on_machine("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs", "--bounding-set", "-all"),
    ],
    DELEGATED: [in_delegated_cgroup],
    "podman with runc, as root": [in_container()],
    "podman with runc, as another user, also with `--cap-drop all`, `--read-only` and no new privileges": [
        in_container("--user", "1000:1000"),
        in_container("--user", "1000:1000", "--read-only", *NO_RIGHTS),
    ],
    "the same with `--privileged`, or with `--security-opt unmask=ALL` and `seccomp=unconfined`": [
        in_container("--user", "1000:1000", "--privileged"),
        in_container("--user", "1000:1000", "--security-opt", "unmask=ALL", "--security-opt", "seccomp=unconfined"),
    ],
    "a container whose seccomp profile refuses `unshare`, as Docker's is documented to do": [
        in_container("--user", "1000:1000", "--security-opt", "seccomp={folder}/without-unshare.json"),
    ],
    "the unit of `deploy/systemd`": [
        in_container("--user", "1000:1000", "--read-only", *NO_RIGHTS, "--security-opt", "seccomp={folder}/unit.json"),
    ],
}


def calls_of(entries):
    """The system calls of a list such as `@system-service capset`."""
    found = set()
    for entry in entries:
        if not entry.startswith("@"):
            found.add(entry)
            continue
        listed = subprocess.run(["systemd-analyze", "syscall-filter", entry], capture_output=True, text=True, check=True).stdout
        lines = [line.strip() for line in listed.splitlines()[1:]]
        found |= calls_of(line for line in lines if line and not line.startswith("#"))
    return found


def filter_of_unit():
    """The system calls that the unit allows, as systemd reads its lines one after the other."""
    allowed = set()
    for line in re.findall(r"(?m)^SystemCallFilter=(.*)$", UNIT.read_text()):
        calls = calls_of(line.removeprefix("~").split())
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    # What systemd allows in every list.
    return allowed | calls_of(["@default"])


def write_filters(folder):
    refused = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["unshare"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}
    unit = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
            "syscalls": [{"names": sorted(filter_of_unit()), "action": "SCMP_ACT_ALLOW"}]}
    for name, filter in (("without-unshare", refused), ("unit", unit)):
        (folder / f"{name}.json").write_text(json.dumps(filter))


def make_image(folder):
    """Folders, and the links of the machine's root."""
    root = folder / "root"
    for name in ("tmp", "proc", "sys", "dev", "etc", "home/sandbox", "usr"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "home/sandbox").chmod(0o777)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink(f"/{name}"):
            (root / name).symlink_to(os.readlink(f"/{name}"))
    archive = folder / "root.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    subprocess.run([*PODMAN, "import", archive, IMAGE], check=True, capture_output=True)


def layers(command):
    """What the table has about a run."""
    env = {**os.environ, "HOME": "/home/sandbox"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    applied, missing = (re.search(rf"(?m)^{name}: (.*)$", ran.stderr) for name in ("layers", "missing"))
    assert ran.returncode == 0 and applied and missing, f"{command}: {ran.returncode} {ran.stderr[-2000:]}"
    # Each with its reason in brackets.
    lacking = [layer for layer in LAYERS if f"{layer} (" in missing[1]]
    if not lacking:
        return f"all, and the {OF_ALL}" if OF_ALL in applied[1] else "all"
    return "all but " + ", ".join(lacking) if len(lacking) < 4 else applied[1]


def table():
    """The rows of the page."""
    rows = (ROOT / "docs/security.md").read_text().split("| environment | layers |\n|---|---|\n")[1].split("\n\n")[0]
    return dict(row.strip("| ").split(" | ") for row in rows.splitlines())


def main():
    expected, failed = table(), []
    if not can_delegate():
        print(f"left out, since this machine has no cgroups of version 2 for it: {DELEGATED}")
        ENVIRONMENTS.pop(DELEGATED)
        expected.pop(DELEGATED)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        program = shutil.copy(sys.argv[1], folder / "in_sandbox")
        write_filters(folder)
        make_image(folder)
        for name, commands in ENVIRONMENTS.items():
            found = sorted({layers(command(str(program), folder)) for command in commands})
            print(f"| {name} | {' / '.join(found)} |", flush=True)
            if found != [expected.pop(name, None)]:
                failed.append(name)
    subprocess.run([*PODMAN, "rmi", "-f", IMAGE], capture_output=True)
    assert not failed and not expected, f"docs/security.md has another table: {failed + list(expected)}"


main()
