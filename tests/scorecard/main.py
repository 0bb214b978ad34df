"""The scorecard: the same cases against any MCP gateway.

main.py [--gateway NAME|URL|COMMAND]... [--only GROUP]... [--json FILE]: a name of peers.json, which is installed and started, or the address of a
gateway that somebody runs before the servers at port 8931, or its command, which speaks MCP on standard input and output. Without `--gateway`, every
peer; without `--only`, every group.
"""
import argparse, json, os, pathlib, signal, sys, time

import report
from command import Command
from peers import Address, Peer, installed, peer_of, rows
from run import GROUPS, all_cases, run_cases
from odd import all_servers
from server import Servers

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sekisho/scorecard"
# The servers' port for gateways that somebody else runs.
PORT = 8931


def arguments():
    names = [row["name"] for row in rows()]
    parser = argparse.ArgumentParser(prog="scripts/scorecard", description=__doc__.split("\n")[0])
    parser.add_argument("--gateway", action="append", metavar="NAME|URL|COMMAND", help=f"of {', '.join(names)}; an address; or a command of several words; default: all")
    parser.add_argument("--only", action="append", choices=GROUPS, help="a group of cases; default: all")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes the results there, as JUnit beside it with the ending .xml")
    parser.add_argument("--page", action="store_true", help="writes docs/scorecard.md, the badge and the static page from the file of --json, and runs nothing")
    parser.add_argument("--program", default=os.environ.get("PROGRAM", "target/release/sekisho"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    for name in given.gateway or []:
        if name not in names and "://" not in name and " " not in name:
            parser.error(f"no peer {name}: {', '.join(names)}, an address, or a command of several words")
    if given.page and not given.json:
        parser.error("--page reads the file of --json")
    return given


def peers_of(given):
    """The peers to run, and those that cannot be installed with the reason."""
    chosen, left_out = [], {}
    for row in rows():
        if given.gateway and row["name"] not in given.gateway:
            continue
        if reason := installed(row, CACHE, str(pathlib.Path(given.program).resolve())):
            left_out[row["name"]] = reason
        else:
            chosen.append(peer_of(row))
    names = [row["name"] for row in rows()]
    others = [name for name in given.gateway or [] if name not in names]
    servers = own_servers() if others else None
    chosen += [other(name, servers) for name in others]
    return chosen, left_out


def own_servers():
    """The servers of the cases at their fixed port, for a gateway that somebody configured for them."""
    servers = Servers(all_servers(all_cases()), PORT)
    print(f"The servers are at http://127.0.0.1:{PORT}/NAME/mcp; NAME is one of {', '.join(servers.servers)}.", file=sys.stderr)
    return servers


def other(name, servers):
    """A gateway that is an address or a command."""
    kind = Command if " " in name else Address
    unknown = {need: "not known of it" for need in (
        "credentials", "users", "tools-by-user", "lists-by-user", "argument-rules", "rate-limits", "budgets", "approvals", "reload", "description-scan", "name-check", "pinning", "health",
        "metrics", "audit", "process", "installed")}
    row = {"name": name, "title": name, "version": "", "documentation": "", "not_run": unknown}
    return Peer(row, lambda names, configuration: kind(name), servers)


def main():
    # A run that is ended stops the gateway that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = arguments()
    if given.page:
        report.write_pages(json.loads(given.json.read_text()))
        return 0
    cases = all_cases(given.only or GROUPS)
    peers, left_out = peers_of(given)
    begun = time.time()
    outcome = {"date": time.strftime("%Y-%m-%d", time.gmtime(begun)), "minutes": 0, "machine": report.machine(),
               "cases": [{name: case[name] for name in ("group", "id", "says", "source")} for case in cases], "peers": [], "left_out": left_out}
    for peer in peers:
        print(f"── {peer.name} {peer.version}", file=sys.stderr, flush=True)
        verdicts = [vars(verdict) for verdict in run_cases(cases, peer, report.line)]
        outcome["peers"].append({"peer": peer.name, "title": peer.row["title"], "version": report.version_of(peer), "verdicts": verdicts})
        outcome["minutes"] = round((time.time() - begun) / 60, 1)
        if given.json:
            # After each gateway: a run that is ended has the results so far.
            given.json.write_text(json.dumps(outcome, indent=1, ensure_ascii=False) + "\n")
            given.json.with_suffix(".xml").write_text(report.junit(outcome))
    print(report.table(outcome))
    for problem in (problems := report.surprises(outcome)):
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
