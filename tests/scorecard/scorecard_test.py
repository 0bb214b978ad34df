"""Tests of the scorecard: each case passes against the server directly where that can be, and is seen to fail against its twin."""
import collections, concurrent.futures, json, pathlib, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import report
from checks import all_checks
from command import Command
from odd import all_servers
from peers import Peer, filled, peer_of, rows
from run import GROUPS, all_cases, batches, run_batch, run_cases
from server import Servers
from twins import TwinGateway

JUDGED = [group for group in GROUPS if group != "cost"]
# Cases at once: most of their time is waiting.
AT_ONCE = 8


def against_twin(case):
    return case, run_batch([case], lambda servers, configuration: TwinGateway(servers, case["twin"]))[0]


class Cases(unittest.TestCase):
    def test_the_floor_passes_what_it_offers(self):
        direct = peer_of(next(row for row in rows() if row["name"] == "direct"))
        cases = all_cases(JUDGED)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            verdicts = [verdict for found in threads.map(lambda batch: run_cases(batch, direct), batches(cases)) for verdict in found]
        failed = [f"{verdict.group}/{verdict.case}: {verdict.detail}" for verdict in verdicts if verdict.verdict == "failed"]
        self.assertEqual(failed, [])
        self.assertGreater(sum(verdict.verdict == "passed" for verdict in verdicts), 75)

    def test_each_case_fails_against_its_twin(self):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            outcomes = list(threads.map(against_twin, all_cases(JUDGED)))
        self.assertEqual([f"{case['group']}/{case['id']}" for case, verdict in outcomes if verdict.verdict != "failed"], [])
        self.assertEqual([verdict.detail for _, verdict in outcomes if "is not ready" in verdict.detail], [])

    def test_each_case_says_what_it_checks_and_where_that_is_written(self):
        cases = all_cases()
        ids = collections.Counter((case["group"], case["id"]) for case in cases)
        self.assertEqual([name for name, count in ids.items() if count > 1], [])
        names = {server.name for server in all_servers(cases)}
        for case in cases:
            with self.subTest(case["id"]):
                self.assertTrue(case["says"].endswith(".") and len(case["source"]) > 10)
                self.assertLessEqual(set(case["servers"]), names)
                if case["group"] != "cost":
                    self.assertIn(case["check"], all_checks())
                    self.assertIn("twin", case)

    def test_what_a_peer_does_not_offer_is_a_need_of_a_case(self):
        needs = {need for case in all_cases() for need in case["needs"]}
        for row in rows():
            self.assertLessEqual(set(row.get("not_offered", {})), needs, row["name"])
            self.assertTrue(all(row.get("not_offered", {}).values()), row["name"])

    def test_files_of_peers_are_there(self):
        folder = pathlib.Path(__file__).parent / "peers"
        for row in rows():
            for files in row.get("configurations", {}).values():
                for name in files.values():
                    self.assertTrue((folder / name).exists(), name)


class Commands(unittest.TestCase):
    def test_a_command_is_judged_as_an_address_is(self):
        servers = Servers(all_servers(all_cases()))
        self.addCleanup(servers.stop)
        line = f"{sys.executable} {pathlib.Path(__file__).parent / 'echo_command.py'} {servers.url('plain')}"
        peer = Peer({"name": "a command"}, lambda names, configuration: Command(line), servers)
        wanted = ["text", "progress", "sampling", "cancellation", "text-ids", "tools-changed", "log"]
        verdicts = run_cases([case for case in all_cases(["fidelity"]) if case["id"] in wanted], peer)
        self.assertEqual([(verdict.case, verdict.detail) for verdict in verdicts if verdict.verdict != "passed"], [])
        self.assertEqual(len(verdicts), len(wanted))
        others = run_cases([case for case in all_cases(["tolerance"]) if case["id"] == "null-id"], peer)
        self.assertEqual([(verdict.verdict, verdict.detail) for verdict in others], [("not run", "the gateway lists no tool of nullid")])


class Tools(unittest.TestCase):
    def test_two_servers_on_one_port_have_addresses_of_their_own(self):
        servers = Servers(all_servers([]))
        self.addCleanup(servers.stop)
        self.assertNotEqual(servers.url("plain"), servers.url("old"))

    def test_lines_of_servers_are_repeated(self):
        text = filled("port: @port@\n  @name@: @address@\n", {"port": "1", "servers": {"a": "http://a", "b": "http://b"}})
        self.assertEqual(text, "port: 1\n  a: http://a\n  b: http://b\n")


class Reports(unittest.TestCase):
    def outcome(self, verdict, peer="direct"):
        verdicts = [{"group": "fidelity", "case": "text", "verdict": verdict, "detail": "a <b> | c", "seconds": 1.0, "values": {}}]
        return {"date": "2026-01-31", "minutes": 1, "machine": "a machine", "left_out": {},
                "cases": [{"group": "fidelity", "id": "text", "says": "Text.", "source": "A clause"}],
                "peers": [{"peer": peer, "title": peer, "version": "1", "verdicts": verdicts}]}

    def test_a_floor_that_fails_is_an_error_of_the_case(self):
        self.assertEqual(report.surprises(self.outcome("passed")), [])
        self.assertEqual(len(report.surprises(self.outcome("failed"))), 1)

    def test_a_failure_of_sekisho_that_is_not_known_fails_the_run(self):
        self.assertEqual(len(report.surprises(self.outcome("failed", "sekisho"))), 1)
        self.assertEqual(report.surprises(self.outcome("failed", "another")), [])

    def test_what_is_not_offered_counts_neither_way(self):
        self.assertEqual(report.counts(self.outcome("not offered")["peers"][0]["verdicts"]), (0, 0))
        self.assertIn("(1 –)", report.table(self.outcome("not offered")))

    def test_losses_are_in_every_report(self):
        outcome = self.outcome("failed", "sekisho")
        self.assertIn("a &lt;b> \\| c", report.markdown(outcome))
        self.assertIn("<failure", report.junit(outcome))
        self.assertIn("class='failed'", report.page(outcome))
        self.assertEqual(report.badge(outcome)["message"], "0 of 1")
        self.assertEqual(json.loads(json.dumps(outcome)), outcome)


class Page(unittest.TestCase):
    def test_the_page_is_made_from_the_run_that_is_beside_the_cases(self):
        results = report.FOLDER / "results"
        outcome = json.loads((results / "scorecard.json").read_text())
        _, made = (report.DOCS / "scorecard.md").read_text().split(report.MARK)
        self.assertEqual(made.strip(), report.markdown(outcome).strip())
        self.assertEqual((results / "scorecard.html").read_text(), report.page(outcome))
        self.assertEqual(json.loads((results / "badge.json").read_text()), report.badge(outcome))

    def test_the_page_has_every_case_that_there_is(self):
        page = (report.DOCS / "scorecard.md").read_text()
        self.assertEqual([case["id"] for case in all_cases(JUDGED) if f"**{case['id']}**" not in page], [])


if __name__ == "__main__":
    unittest.main()
