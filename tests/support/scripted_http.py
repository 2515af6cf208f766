"""A server that answers each request with the bytes that a test gives, and counts its connections."""

import socketserver
import threading
from contextlib import contextmanager

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Case: Kept\r\n\r\nok"


class ScriptedHttp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, answer, tls=None):
        super().__init__(("127.0.0.1", 0), OneConnection)
        self.answer = answer
        self.tls = tls
        self.connections = 0
        self.requests = []

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://localhost:{self.server_address[1]}"


class OneConnection(socketserver.StreamRequestHandler):
    def setup(self):
        if self.server.tls:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self):
        self.server.connections += 1
        while line := self.rfile.readline():
            head = {}
            while (header := self.rfile.readline().strip()) != b"":
                name, _, value = header.decode().partition(": ")
                head[name.lower()] = value
            self.server.requests.append((line.decode().strip(), head))
            answer = self.server.answer(self, line.decode(), head)
            if answer is None:
                return
            self.wfile.write(answer)

    def finish(self):
        super().finish()
        self.request.close()  # under TLS it is not the socket that the server closes

    def body(self, head):
        return self.rfile.read(int(head.get("content-length", 0)))


@contextmanager
def scripted_http(answer, tls=None):
    """Run a server. `answer(connection, line, head)` returns the bytes to send, or None to close the connection."""
    with ScriptedHttp(answer, tls) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
