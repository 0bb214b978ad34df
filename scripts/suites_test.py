"""Tests of scripts/suites.py: what runs, in which order, beside what, and how it ends."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import suites
from suites import Records, Runner, Suite, by_urgency, load, that_fit, unchanged


def suite(name, run="true", **changes):
    row = {"scripts": ("test",), "limit": 60, "takes": 10, "cores": 1.0, **changes}
    return Suite(name, run=run, **row)


class Installed:
    """Tools that are there, but for those named."""

    def __init__(self, *missing):
        self.missing = missing

    def wanted_by(self, suite):
        return True, [f"missing: {name}" for name in suite.needs if name in self.missing]


def is_running(pid):
    """Whether there is such a process that is not a zombie: who adopts orphans may not have waited for it."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def has_ended(pid):
    """Whether the process ends: a killed one does once it is scheduled."""
    end = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_running(pid)


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_suites(self, *rows, missing=(), environment=None, **options):
        tools = Installed(*missing)
        runner = Runner(
            rows, self.folder, {**os.environ, **(environment or {})}, cores=2, tools=tools, say=lambda line: None, **options
        )
        results = runner.run()
        return {name: result.text for name, result in results.items()}, results

    def test_results_are_told_apart(self):
        texts, results = self.run_suites(
            suite("good", "echo 'test result: ok. 3 passed; 0 failed'; echo 'test result: ok. 4 passed; 0 failed'"),
            suite("bad", "exit 3"),
            suite("cannot", "exit 77"),
            suite("later", after=("bad",)),
        )
        expected = {
            "good": "passed", "bad": "FAILED", "cannot": "not run: see its log", "later": "not run: bad did not pass",
        }
        self.assertEqual(texts, expected)
        self.assertEqual(results["good"].tests, 7)

    def test_a_suite_is_ended_with_its_children_at_its_limit(self):
        pid = self.folder / "pid"
        begun = time.monotonic()
        texts, _ = self.run_suites(suite("hangs", f"sleep 1000 & echo $! >{pid}; wait", limit=1))
        self.assertEqual(texts, {"hangs": "FAILED: time limit of 1 s"})
        self.assertLess(time.monotonic() - begun, 30)
        self.assertTrue(has_ended(pid.read_text().strip()))

    def test_what_a_deadline_cuts_has_not_failed(self):
        begun = time.monotonic()
        texts, results = self.run_suites(suite("long", "sleep 1000", takes=1), deadline=begun + 2)
        self.assertEqual(texts, {"long": "not run: no time left"})
        self.assertFalse(results["long"].failed)
        self.assertLess(time.monotonic() - begun, 30)
        texts, _ = self.run_suites(suite("hangs", "sleep 1000", takes=0, limit=1), deadline=time.monotonic() + 60)
        self.assertEqual(texts, {"hangs": "FAILED: time limit of 1 s"}, "its own limit came first")

    def test_nothing_begins_that_would_not_end_before_the_deadline(self):
        ran = self.folder / "ran"
        deadline = time.monotonic() + 30
        texts, _ = self.run_suites(suite("late", f"touch {ran}", takes=31), suite("short", takes=1), deadline=deadline)
        self.assertEqual((texts, ran.exists()), ({"late": "not run: no time left", "short": "passed"}, False))
        # What it took here counts more than the table.
        texts, _ = self.run_suites(suite("late", takes=31), deadline=deadline, expected=lambda suite: 1)
        self.assertEqual(texts, {"late": "passed"})

    def test_a_run_ends_although_the_result_of_a_suite_cannot_be_read(self):
        texts, _ = self.run_suites(suite("broken", f"rm {self.folder}/broken.log"), suite("next", after=()))
        self.assertTrue(texts["broken"].startswith("FAILED: FileNotFoundError"), texts)
        self.assertEqual(texts["next"], "passed")

    def test_suites_share_the_processors(self):
        both = f"touch {self.folder}/$NAME; for _ in $(seq 200); do [ -e {self.folder}/a ] && [ -e {self.folder}/b ] && exit; sleep 0.05; done; exit 1"
        texts, _ = self.run_suites(suite("a", f"NAME=a; {both}"), suite("b", f"NAME=b; {both}"))
        self.assertEqual(set(texts.values()), {"passed"}, "one processor each: side by side")
        alone = f"mkdir {self.folder}/alone && sleep 0.3 && rmdir {self.folder}/alone"
        texts, _ = self.run_suites(*(suite(name, alone, cores=1.5) for name in "cde"))
        self.assertEqual(set(texts.values()), {"passed"}, "more than two processors together: in turns")

    def test_a_missing_tool_fails_in_ci_alone(self):
        row = suite("needs", needs=("tool",))
        self.assertEqual(self.run_suites(row, missing=["tool"], environment={"CI": ""})[0]["needs"], "not run: tool missing")
        texts, _ = self.run_suites(row, missing=["tool"], environment={"CI": "true"})
        self.assertEqual(texts["needs"], "FAILED: tool missing")


class Choice(unittest.TestCase):
    def records(self, **rows):
        records = Records(pathlib.Path("/does-not-exist"))
        records.rows = rows
        return records

    def test_changed_folders_come_first_then_what_ran_longest_ago(self):
        rows = [suite("old", folders=("src/a",)), suite("older", folders=("src/a",)), suite("touched", folders=("src/b",))]
        records = self.records(
            old={"commit": "1", "passed": 20}, older={"commit": "1", "passed": 10}, touched={"commit": "1", "passed": 30}
        )
        names = [one.name for one in by_urgency(rows, records, changes=lambda commit: ["src/b/c.rs"])]
        self.assertEqual(names, ["touched", "older", "old"])
        unknown = by_urgency([suite("never"), *rows], records, changes=lambda commit: ["x"] if commit else None)
        self.assertEqual(unknown[0].name, "never")

    def test_what_fits_is_chosen_with_what_it_comes_after(self):
        rows = [suite("long", takes=1000), suite("short", takes=10, after=("base",)), suite("base", takes=20)]
        chosen, others = that_fit(rows, self.records(), 60)
        self.assertEqual([one.name for one in chosen], ["base", "short"])
        self.assertEqual([one.name for one in others], ["long"])
        # What it took here counts more than the table.
        chosen, _ = that_fit(rows, self.records(long={"seconds": 5}), 10)
        self.assertEqual([one.name for one in chosen], ["long"])

    def test_a_suite_that_reads_nothing_that_changed_has_passed_before(self):
        rows = [suite("code", unread=("docs/", "README.md")), suite("pages"), suite("new", unread=("docs/",))]
        records = self.records(code={"commit": "1"}, pages={"commit": "1"}, new={})
        known = lambda files: lambda commit: files if commit else None
        self.assertEqual(unchanged(rows, records, known(["docs/a.md", "README.md"])), {"code": "1"})
        self.assertEqual(unchanged(rows, records, known(["docs/a.md", "src/main.rs"])), {})
        # Nothing changed: who asks again wants it to run. A commit that is not known any more says nothing.
        self.assertEqual(unchanged(rows, records, known([])), {})
        self.assertEqual(unchanged(rows, records, lambda commit: None), {})

    def test_only_what_passed_is_recorded(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "suites.json"
            results = {"good": suites.Result("passed", 12.3), "bad": suites.Result("FAILED", 1.0)}
            Records(path).store(results, "abc", 7)
            self.assertEqual(Records(path).rows, {"good": {"commit": "abc", "passed": 7, "seconds": 12}})
            path.write_text("{broken")
            self.assertEqual(Records(path).rows, {})


class Check(unittest.TestCase):
    def test_a_step_says_its_time_where_decimals_have_a_comma(self):
        script = """
            . <(sed -n '/^step()/,/^}/p' scripts/check)
            say() { echo "$*"; }
            unset EPOCHREALTIME
            EPOCHREALTIME=1700000000,500000
            step lint eval EPOCHREALTIME=1700000002,400000
        """
        done = subprocess.run(["bash", "-c", script], cwd=suites.ROOT, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("lint   passed, 1.9 s\n", ""))


class Table(unittest.TestCase):
    def test_every_row_has_its_script_a_limit_and_folders_that_exist(self):
        for row in load():
            self.assertTrue(set(row.scripts) <= {"test", "quick", "compat"} and row.scripts, row)
            self.assertLess(row.takes, row.limit, row)
            for folder in row.folders:
                parent, name = os.path.split(suites.ROOT / folder)
                found = [entry for entry in os.listdir(parent) if entry.startswith(name)]
                self.assertTrue(found, f"[{row.name}] covers {folder}, which does not exist")
            self.assertEqual("compat" in row.scripts, bool(row.folders), f"[{row.name}]: suites of compat say what they cover")

    def test_what_suites_need_can_be_installed(self):
        script = (suites.ROOT / "scripts/install").read_text()
        for row in load():
            for name in row.needs:
                self.assertRegex(script, rf"[ |]{name}(\)| \|)", f"[{row.name}] needs {name}")

    def test_a_wrong_row_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "suites.ini"
            for row, said in [("limmit = 3", "limmit"), ("after = nobody", "nobody")]:
                path.write_text(f"[a]\nrun = true\nlimit = 1\ntakes = 0\ncores = 1\n{row}\n")
                with self.assertRaisesRegex(ValueError, said):
                    load(path)


if __name__ == "__main__":
    unittest.main()
