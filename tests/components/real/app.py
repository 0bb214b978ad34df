"""A component of Python, as componentize-py makes it."""

import os
import pathlib
import socket
import subprocess
import urllib.request

import wit_world
from componentize_py_types import Err


class WitWorld(wit_world.WitWorld):
    def greet(self, who):
        if not who.name:
            raise Err("nobody is there")
        return f"Hello, {who.name}, {who.age if who.age is not None else 'of any age'}!"

    def try_everything(self):
        attempts = {
            "read a file": lambda: pathlib.Path("/etc/passwd").read_text(),
            "write a file": lambda: pathlib.Path("/tmp/a").write_text("x"),
            "list the root": lambda: os.listdir("/"),
            "open a socket": lambda: socket.create_connection(("127.0.0.1", 80)),
            "look a name up": lambda: socket.getaddrinfo("localhost", 80),
            "send a request": lambda: urllib.request.urlopen("http://127.0.0.1/"),
            "start a program": lambda: subprocess.run(["true"]),
            "read the environment": lambda: os.environ["HOME"],
        }
        done = []
        for name, attempt in attempts.items():
            try:
                attempt()
                done.append(name)
            except BaseException:
                pass
        return done
