"""Snippets that functions run to try the network, and servers that they try to reach."""

import socket
import socketserver
import threading
from contextlib import contextmanager

# Runs a snippet that leaves its finding in `found`.
RUN = "def main(args):\n    space = {'args': args}\n    exec(args['code'], space)\n    return {'found': space['found']}"
WITH_KEY = {"annotations": [{"key": "provide-api-key", "value": True}]}

CONNECT = """
import socket
found = []
for host, port in args['places']:
    try:
        with socket.create_connection((host, port), timeout=10) as sock:
            sock.sendall(b'ping')
            sock.shutdown(socket.SHUT_WR)
            text = b''
            while (piece := sock.recv(100)):
                text += piece
            found.append(text.decode())
    except OSError as error:
        found.append(type(error).__name__)
"""
API = """
import base64, json, os, urllib.request
key = base64.b64encode(os.environ['__OW_API_KEY'].encode()).decode()
request = urllib.request.Request(
    os.environ['__OW_API_HOST'] + '/api/v1/namespaces', headers={'Authorization': 'Basic ' + key}
)
found = json.load(urllib.request.urlopen(request, timeout=30))
"""


class Echo(socketserver.BaseRequestHandler):
    """Answers with everything that was sent, once the sender has ended."""

    def handle(self):
        text = b""
        while piece := self.request.recv(65536):
            text += piece
        self.request.sendall(b"echo " + text)


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512


@contextmanager
def echo_server(host):
    """Run a server at an address of this machine. Yields the address with its port."""
    with EchoServer((host, 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address
        finally:
            server.shutdown()


def found(client, code, *, name="run", **args):
    return client.result(name, {"code": code, **args})["found"]


def own_address():
    """Return an address of this machine other than that of loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return sock.getsockname()[0]
