"""Counts what becomes of effects when processes are killed, and ends with the counts as JSON.

effects.py PROGRAM BFCL DOJO [--json] [--points COUNT | --all]: the program, and files with the calls of the data sets. On SQLite, and on the
PostgreSQL server of TEST_DATABASE_URL where that is set. Without --all, COUNT calls of each data set are cut, spread over all of it (10).
"""
import argparse
import collections
import json
import os
import pathlib
import sys

import cuts

NAMES = [
    "calls", "duplicated", "lost", "wrongly_failed", "unknown", "resolved", "mutations", "mutations_passed", "runs", "replayed_equal",
    "sent_upstream",
]
MIN_RESOLVED = 0.9


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/effects", description="Kills gateway and upstream between effect and answer.")
    parser.add_argument("program", help="the gateway's program")
    parser.add_argument("calls", nargs=2, type=pathlib.Path, help="files with calls: [tool, arguments] each")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON in the last line")
    how_many = parser.add_mutually_exclusive_group()
    how_many.add_argument("--points", type=int, default=10, metavar="COUNT", help="calls of each data set")
    how_many.add_argument("--all", action="store_true", help="all calls")
    return parser.parse_args()


def main():
    options = arguments()
    sources = [json.loads(file.read_text()) for file in options.calls]
    stores = {"SQLite": None}
    if url := os.environ.get("TEST_DATABASE_URL"):
        stores["PostgreSQL"] = url
    # Each part counts some of the names, in a file of its own; a name that no part counts is 0.
    parts = [lambda: cuts.counts(options.program, sources, None if options.all else options.points, stores)]
    total = collections.Counter()
    for part in parts:
        total.update(part())
    found = {name: total[name] for name in NAMES}
    print("\n".join(f"{name}: {count}" for name, count in found.items()))
    if options.json:
        print(json.dumps(found), flush=True)
    if found["duplicated"] or found["lost"] or found["wrongly_failed"] or found["resolved"] < MIN_RESOLVED * found["unknown"]:
        sys.exit("an effect was doubled, lost or wrongly failed, or too many outcomes stay unknown")


if __name__ == "__main__":
    main()
