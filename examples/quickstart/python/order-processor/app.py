"""order-processor takes orders over HTTP, without an SDK."""
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Orders(BaseHTTPRequestHandler):
    def do_POST(self):
        order = self.rfile.read(int(self.headers["Content-Length"]))
        print("Order received: " + order.decode(), flush=True)
        self.answer(200 if self.path == "/orders" else 404, order)

    def do_GET(self):  # Dapr asks for subscriptions and actors; there are none
        self.answer(404, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Leaves out a line for each request."""


ThreadingHTTPServer(("127.0.0.1", int(os.environ["APP_PORT"])), Orders).serve_forever()
