"""Counts what becomes of effects when processes are killed, and ends with the counts as JSON.

effects.py PROGRAM BFCL DOJO [--json] [--points COUNT | --all]: the program, and files with the tasks of the data sets. On SQLite, and on the
PostgreSQL server of TEST_DATABASE_URL where that is set. Without --all, COUNT calls of each data set are cut, spread over all of it (10).
Then 1 000 changes of a program after its effects are approved (proposals.py), and 100 recorded runs that are played again (replays.py).
"""
import argparse
import collections
import json
import os
import pathlib
import sys

import cuts
import proposals
import replays

NAMES = [
    "calls", "duplicated", "lost", "wrongly_failed", "unknown", "resolved", "mutations", "mutations_passed", "runs", "replayed_equal",
    "sent_upstream",
]
MIN_RESOLVED = 0.9


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/effects", description="Kills gateway and upstream between effect and answer.")
    parser.add_argument("program", help="the gateway's program")
    parser.add_argument("tasks", nargs=2, type=pathlib.Path, help="files with tasks, each a list of calls: [tool, arguments]")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON in the last line")
    how_many = parser.add_mutually_exclusive_group()
    how_many.add_argument("--points", type=int, default=10, metavar="COUNT", help="calls of each data set")
    how_many.add_argument("--all", action="store_true", help="all calls")
    return parser.parse_args()


def main():
    options = arguments()
    sources = [json.loads(file.read_text()) for file in options.tasks]
    stores = {"SQLite": None}
    if url := os.environ.get("TEST_DATABASE_URL"):
        stores["PostgreSQL"] = url
    # Each part counts some of the names, in a file of its own.
    parts = [
        lambda: replays.counts(options.program, sources),
        lambda: proposals.counts(options.program, sources),
        lambda: cuts.counts(options.program, sources, None if options.all else options.points, stores),
    ]
    total = collections.Counter()
    for part in parts:
        total.update(part())
    found = {name: total[name] for name in NAMES}
    print("\n".join(f"{name}: {count}" for name, count in found.items()))
    if options.json:
        print(json.dumps(found), flush=True)
    if found["duplicated"] or found["lost"] or found["wrongly_failed"] or found["resolved"] < MIN_RESOLVED * found["unknown"]:
        sys.exit("an effect was doubled, lost or wrongly failed, or too many outcomes stay unknown")
    if found["mutations_passed"] or found["mutations"] < proposals.MUTATIONS:
        sys.exit("what differs from an approved list has passed")
    if found["replayed_equal"] < found["runs"] or found["sent_upstream"]:
        sys.exit("a recorded run differs when it is played again, or something was sent meanwhile")


if __name__ == "__main__":
    main()
