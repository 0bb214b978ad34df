"""The API of shop.openapi.yaml: a price that can be changed, orders and payments."""
import http.server
import json
import threading


class Shop:
    """Answers in a thread, until the process ends."""

    def __init__(self, port):
        self.price, self.effects = 3.5, []
        shop = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(200, {"name": self.path.rsplit("/", 1)[1], "price": shop.price})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                shop.effects.append([self.path, body])
                self.reply(201, {"id": len(shop.effects), **body})

            def reply(self, status, value):
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
