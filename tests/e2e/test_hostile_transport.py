"""Requests that are meant to harm, byte by byte, against a real server: refused with a clear answer, or cut off.

Plain, over TLS and through gateway processes, on the short way of invocations and on ASGI's.
"""

import base64
import json
import socket
import ssl
import subprocess
import time

import pytest

from aliquot.testing.server import LiveServer, open_files
from aliquot.testing.waiting import wait_until

WELL = {"status": "ok", "complaint": None}
INVOKE = "/api/v1/namespaces/_/actions/echo?blocking=true&result=true"
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE
WAYS = {"short": f"POST {INVOKE}", "asgi": "PUT /api/v1/namespaces/_/actions/other"}


@pytest.fixture(scope="module", params=["plain", "tls", "gateways"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    options = ["--gateways", "2"] if request.param == "gateways" else []
    if request.param == "tls":
        certificate, key = folder / "certificate.pem", folder / "key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        options = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    with LiveServer(folder / "data", *options) as started:
        with started.client(verify=False) as client:
            code = "def main(args):\n    return {'given': args}"
            client.put("actions/echo", json={"exec": {"kind": "python:3.11", "code": code}}).raise_for_status()
        yield started


class Wire:
    """A connection on which bytes are written as the test likes."""

    def __init__(self, server):
        host, _, port = server.url.partition("://")[2].partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.authorization = b"Basic " + base64.b64encode(server.key.encode())
        if server.url.startswith("https"):
            self.socket = TRUSTING.wrap_socket(self.socket)

    def send(self, data):
        self.socket.sendall(data)

    def head(self, line=f"POST {INVOKE}", *fields, version="HTTP/1.1", host=True):
        given = [f"{line} {version}".encode(), b"Authorization: " + self.authorization]
        given += [b"Host: gateway"] if host else []
        given += [field if isinstance(field, bytes) else field.encode() for field in fields]
        return b"\r\n".join([*given, b"", b""])

    def answers(self):
        """All that come until the server closes: status and body."""
        heard = b""
        while piece := self._receive():
            heard += piece
        found = []
        while heard:
            head, _, rest = heard.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:])
            size = int(headers.get("content-length", 0))
            found.append((int(lines[0].split()[1]), json.loads(rest[:size] or "null")))
            heard = rest[size:]
        return found

    def _receive(self):
        try:
            return self.socket.recv(65536)
        except (ConnectionResetError, ssl.SSLError):
            return b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def runs(server):
    with server.client(verify=False) as client:
        return client.get("activations", params={"count": "true"}).json()["activations"]


def refusal(wire):
    """Return the status of the only answer, which is an error with a reason."""
    ((status, answer),) = wire.answers()
    assert set(answer) == {"error", "code"}
    return (status,)


def is_cut_off(wire, piece):
    """Send the piece again and again, and return true if the server closes the connection."""
    try:
        for _ in range(10_000):
            wire.send(piece)
    except OSError:
        return True
    return False


FIELDS = {
    "two lengths": (["Content-Length: 2", "Content-Length: 30"], b"{}"),
    "the same length twice": (["Content-Length: 2", "Content-Length: 2"], b"{}"),
    "a list of lengths": (["Content-Length: 2, 2"], b"{}"),
    "a length and chunks": (["Content-Length: 4", "Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    "chunks and a length": (["Transfer-Encoding: chunked", "Content-Length: 4"], b"2\r\n{}\r\n0\r\n\r\n"),
    "an encoding twice": (["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    "an encoding that is almost chunked": (["Transfer-Encoding: xchunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    "an encoding after a control character": (["Transfer-Encoding: \x0bchunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    "a folded header": (["X-Long: a\r\n b"], b""),
    "a folded encoding": (["Transfer-Encoding:\r\n chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    "a bare line feed": (["X-One: a\nContent-Length: 2"], b"{}"),
    "a bare carriage return": (["X-One: a\rContent-Length: 2"], b"{}"),
    "a blank before the colon": (["Content-Length : 2"], b"{}"),
    "a header without a name": ([": 2"], b"{}"),
    "a length with a sign": (["Content-Length: +2"], b"{}"),
    "a negative length": (["Content-Length: -2"], b"{}"),
    "a length in hexadecimal": (["Content-Length: 0x2"], b"{}"),
    "a length without end": (["Content-Length: 99999999999999999999999"], b"{}"),
    "an empty length": (["Content-Length:"], b"{}"),
    "a NUL in a header": (["X-One: a\x00b"], b""),
    "a NUL in a name": (["X\x00One: a"], b""),
    "two hosts": (["Host: elsewhere"], b""),
    "a chunk's size that overflows": (["Transfer-Encoding: chunked"], b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    "a negative chunk": (["Transfer-Encoding: chunked"], b"-1\r\n{}\r\n0\r\n\r\n"),
    "a chunk longer than it says": (["Transfer-Encoding: chunked"], b"1\r\n{}\r\n0\r\n\r\n"),
    "chunks between bare line feeds": (["Transfer-Encoding: chunked"], b"2\n{}\n0\n\n"),
    "a length after the chunks": (["Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_could_be_read_in_two_ways_is_refused_and_so_is_all_behind_it(server, way):
    before = runs(server)
    sent = {}
    for trick, (fields, body) in FIELDS.items():
        wire = sent[trick] = Wire(server)
        wire.send(wire.head(WAYS[way], *fields) + body + wire.head(f"POST {INVOKE}", "Content-Length: 2") + b"{}")
    for trick, wire in sent.items():
        with wire:
            assert (trick, *refusal(wire)) == (trick, 400)
    assert runs(server) == before


REQUESTS = {
    "HTTP/0.9": (b"GET / HTTP/0.9\r\n\r\n", 505),
    "HTTP/2": (b"GET / HTTP/2.0\r\nHost: gateway\r\n\r\n", 505),
    "HTTP/2's first words": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a version that is none": (b"GET / HTTP/1.2\r\nHost: gateway\r\n\r\n", 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "an unknown method": (b"STEAL / HTTP/1.1\r\nHost: gateway\r\n\r\n", 400),
    "a method in lower case": (b"get / HTTP/1.1\r\nHost: gateway\r\n\r\n", 400),
    "a tunnel": (b"CONNECT elsewhere:80 HTTP/1.1\r\nHost: gateway\r\n\r\n", 400),
    "a star for a path": (b"OPTIONS * HTTP/1.1\r\nHost: gateway\r\n\r\n", 400),
    "a NUL in the path": (b"GET /health\x00 HTTP/1.1\r\nHost: gateway\r\n\r\n", 400),
    "a byte that is no text in the path": (b"GET /\xff HTTP/1.1\r\nHost: gateway\r\n\r\n", 400),
    "blanks in the path": (b"GET /health now HTTP/1.1\r\nHost: gateway\r\n\r\n", 400),
    "TLS inside": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "an upgrade with a body": (
        b"POST / HTTP/1.1\r\nHost: gateway\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}", 400,
    ),
}  # fmt: skip


def test_what_is_not_a_request_is_refused(server):
    sent = {what: Wire(server) for what in REQUESTS}
    for what, wire in sent.items():
        wire.send(REQUESTS[what][0] + wire.head("GET /health"))
    for what, wire in sent.items():
        with wire:
            assert (what, *refusal(wire)) == (what, REQUESTS[what][1])


@pytest.mark.parametrize("way", WAYS)
def test_heads_have_a_bound(server, way):
    for fields, expected in (
        ([f"X-Large: {'x' * 66_000}"], 431),
        ([f"X-{number}: {'x' * 1000}" for number in range(100)], 431),
        ([f"X-{number}: y" for number in range(5000)], 431),
    ):
        with Wire(server) as wire:
            wire.send(wire.head(WAYS[way], *fields))
            ((status, answer),) = wire.answers()
        assert status == expected
        assert "than allowed: " in answer["error"]
    with Wire(server) as wire:
        wire.send(wire.head(f"{WAYS[way]}?{'x' * 20_000}"))
        ((status, answer),) = wire.answers()
    assert (status, answer["error"][:24]) == (414, "The request's URI is lon")


def test_a_head_that_never_ends_is_cut_off(server):
    with Wire(server) as wire:
        wire.send(wire.head()[:-2])
        assert is_cut_off(wire, b"X-More: " + b"x" * 10_000 + b"\r\n")


@pytest.mark.parametrize("rest", [b"X-More: ", b"2;", b""])
def test_a_body_that_is_mostly_wrapping_is_cut_off(server, rest):
    """Bodies with an endless trailer, an endless chunk extension, or endlessly many trailers."""
    with Wire(server) as wire:
        begun = b"0\r\n" if rest != b"2;" else b""
        wire.send(wire.head(WAYS["asgi"], "Transfer-Encoding: chunked") + begun + rest)
        assert is_cut_off(wire, b"x" * 10_000 if rest else b"X-More: yes\r\n" * 1000)


def test_an_upgrade_is_passed_over_and_the_connection_ends(server):
    with Wire(server) as wire:
        fields = ("Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13")
        wire.send(wire.head("GET /health", *fields) + wire.head("GET /health"))
        assert wire.answers() == [(200, WELL)]


def test_http_1_0_is_answered_once(server):
    for line in ("GET /health", f"POST {INVOKE}"):
        with Wire(server) as wire:
            wire.send(wire.head(line, version="HTTP/1.0", host=False) + wire.head("GET /health"))
            assert [status for status, _ in wire.answers()] == [200]


def test_who_says_close_is_heard_once(server):
    with Wire(server) as wire:
        before = runs(server)
        wire.send(wire.head(f"POST {INVOKE}", "Connection: close") + wire.head())
        assert wire.answers() == [(200, {"given": {}})]
        assert runs(server) == before + 1
    with Wire(server) as wire:  # refused at once, while the next is parsed
        wire.send(b"POST " + INVOKE.encode() + b" HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n" + wire.head())
        assert [status for status, _ in wire.answers()] == [401]
    assert runs(server) == before + 1


def test_what_was_asked_before_a_bad_request_is_answered_before_the_refusal(server):
    with Wire(server) as wire:
        wire.send(wire.head(f"POST {INVOKE}", "Content-Length: 7") + b'{"a":1}' + wire.head() + b"nonsense\r\n\r\n")
        answers = wire.answers()
    assert answers[:2] == [(200, {"given": {"a": 1}}), (200, {"given": {}})]
    assert [status for status, _ in answers[2:]] == [400]


PATHS = {
    "/api/v1/namespaces/_/actions/../actions/echo": 400,
    "/api/v1/namespaces/_/actions/%2e%2e": 400,
    "/api/v1/namespaces/%2e%2e/actions/echo": 400,
    "/api/v1/namespaces/_/actions/echo%00": 400,
    "/api/v1/namespaces/_/actions/echo;x": 400,
    "/api/v1/namespaces/_/actions/%ff%fe": 400,
    "/api/v1/namespaces/_/actions/%c0%ae%c0%ae": 400,
    "/api/v1/namespaces/_/actions/a%2f..%2fecho": 400,
    "/api/v1/namespaces/_/actions//echo": 400,
    "/api/v1//namespaces/_/actions/echo": 404,
    "//api/v1/namespaces/_/actions/echo": 404,
    "/api/v1/namespaces/_/actions/echo/a/b/c": 404,
    "http://elsewhere/api/v1/namespaces/_/actions/%2e%2e": 400,
    "/../../etc/passwd": 404,
    "/%2e%2e/%2e%2e/etc/passwd": 404,
    "/api/v1/namespaces/_/actions/%": 400,
    "/api/v1/namespaces/_/activations/%2e%2e": 405,
}


def test_paths_lead_nowhere_else(server):
    for path, expected in PATHS.items():
        with Wire(server) as wire:
            wire.send(wire.head(f"POST {path}", "Connection: close"))
            assert (path, *refusal(wire)) == (path, expected)


def test_a_whole_address_means_its_path_whatever_the_host(server):
    with Wire(server) as wire:
        line = f"POST http://elsewhere{INVOKE}"
        wire.send(wire.head(line, "Content-Length: 2", "Connection: close", "Host: elsewhere", host=False) + b"{}")
        assert wire.answers() == [(200, {"given": {}})]


def test_chunks_with_extensions_and_capital_sizes_are_one_body(server):
    with Wire(server) as wire:
        wire.send(wire.head(f"POST {INVOKE}", "Transfer-Encoding: chunked", "Connection: close"))
        wire.send(b'A;note="x"\r\n{"a":"' + b"x" * 4 + b"\r\n0002\r\n" + b'"}' + b"\r\n0\r\nX-After: y\r\n\r\n")
        assert wire.answers() == [(200, {"given": {"a": "xxxx"}})]


def test_who_may_not_call_is_told_before_the_body_comes(server):
    with Wire(server) as wire:
        wire.send(f"POST {INVOKE} HTTP/1.1\r\nHost: g\r\nContent-Length: 60000000\r\n\r\n{{".encode())
        assert wire.socket.recv(65536).split()[1] == b"401"


def test_after_all_that_the_server_holds_no_more_than_before(server):
    with Wire(server) as wire:
        wire.send(wire.head())
        assert wire.socket.recv(65536)
    time.sleep(0.2)
    before = open_files(server.process.pid)
    broken = [wire.head(f"POST {INVOKE}", *fields) + body for fields, body in FIELDS.values()]
    broken += [data for data, _ in REQUESTS.values()]
    broken += [b"GET / HTTP/1.1\r\nX-Half:", b"", wire.head(f"POST {INVOKE}", "Content-Length: 9") + b"{"]
    wires = []
    for number in range(200):
        wire = Wire(server)
        wire.send(broken[number % len(broken)])
        wires.append(wire)
    for wire in wires:
        wire.socket.close()
    wait_until(
        lambda: open_files(server.process.pid), lambda count: count <= before, what="the broken connections to close"
    )
    with Wire(server) as wire:
        wire.send(wire.head("GET /health", "Connection: close"))
        assert wire.answers() == [(200, WELL)]
