"""An MCP server on standard input and output for the tests: it passes messages on to an address, in one session."""
import json, sys, threading

from client import Client, Failed, Refusal


class Passing(Client):
    """Writes every message of the server to standard output."""

    def took(self, message, kept):
        kept.append(message)
        write(message)


lock = threading.Lock()


def write(message):
    with lock:
        print(json.dumps(message), flush=True)


def ask(client, message):
    try:
        got = client.ask(message["method"], message.get("params"), number=message["id"])
        if message["method"] == "initialize":
            client.server = got.result
        write({"jsonrpc": "2.0", "id": message["id"], "result": got.result})
    except Refusal as refusal:
        write({"jsonrpc": "2.0", "id": message["id"], "error": refusal.error or {"code": -32000, "message": str(refusal)}})
    except Failed as failed:
        write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": str(failed)}})


def main():
    client = Passing(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            if message["method"] == "initialize":
                ask(client, message)
                client.listen()
            else:
                threading.Thread(target=ask, args=(client, message), daemon=True).start()
        else:
            connection, response = client.post(message)
            response.read()
            connection.close()


if __name__ == "__main__":
    main()
