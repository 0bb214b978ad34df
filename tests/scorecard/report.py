"""The results as a table, as JUnit, as pages and as a badge."""
import html, json, os, pathlib, platform, subprocess, sys
from xml.sax.saxutils import quoteattr

FOLDER = pathlib.Path(__file__).parent
DOCS = FOLDER.parent.parent / "docs"
SIGNS = {"passed": "✓", "failed": "✗", "not offered": "–", "not run": "○", "measured": "·"}


def line(verdict):
    """Prints what a reader looks at first: failures and figures."""
    if verdict.verdict == "measured":
        print(f"· {verdict.group}/{verdict.case}: {shown(vars(verdict))}", file=sys.stderr, flush=True)
    elif verdict.verdict != "passed":
        print(f"{SIGNS[verdict.verdict]} {verdict.group}/{verdict.case}: {verdict.detail}", file=sys.stderr, flush=True)


def version_of(peer):
    """What the program says of itself, where its version is not pinned."""
    if peer.row["name"] != "sekisho":
        return peer.version
    said = subprocess.run([peer.row["program"], "--version"], capture_output=True, text=True).stdout.split()
    return said[1] if len(said) > 1 else ""


def machine():
    model = next((text.split(":")[1].strip() for text in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if text.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.system()} {platform.release().split('-')[0]}, {os.cpu_count()} processors ({model}), {memory:.0f} GiB"


def counts(verdicts):
    """Passed, and those that could be: cases that are not offered do not count."""
    judged = [verdict for verdict in verdicts if verdict["verdict"] in ("passed", "failed")]
    return sum(verdict["verdict"] == "passed" for verdict in judged), len(judged)


def groups(outcome):
    return list(dict.fromkeys(case["group"] for case in outcome["cases"]))


def cell(peer, group):
    passed, judged = counts([verdict for verdict in peer["verdicts"] if verdict["group"] == group])
    left = [verdict["verdict"] for verdict in peer["verdicts"] if verdict["group"] == group]
    others = [f"{left.count(verdict)} {SIGNS[verdict]}" for verdict in ("not offered", "not run") if verdict in left]
    measured = sum(verdict["verdict"] == "measured" for verdict in peer["verdicts"] if verdict["group"] == group)
    return (f"{passed}/{judged}" if judged else f"{measured} figures" if measured else "") + (f" ({', '.join(others)})" if others else "")


def table(outcome):
    """A line for each peer: passed of those judged in each group, with the number of those that are not offered."""
    names = groups(outcome)
    lines = [["", *names, "all"]]
    for peer in outcome["peers"]:
        passed, judged = counts(peer["verdicts"])
        lines.append([f"{peer['peer']} {peer['version']}".strip(), *(cell(peer, name) for name in names), f"{passed}/{judged}"])
    widths = [max(len(row[column]) for row in lines) for column in range(len(lines[0]))]
    text = [" ".join(value.ljust(width) for value, width in zip(row, widths)).rstrip() for row in lines]
    return "\n".join([*text, *(f"{name} was left out: {reason}" for name, reason in outcome["left_out"].items())])


def junit(outcome):
    suites = []
    for peer in outcome["peers"]:
        cases = []
        for verdict in peer["verdicts"]:
            inner = {"failed": f"<failure message={quoteattr(verdict['detail'])}/>", **dict.fromkeys(("not offered", "not run"), f"<skipped message={quoteattr(verdict['detail'])}/>")}
            cases.append(f'<testcase classname={quoteattr(peer["peer"] + "." + verdict["group"])} name={quoteattr(verdict["case"])} '
                         f'time="{verdict["seconds"]}">{inner.get(verdict["verdict"], "")}</testcase>')
        passed, judged = counts(peer["verdicts"])
        suites.append(f'<testsuite name={quoteattr(peer["peer"])} tests="{len(cases)}" failures="{judged - passed}">' + "".join(cases) + "</testsuite>")
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>' + "\n".join(suites) + "</testsuites>\n"


def known():
    """Failures of sekisho that are known, each with its reason."""
    return next(row for row in json.loads((FOLDER / "peers.json").read_text()) if row["name"] == "sekisho").get("known_failures", {})


def surprises(outcome):
    """What makes the run fail: the floor does not pass, or sekisho fails a case that it is not known to fail, or passes one that it is."""
    found = []
    for peer in outcome["peers"]:
        for verdict in peer["verdicts"]:
            name, failed = f"{verdict['group']}/{verdict['case']}", verdict["verdict"] == "failed"
            if peer["peer"] == "direct" and failed:
                found.append(f"the floor fails {name}: the case is wrong: {verdict['detail']}")
            if peer["peer"] == "sekisho" and failed and name not in known():
                found.append(f"sekisho fails {name}: {verdict['detail']}")
            if peer["peer"] == "sekisho" and verdict["verdict"] == "passed" and name in known():
                found.append(f"sekisho passes {name}: remove it from known_failures in tests/scorecard/peers.json")
    return found


# Pages.

def verdict_of(peer, case):
    return next((verdict for verdict in peer["verdicts"] if (verdict["group"], verdict["case"]) == (case["group"], case["id"])), None)


def shown(verdict):
    """The sign of a verdict, or the values of a measurement with their bars of error."""
    if not verdict.get("values"):
        return SIGNS[verdict["verdict"]]
    texts = []
    for name, value in verdict["values"].items():
        texts.append(f"{name}: " + (f"{value['median']} ({value['from']} to {value['to']})" if isinstance(value, dict) else str(value)))
    return "; ".join(texts)


def escaped(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def markdown(outcome):
    """The part of docs/scorecard.md that a run makes."""
    peers, names = outcome["peers"], groups(outcome)
    text = [f"Run of {outcome['date']} on {outcome['machine']}; {outcome['minutes']} minutes.", "",
            f"| gateway | version | {' | '.join(names)} | all |", f"|---|---|{'---|' * len(names)}---|"]
    for peer in peers:
        passed, judged = counts(peer["verdicts"])
        text.append(f"| {peer['title']} | {peer['version'] or ' '} | {' | '.join(cell(peer, name) or ' ' for name in names)} | {passed}/{judged} |")
    text += ["", "A cell has the cases that passed of those that were judged; in brackets the number of those that the gateway does not offer (–), or that were not run (○). "
             "A group without a number was not run against that gateway.", ""]
    for name, reason in outcome["left_out"].items():
        text += [f"Left out: {name}: {reason}.", ""]
    for name in names:
        text += [f"### {name.capitalize()}", "", f"| case | {' | '.join(peer['peer'] for peer in peers)} |", f"|---|{'---|' * len(peers)}"]
        for case in [case for case in outcome["cases"] if case["group"] == name]:
            signs = [shown(verdict) if (verdict := verdict_of(peer, case)) else " " for peer in peers]
            text.append(f"| **{case['id']}**: {escaped(case['says'])} ({escaped(case['source'])}) | {' | '.join(signs)} |")
        text.append("")
    return "\n".join(text + observed(outcome))


def observed(outcome):
    """What was observed in place of what is expected, by gateway."""
    text = ["### Observed where a case failed", ""]
    for peer in outcome["peers"]:
        failed = [verdict for verdict in peer["verdicts"] if verdict["verdict"] == "failed"]
        if failed:
            text += [f"**{peer['title']}**", "", *(f"- {verdict['group']}/{verdict['case']}: {escaped(verdict['detail'][:240])}" for verdict in failed), ""]
    return text


def page(outcome):
    """One static page: every case, its source, its result at each gateway, and what was observed there."""
    head = "<!doctype html><html lang=en><meta charset=utf-8><title>Scorecard of MCP gateways</title><style>body{font:16px sans-serif;margin:2em}" \
        "td,th{padding:.3em .6em;border-bottom:1px solid #ccc;text-align:left}.passed{color:#060}.failed{color:#a00}</style>"
    rows = [f"<h1>Scorecard of MCP gateways</h1><p>{html.escape(outcome['date'])}, {html.escape(outcome['machine'])}. "
            "Repeat a group: <code>scripts/scorecard --gateway NAME --only GROUP</code>.</p>"]
    for name in groups(outcome):
        heads = "".join(f"<th>{html.escape(peer['peer'])} {html.escape(peer['version'])}</th>" for peer in outcome["peers"])
        rows.append(f"<h2>{name}</h2><table><tr><th>case</th>{heads}</tr>")
        for case in [case for case in outcome["cases"] if case["group"] == name]:
            cells = []
            for peer in outcome["peers"]:
                verdict = verdict_of(peer, case) or {"verdict": "", "detail": ""}
                cells.append(f"<td class='{verdict['verdict']}' title={quoteattr(verdict['detail'])}>{html.escape(shown(verdict) if verdict.get('values') else verdict['verdict'])}</td>")
            rows.append(f"<tr><td><b>{case['id']}</b> {html.escape(case['says'])}<br><small>{html.escape(case['source'])}</small></td>{''.join(cells)}</tr>")
        rows.append("</table>")
    return head + "\n".join(rows) + "\n"


def badge(outcome):
    """The endpoint format of shields.io, for sekisho."""
    peer = next((peer for peer in outcome["peers"] if peer["peer"] == "sekisho"), None)
    passed, judged = counts(peer["verdicts"]) if peer else (0, 0)
    return {"schemaVersion": 1, "label": "scorecard", "message": f"{passed} of {judged}", "color": "brightgreen" if passed == judged else "yellow"}


MARK = "<!-- The rest of this page is made by `scripts/scorecard --json FILE --page`. -->"


def write_pages(outcome):
    """docs/scorecard.md from its mark on; beside the cases the static page, the badge and the run."""
    target = DOCS / "scorecard.md"
    head = target.read_text().split(MARK)[0]
    target.write_text(f"{head}{MARK}\n\n{markdown(outcome).rstrip()}\n")
    results = FOLDER / "results"
    results.mkdir(exist_ok=True)
    (results / "scorecard.html").write_text(page(outcome))
    (results / "badge.json").write_text(json.dumps(badge(outcome)) + "\n")
    (results / "scorecard.json").write_text(json.dumps(outcome, indent=1, ensure_ascii=False) + "\n")
