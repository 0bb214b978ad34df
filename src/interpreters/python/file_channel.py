"""`_host` for an interpreter that is started for each program and has files as its only channel.

The program is in one file. Its frames are appended to another, which the host reads when the program has ended.
"""


def _open_channel():
    import json, sys, types

    def call(frame):
        if json.loads(frame)["op"] == "job":
            with open("/.host_call/job", "rb") as job:
                return job.read()
        with open("/.host_call/frames", "ab") as frames:
            frames.write(frame + b"\n")
        return b'{"v":1,"id":0,"ok":true}'

    channel = sys.modules["_host"] = types.ModuleType("_host")
    channel.call = call


_open_channel()
del _open_channel
