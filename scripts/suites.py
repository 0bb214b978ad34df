#!/usr/bin/env python3
"""Runs suites of tests from the table scripts/suites.ini and prints a table of the results.

scripts/test and scripts/compat are its two commands. What a suite needs from outside of cargo is installed while others
compile; suites run side by side while their `cores` fit the machine. A tool that cannot be installed is named with the line
that installs it; with CI=true that is a failure. Needs nothing but Python's standard library.
"""

import argparse
import configparser
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "scripts/suites.ini"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sekisho"
# Lines of a failed suite's output that are printed again at the end: logs are often cut from the top.
TAIL = 60
# Seconds between two lines of progress, and between the two signals that end a suite.
PROGRESS, GRACE = 60, 10
# A suite is begun if one and a half times the time that it took before is left: machines differ.
RESERVE = 1.5
# The result of a suite for which the time of the run is too short.
NO_TIME = "not run: no time left"
# The exit status of a suite that cannot run here, which is neither a success nor a failure.
UNCHECKED = 77


@dataclasses.dataclass(frozen=True)
class Suite:
    """A row of the table. `limit` and `takes` are seconds, `cores` the processors that it keeps busy, `unread` beginnings of the
    paths that make no difference to it."""

    name: str
    scripts: tuple
    run: str
    limit: int
    takes: int
    cores: float
    needs: tuple = ()
    after: tuple = ()
    folders: tuple = ()
    unread: tuple = ()


@dataclasses.dataclass
class Result:
    """How a suite ended: `text` is `passed`, or why not; seconds of the clock and of the processors; tests that passed."""

    text: str
    seconds: float = 0.0
    processor: float = 0.0
    tests: int = 0

    @property
    def passed(self):
        return self.text == "passed"

    @property
    def failed(self):
        return self.text.startswith("FAILED")


def load(path=TABLE):
    """The rows of the table, in its order."""
    table = configparser.ConfigParser(interpolation=None, strict=True)
    with open(path, encoding="utf-8") as file:
        table.read_file(file)
    known = {field.name for field in dataclasses.fields(Suite)} - {"name"}
    suites = []
    for name in table.sections():
        row = table[name]
        if unknown := set(row) - known:
            raise ValueError(f"{path}: [{name}] has an unknown key: {', '.join(sorted(unknown))}")
        words = {key: tuple(row.get(key, "").split()) for key in ("scripts", "needs", "after", "folders", "unread")}
        suites.append(
            Suite(name, run=row["run"], limit=int(row["limit"]), takes=int(row["takes"]), cores=float(row["cores"]), **words)
        )
    names = {suite.name for suite in suites}
    for suite in suites:
        if missing := set(suite.after) - names:
            raise ValueError(f"{path}: [{suite.name}] comes after a suite that is not there: {', '.join(missing)}")
    return suites


class Tools:
    """Installs what suites need, one after the other, beside everything else."""

    def __init__(self, names, environment, log):
        self.ready = {name: threading.Event() for name in names}
        self.missing = {}
        self.environment, self.log = environment, log
        threading.Thread(target=self._install, daemon=True).start()

    def _install(self):
        for name, event in self.ready.items():
            try:
                command = [ROOT / "scripts/install", name]
                done = subprocess.run(
                    command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800
                )
                text, failed = done.stdout + done.stderr, done.returncode != 0
            except (OSError, subprocess.TimeoutExpired) as error:
                text, failed = f"missing: {name}: {error}\n", True
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(text)
            if failed:
                lines = [line for line in text.splitlines() if line.startswith("missing:")]
                self.missing[name] = lines[-1] if lines else f"missing: {name}"
            event.set()

    def wanted_by(self, suite):
        """Whether all of it is decided, and what is missing."""
        decided = all(self.ready[name].is_set() for name in suite.needs)
        return decided, [self.missing[name] for name in suite.needs if name in self.missing]


class Runner:
    """Runs suites side by side, in the order given as far as processors and tools allow."""

    def __init__(self, suites, logs, environment, cores=None, tools=None, deadline=None, expected=None, say=print):
        self.suites, self.logs, self.environment, self.say = suites, logs, environment, say
        self.cores = cores or os.cpu_count() or 2
        logs.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys(name for suite in suites for name in suite.needs)
        self.tools = tools or Tools(names, environment, logs / "install.log")
        self.deadline = deadline
        # Seconds that a suite takes.
        self.expected = expected or (lambda suite: suite.takes)
        self.results, self.running = {}, {}
        self.changed = threading.Condition()

    def run(self):
        """The results by name, in the order in which the suites were given."""
        said = time.monotonic()
        try:
            with self.changed:
                while len(self.results) < len(self.suites):
                    self._start_what_fits()
                    self.changed.wait(1)
                    if self.running and time.monotonic() - said >= PROGRESS:
                        said = time.monotonic()
                        under_way = (f"{name} ({minutes(said - begun)})" for name, (_, begun, _) in self.running.items())
                        self.say(f"   ... running: {', '.join(under_way)}")
        finally:
            # Those that end now are removed by their threads.
            with self.changed:
                left = list(self.running.values())
            for process, _, _ in left:
                end(process, signal.SIGKILL)
        return {suite.name: self.results[suite.name] for suite in self.suites}

    def _start_what_fits(self):
        names = {suite.name for suite in self.suites}
        for suite in self.suites:
            if suite.name in self.results or suite.name in self.running:
                continue
            before = [name for name in suite.after if name in names]
            if any(name not in self.results for name in before):
                continue
            if failed := [name for name in before if not self.results[name].passed]:
                self._record(suite, Result(f"not run: {failed[0]} did not pass"))
                continue
            if self.deadline is not None and time.monotonic() + self.expected(suite) > self.deadline:
                # Others, or what it needs, took longer than they should.
                self._record(suite, Result(NO_TIME))
                continue
            decided, missing = self.tools.wanted_by(suite)
            if not decided:
                continue
            if missing:
                self.say(missing[0])
                is_ci = self.environment.get("CI") == "true"
                self._record(suite, Result("FAILED: tool missing" if is_ci else "not run: tool missing"))
                continue
            busy = sum(min(other.cores, self.cores) for _, _, other in self.running.values())
            if self.running and busy + min(suite.cores, self.cores) > self.cores + 1e-9:
                continue
            self._start(suite)

    def _start(self, suite):
        self.say(f"── {suite.name}")
        log = open(self.logs / f"{suite.name}.log", "w", encoding="utf-8")
        process = subprocess.Popen(
            ["bash", "-c", f". scripts/common.sh || exit; {suite.run}"],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        begun = time.monotonic()
        self.running[suite.name] = (process, begun, suite)
        threading.Thread(target=self._wait, args=(suite, process, begun, log), daemon=True).start()

    def _wait(self, suite, process, begun, log):
        try:
            result = self._result(suite, process, begun, log)
        except BaseException as error:  # The run waits until there is a result.
            end(process, signal.SIGKILL)
            result = Result(f"FAILED: {error!r}", time.monotonic() - begun)
        with self.changed:
            del self.running[suite.name]
            self.changed.notify()
            self._record(suite, result)

    def _result(self, suite, process, begun, log):
        """Waits until a suite has ended, and ends it when it takes too long."""
        limit, at_limit = suite.limit, f"FAILED: time limit of {minutes(suite.limit)}"
        if self.deadline is not None and self.deadline - begun < limit:
            limit, at_limit = max(1, self.deadline - begun), NO_TIME
        late = threading.Event()

        def stop():
            late.set()
            end(process, signal.SIGTERM)
            if not ended.wait(GRACE):
                end(process, signal.SIGKILL)

        ended = threading.Event()
        timer = threading.Timer(limit, stop)
        timer.daemon = True
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        timer.cancel()
        # What it left running would hold ports and processors of the next.
        end(process, signal.SIGKILL)
        log.close()
        seconds = time.monotonic() - begun
        text = {0: "passed", UNCHECKED: "not run: see its log"}.get(process.returncode, "FAILED")
        if late.is_set():
            text = at_limit
        output = (self.logs / f"{suite.name}.log").read_text(encoding="utf-8", errors="replace")
        tests = sum(int(found) for found in re.findall(r"^test result: ok\. (\d+) passed", output, re.MULTILINE))
        return Result(text, seconds, usage.ru_utime + usage.ru_stime, tests)

    def _record(self, suite, result):
        self.results[suite.name] = result
        self.say(f"   {suite.name}: {result.text}" + (f", {minutes(result.seconds)}" if result.seconds else ""))


def end(process, number):
    """Sends a signal to a suite and everything that it started."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def minutes(seconds):
    """A duration as people read it."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


class Records:
    """When each suite passed last on this machine, on which commit, and how long it took."""

    def __init__(self, path):
        self.path = path
        try:
            self.rows = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.rows = {}

    def expected(self, suite):
        """Seconds that it takes here: measured, or else from the table."""
        return self.rows.get(suite.name, {}).get("seconds", suite.takes)

    def store(self, results, commit, now):
        for name, result in results.items():
            if result.passed:
                self.rows[name] = {"commit": commit, "passed": now, "seconds": round(result.seconds)}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.rows, indent=1, sort_keys=True), encoding="utf-8")
        new.replace(self.path)


def changed_since(commit):
    """The files that differ from a commit; `None` where the commit is unknown."""
    if not commit:
        return None
    shown = subprocess.run(["git", "diff", "--name-only", commit, "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return shown.stdout.splitlines() if shown.returncode == 0 else None


def unchanged(suites, records, changes=changed_since):
    """The commit on which each suite passed that would read the same files now. Not where no file differs: who asks again wants
    it to run again."""
    found = {}
    for suite in suites:
        commit = records.rows.get(suite.name, {}).get("commit")
        files = changes(commit)
        if files and suite.unread and all(file.startswith(suite.unread) for file in files):
            found[suite.name] = commit
    return found


def by_urgency(suites, records, changes=changed_since):
    """Suites whose folders changed since they passed first, then those that passed longest ago."""

    def urgency(suite):
        row = records.rows.get(suite.name, {})
        files = changes(row.get("commit"))
        touched = files is None or any(file.startswith(folder) for file in files for folder in suite.folders)
        return (not touched, row.get("passed", 0))

    return sorted(suites, key=urgency)


def that_fit(suites, records, seconds):
    """The first of the suites that fit into the time, with those that they come after, and the others. One after the other: that
    some run side by side is a reserve."""
    by_name, chosen, others = {suite.name: suite for suite in suites}, {}, []
    for suite in suites:
        added = [by_name[name] for name in suite.after if name in by_name and name not in chosen] + [suite]
        added = [one for one in added if one.name not in chosen]
        cost = RESERVE * sum(records.expected(one) for one in added)
        if cost <= seconds:
            seconds -= cost
            chosen.update((one.name, one) for one in added)
    others = [suite for suite in suites if suite.name not in chosen]
    return list(chosen.values()), others


def print_results(results, not_chosen, logs, passed_before=None):
    """The end of what failed suites printed, and the table."""
    for name, result in results.items():
        log = logs / f"{name}.log"
        if result.failed and log.exists():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            print(f"\n── the end of what {name} printed ({log})")
            # A test that did not end is one of these.
            print("\n".join([line for line in lines if "has been running for over" in line] + lines[-TAIL:]))
    print(f"\n{'suite':<18} {'result':<34} {'tests':>6} {'time':>9} {'processor':>10}")
    for name, result in results.items():
        tests = str(result.tests or "")
        print(f"{name:<18} {result.text:<34} {tests:>6} {minutes(result.seconds):>9} {minutes(result.processor):>10}")
    for suite in not_chosen:
        print(f"{suite.name:<18} {NO_TIME:<34}")
    passed_before = passed_before or {}
    for name, commit in passed_before.items():
        print(f"{name:<18} passed before, on {commit[:8]}: no file that it reads differs")
    passed = sum(result.passed for result in results.values())
    failed = sum(result.failed for result in results.values())
    print(f"\nsuites: {passed} passed, {failed} failed, {len(results) - passed - failed + len(not_chosen) + len(passed_before)} skipped")


def environment():
    """What every suite finds: the lints run in the build of the tests, whose program all suites share."""
    variables = dict(os.environ)
    target = variables.setdefault("CARGO_TARGET_DIR", str(ROOT / "target"))
    variables.setdefault("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
    variables["PROGRAM"] = f"{target}/debug/sekisho"
    return variables


def run(suites, not_chosen, logs, deadline=None, passed_before=None):
    """Runs them, prints the table, and gives the exit code."""
    begun = time.monotonic()
    print(f"logs: {logs}")
    records = Records(CACHE / "suites.json")
    runner = Runner(
        suites, logs, environment(), deadline=deadline, expected=records.expected, say=lambda line: print(line, flush=True)
    )
    results = runner.run()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    clean = not subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout
    # What was not committed has no name that a later run could compare with.
    records.store(results, head if clean else None, int(time.time()))
    print_results(results, not_chosen, logs, passed_before)
    print(f"time: {minutes(time.monotonic() - begun)}")
    return int(any(result.failed for result in results.values()))


def test(arguments):
    parser = argparse.ArgumentParser(prog="scripts/test", description="Runs the suites that every change passes.")
    parser.add_argument("--quick", action="store_true", help="only what needs neither Python packages nor a database server")
    parser.add_argument(
        "--changed",
        action="store_true",
        help="leave out the suites that passed on this machine on a commit from which only files differ that they do not read",
    )
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    options = parser.parse_args(arguments)
    suites = [suite for suite in load() if ("quick" if options.quick else "test") in suite.scripts]
    if options.list:
        return print_table(suites)
    passed_before = unchanged(suites, Records(CACHE / "suites.json")) if options.changed else {}
    suites = [suite for suite in suites if suite.name not in passed_before]
    return run(suites, [], CACHE / "logs", passed_before=passed_before)


def compat(arguments):
    parser = argparse.ArgumentParser(
        prog="scripts/compat",
        description="Runs the suites beside scripts/test: other people's clients, servers and tools, long runs, and lists of "
        "vulnerabilities. All of them, or those named.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a suite of the table")
    parser.add_argument(
        "--within",
        type=float,
        metavar="MINUTES",
        help="only as many as fit into this time: those whose folders changed since they passed here, then those that passed "
        "longest ago",
    )
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    options = parser.parse_args(arguments)
    suites = [suite for suite in load() if "compat" in suite.scripts]
    if unknown := set(options.names) - {suite.name for suite in suites}:
        parser.error(f"no suite is called {', '.join(sorted(unknown))}; `scripts/compat --list` names them")
    if options.names:
        suites = [suite for suite in suites if suite.name in options.names]
    not_chosen, deadline = [], None
    if options.within is not None:
        records = Records(CACHE / "suites.json")
        suites, not_chosen = that_fit(by_urgency(suites, records), records, 60 * options.within)
        deadline = time.monotonic() + 60 * options.within
    if options.list:
        return print_table(suites)
    if not suites:
        print(f"no time for any suite of scripts/compat: {', '.join(suite.name for suite in not_chosen)}")
        return 0
    return run(suites, not_chosen, CACHE / "logs", deadline)


def print_table(suites):
    records = Records(CACHE / "suites.json")
    print(f"{'suite':<18} {'takes':>9} {'limit':>9} {'cores':>6}   covers")
    for suite in suites:
        times = f"{minutes(records.expected(suite)):>9} {minutes(suite.limit):>9} {suite.cores:>6}"
        print(f"{suite.name:<18} {times}   {' '.join(suite.folders)}")
    return 0


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or [""]
    commands = {"test": test, "compat": compat}
    if command not in commands:
        sys.exit(f"usage: {shlex.quote(sys.argv[0])} test|compat [OPTION...]")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(commands[command](rest))
