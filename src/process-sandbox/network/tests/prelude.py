import errno, os, socket, struct, sys, threading, time
PUBLIC = ("203.0.113.7", int(os.environ["PUBLIC_PORT"]))
PRIVATE = ("10.9.8.7", int(os.environ["PRIVATE_PORT"]))
LOOPBACK = ("127.0.0.1", int(os.environ["LOOPBACK_PORT"]))
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def read_all(connection):
    parts = []
    while part := connection.recv(4096):
        parts.append(part)
    return b"".join(parts).split(b"\r\n\r\n")[-1].decode()


def ask(connection):
    connection.sendall(REQUEST)
    return read_all(connection)


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
