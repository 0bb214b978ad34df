"""The API of shop.openapi.yaml, with nine orders in pages of three."""
import http.server
import json
import threading
import urllib.parse

PAGE, COUNT, LINES = 3, 9, 12
CUSTOMERS = ["Kyoto Tea", "Osaka Cycles", "Bern Books"]
CURRENCIES = ["JPY", "USD", "CHF"]


def serve(port):
    """Answers in a thread, until the process ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        number = address.path.removeprefix("/orders/")
        found = order(int(number)) if number.isdigit() else page(urllib.parse.parse_qs(address.query))
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def page(query):
    number = int(query.get("page", ["1"])[0])
    first = (number - 1) * PAGE + 1
    ids = list(range(first, min(first + PAGE, COUNT + 1)))
    return {"orders": ids} | ({"next": number + 1} if first + PAGE <= COUNT else {})


def order(number):
    lines = [
        {
            "sku": f"A-{number:02}-{line:02}",
            "description": "An article as the catalogue describes it, with size, colour and material.",
            "warehouse": "Rotterdam, hall 4",
            "quantity": 1 + (number * line) % 7,
            "price": f"{5 + (number * 37 + line * 11) % 90}.{(line * 5) % 100:02}",
        }
        for line in range(LINES)
    ]
    day = f"2026-01-{number:02}"
    return {"id": number, "customer": CUSTOMERS[number % 3], "currency": CURRENCIES[number % 2], "day": day, "lines": lines}
