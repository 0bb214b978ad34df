"""Callers that send requests through the load balancer, and record what they were answered."""
import http.client, itertools, json, threading, time

from parts import APPROVER, CALLERS, KEY, PROGRAMMER

GIVE_UP_SECONDS = 45
# `internal`: it ran, and its line could not be written, since the disk was full. That reply is kept.
FINAL = ("unknown_outcome", "internal")
# Retries of an approved call that are sent at once.
RETRIES = 6
# The calls of a program.
NESTED_CALLS = 4
PROGRAM = """from host import tools, ToolError
kept = {{}}
for n in {numbers}:
    try:
        tools.effects__nested(n=n, caller="{caller}")
        kept[str(n)] = "done"
    except ToolError as error:
        kept[str(n)] = error.code
kept
"""
# Of the session that the load calls.
TURN = """kept = globals().get("kept", [])
kept.append({n})
kept
"""
# After so many calls in a session it calls the next one.
TURNS = 50


class Load:
    def __init__(self, port, history):
        self.port, self.history = port, history
        self.numbers, self.ends = itertools.count(1), threading.Event()
        self.conversations, self.threads = [], []

    def start(self, has_python):
        kinds = ["keyed"] * 3 + ["priced"] * 2 + ["slow_rate", "fast_rate", "fast_rate"]
        for at, kind in enumerate(kinds):
            send = self.keyed if kind == "keyed" else self.once
            self.run(lambda send=send, kind=kind, caller=CALLERS[at % len(CALLERS)]: send(kind, caller))
        self.run(lambda: self.keyed("large", CALLERS[0]))
        for caller in CALLERS[:2]:
            self.run(lambda caller=caller: self.approved(caller))
            self.run(lambda caller=caller: self.talk(caller))
        if has_python:
            self.run(lambda: self.program(PROGRAMMER))
            turns = itertools.count()
            self.run(lambda: self.turn(PROGRAMMER, f"session-{next(turns) // TURNS}"))

    def run(self, step):
        def work():
            while not self.ends.is_set():
                step()
        self.threads.append(threading.Thread(target=work, daemon=True))
        self.threads[-1].start()

    def stop(self):
        self.ends.set()
        for thread in self.threads:
            thread.join(GIVE_UP_SECONDS + 30)
            assert not thread.is_alive(), "a request was never answered"

    def request(self, method, path, caller, body=None, headers={}, timeout=40):
        """The status and the body; `None` for a connection that broke."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"Authorization": f"Bearer {KEY.format(caller)}", "Content-Type": "application/json", **headers}
            connection.request(method, path, body and json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text[:1] in (b"{", b"[") else {}
        except (OSError, http.client.HTTPException):
            return None, {}
        finally:
            connection.close()

    def call(self, kind, caller, n, headers={}, **more):
        arguments = {"n": n, "caller": caller}
        status, reply = self.request("POST", f"/tools/effects__{kind}/execute", caller, {"arguments": arguments}, headers)
        event = {"type": "call", "kind": kind, "n": n, "caller": caller, "status": status, "success": reply.get("success", False),
                 "code": (reply.get("error_info") or {}).get("code"), "call_id": (reply.get("receipt") or {}).get("call_id"), **more}
        self.history.append(event)
        return event | {"approval": (reply.get("error_info") or {}).get("approval")}

    def once(self, kind, caller):
        if self.call(kind, caller, next(self.numbers))["status"] is None:
            time.sleep(0.1)

    def keyed(self, kind, caller):
        """Sends one call until it is answered for good, as a client does that cannot know whether it ran."""
        n, end = next(self.numbers), time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < end:
            event = self.call(kind, caller, n, {"Idempotency-Key": f"k-{n}"})
            if event["success"] or event["code"] in FINAL:
                break
            time.sleep(0.2)
        else:
            self.history.append({"type": "given_up", "n": n, "code": event["code"], "status": event["status"]})
        if event["success"]:
            # Once more, at the next replica.
            self.call(kind, caller, n, {"Idempotency-Key": f"k-{n}"})

    def approved(self, caller):
        """A call that is approved, and then sent by several at once, each until it is answered for good."""
        n = next(self.numbers)
        approval = self.call("approved", caller, n)["approval"]
        if approval is None:
            return time.sleep(0.3)
        self.approve(approval["id"])
        retries = [threading.Thread(target=self.retry, args=(caller, n, retry, approval["id"]), daemon=True) for retry in range(RETRIES)]
        for thread in retries:
            thread.start()
        for thread in retries:
            thread.join()

    def approve(self, approval):
        while True:
            status, reply = self.request("POST", f"/approvals/{approval}/approve", APPROVER, {"scope": "once"})
            # An answer may be lost.
            if status == 200 or "approved already" in reply.get("error", ""):
                return
            time.sleep(0.2)

    def retry(self, caller, n, retry, approval):
        end = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < end:
            event = self.call("approved", caller, n, {"X-Approval-Id": approval}, retry=retry)
            if event["success"] or event["code"] in FINAL:
                return
            time.sleep(0.2)
        self.history.append({"type": "given_up", "n": n, "code": event["code"], "status": event["status"]})

    def program(self, caller):
        """A program with several calls. One whose replica dies, or cannot record what it does, is resumed until it has ended."""
        code = PROGRAM.format(numbers=[next(self.numbers) for _ in range(NESTED_CALLS)], caller=caller)
        body = {"arguments": {"code": code}}
        if not self.execute_program("/tools/python_executor/execute", caller, body)["success"]:
            self.resume_programs(caller, GIVE_UP_SECONDS, self.ends)

    def execute_program(self, path, caller, body=None, run=None):
        status, reply = self.request("POST", path, caller, body)
        receipt, success = reply.get("receipt") or {}, reply.get("success", False)
        event = {"type": "program", "run": run or receipt.get("call_id"), "status": status, "success": success,
                 "code": (reply.get("error_info") or {}).get("code"), "outcomes": reply["output"]["result"] if success else {},
                 "calls": (receipt.get("nested") or {}).get("calls", [])}
        self.history.append(event)
        return event

    def turn(self, caller, session):
        """One more call in a session, at the next replica, each with a checkpoint."""
        n = next(self.numbers)
        arguments = {"session": session, "checkpoint": "every_call", "code": TURN.format(n=n)}
        status, reply = self.request("POST", "/tools/python_executor/execute", caller, {"arguments": arguments})
        success = reply.get("success", False)
        standing = (reply.get("receipt") or {}).get("interpreter") or {}
        self.history.append({"type": "turn", "session": session, "n": n, "status": status, "success": success,
                             "code": (reply.get("error_info") or {}).get("code"), "generation": standing.get("generation"),
                             "kept": reply["output"]["result"] if success else None,
                             "is_checkpointed": standing.get("is_checkpointed", False)})
        if not success:
            time.sleep(0.2)

    def resume_programs(self, caller, seconds, ends):
        """Until none of the caller's is left. One whose replica is lost is resumed by others after some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not ends.is_set():
            status, listed = self.request("GET", "/runs", caller)
            if status == 200 and not listed["runs"]:
                return
            for run in listed.get("runs", []):
                event = self.execute_program(f"/runs/{run['id']}/resume", caller, run=run["id"])
                if event["code"] == "unknown_outcome":
                    self.settle(caller, run["id"])
            time.sleep(0.5)

    def settle(self, caller, run):
        """The program handles the error itself."""
        _, shown = self.request("GET", f"/runs/{run}", caller)
        for call in shown.get("unknown_calls", []):
            self.request("POST", f"/runs/{run}/settle", caller, {"call": call["call"], "outcome": "unknown"})

    def talk(self, caller):
        """A new conversation with two requests at once, which its lock keeps apart."""
        status, conversation = self.request("POST", "/api/conversations", caller, {"labels": {"test": "cluster"}})
        if status != 201:
            return time.sleep(0.3)
        self.conversations.append((caller, conversation["id"]))
        both = [threading.Thread(target=self.execute, args=(caller, conversation["id"]), daemon=True) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        time.sleep(0.3)

    def execute(self, caller, conversation):
        status, reply = self.request("POST", f"/api/conversations/{conversation}/execute", caller, {"user_input": "Is 21.5 °C warm?"})
        self.history.append({"type": "talk", "status": status, "ends": reply.get("status"), "code": (reply.get("error_info") or {}).get("code")})
