"""Simulates the host under an ordinary Python, for the tests of the harness.

`driver.py PRELUDE TURN CODE FRAMES RESULT-BYTES`, the first four being files: runs the program as the sandbox would,
and writes the frames that the harness sent, one a line.
"""

import json
import sys
import types


def main(prelude, turn, code, frames, result_bytes):
    program = {"code": text_of(code), "result_bytes": int(result_bytes)}
    sent = open(frames, "w", encoding="utf-8")

    def call(frame):
        message = json.loads(frame)
        if message["op"] == "job":
            return json.dumps({"v": 1, "id": 0, "ok": True, "value": program}).encode()
        print(frame.decode(), file=sent, flush=True)
        return b'{"v":1,"id":0,"ok":true}'

    host = types.ModuleType("_host")
    host.call = call
    sys.modules["_host"] = host
    exec(compile(text_of(prelude), "<turn 0>", "exec"), {})
    # As in the interpreter's own turns, `single` displays the value of an expression.
    exec(compile(text_of(turn), "<turn 1>", "single"), {})


def text_of(file):
    with open(file, encoding="utf-8", newline="") as opened:
        return opened.read()


main(*sys.argv[1:])
