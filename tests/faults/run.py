"""Puts faults of the past back, and runs the tests that must fail with them: scripts/faults says how.

Each entry of faults.json has the finding, the edits that put its fault back, and its tests. Faults that hide each other are in
different builds (`a` and `b`). The edits are made in a copy of the checkout, with a target directory of its own.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
ENTRIES = json.loads((CHECKOUT / "tests/faults/faults.json").read_text())
# A fault may make a test wait.
SECONDS_OF_A_TEST = 180


def put_back(folder, entries):
    """Makes the edits; the ids of entries whose text is no longer there as often as it was."""
    stale = []
    for entry in entries:
        texts = {edit["file"]: (folder / edit["file"]).read_text() for edit in entry["edits"]}
        if any(texts[edit["file"]].count(edit["text"]) != edit["times"] for edit in entry["edits"]):
            stale.append(entry["id"])
            continue
        for edit in entry["edits"]:
            file = folder / edit["file"]
            file.write_text(file.read_text().replace(edit["text"], edit["replacement"]))
    return stale


def without_lints(folder):
    """Code with a fault may have unused parts."""
    file = folder / "Cargo.toml"
    text = re.sub(r'(?ms)^\[workspace\.lints\.(rust|clippy)\]\n.*?(?=^\[|\Z)', "", file.read_text())
    allowed = '\n[workspace.lints.rust]\nwarnings = "allow"\n\n[workspace.lints.clippy]\nall = "allow"\n'
    file.write_text(text + allowed)


def cargo(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "RUSTC_WORKSPACE_WRAPPER"}
    environment["CARGO_TARGET_DIR"] = str(folder.parent / "target")
    command = ["cargo", "test", "--locked", "--quiet", "--features", "test-programs", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)


def fails(folder, test):
    """Whether a test is there and fails."""
    target = ["--lib"] if test["target"] == "lib" else ["--test", test["target"]]
    package = ["--package", test["package"]]
    limit = ["timeout", str(SECONDS_OF_A_TEST)]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(folder.parent / "target"))
    environment.pop("RUSTC_WORKSPACE_WRAPPER", None)
    command = [*limit, "cargo", "test", "--locked", "--features", "test-programs", *package, *target, "--", "--exact", test["name"]]
    ended = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
    return ended.returncode == 124 or f"test {test['name']} ... FAILED" in ended.stdout


def main():
    parser = argparse.ArgumentParser(prog="scripts/faults", description="Puts faults back, and runs the tests that must fail.")
    parser.add_argument("folder", type=pathlib.Path, help="where the copies are built")
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these faults")
    options = parser.parse_args()
    missed = []
    for build in ("a", "b"):
        entries = [entry for entry in ENTRIES if entry["build"] == build and (not options.ids or entry["id"] in options.ids)]
        if not entries:
            continue
        folder = options.folder / "checkout"
        shutil.rmtree(folder, ignore_errors=True)
        ignored = shutil.ignore_patterns("target", ".git", "node_modules")
        shutil.copytree(CHECKOUT, folder, ignore=ignored, symlinks=True)
        stale = put_back(folder, entries)
        missed += [f"{id}: the text of its fault is no longer there" for id in stale]
        without_lints(folder)
        built = cargo(folder, "--workspace", "--no-run", "--lib", "--bins", "--tests")
        if built.returncode:
            sys.exit(f"the program with faults does not build:\n{built.stderr[-4000:]}")
        for entry in entries:
            if entry["id"] in stale:
                continue
            for test in entry["tests"]:
                failed = fails(folder, test)
                print(f"{entry['id']:8} {'fails' if failed else 'PASSES'}  {test['package']} {test['name']}", flush=True)
                if not failed:
                    missed.append(f"{entry['id']}: {test['name']} passes with the fault: {entry['fault']}")
    print(f"{len(missed)} missed")
    sys.exit("\n".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
