"""The door (`_host`) of an interpreter that is started anew for each program and has no way out but files.

The program stands in one file, and what is said of it is left in another, which the host reads at the end.
"""


def _open_door():
    import json, sys, types

    def call(frame):
        if json.loads(frame)["op"] == "job":
            with open("/.door/job", "rb") as job:
                return job.read()
        with open("/.door/frames", "ab") as frames:
            frames.write(frame + b"\n")
        return b'{"v":1,"id":0,"ok":true}'

    door = sys.modules["_host"] = types.ModuleType("_host")
    door.call = call


_open_door()
del _open_door
