"""Kept connections of the SDK, of threads and of event loops, against a server that answers by a script."""

import asyncio
import socket
import ssl
import subprocess
import threading

import pytest
from scripted_http import OK, scripted_http

from aliquot.sdk.http import blocking, on_loop
from aliquot.sdk.http.blocking import BlockingConnections, lines_of
from aliquot.sdk.http.exchange import (
    MAX_CONNECTIONS,
    LostConnectionError,
    NoAnswerError,
    NoConnectionError,
    target_of,
)
from aliquot.sdk.http.on_loop import LoopConnections
from aliquot.sdk.wire import BodyPieces, HttpRequest
from aliquot.testing.waiting import wait_until

GET = HttpRequest("GET", "/x")
LARGE = BodyPieces([memoryview(bytes(20_000_000))])


class OfThreads:
    module = blocking
    _connections = None

    def open(self, url):
        self.close()
        self._connections = BlockingConnections(target_of(url))
        return self

    def send(self, request=GET):
        return self._connections.send(request, "Basic key")

    def send_many(self, count):
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.send())) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def close(self):
        if self._connections is not None:
            self._connections.close()

    def end(self):
        pass


class OfLoop:
    module = on_loop
    _connections = None

    def __init__(self):
        self._runner = asyncio.Runner()

    def open(self, url):
        async def make():
            return LoopConnections(target_of(url))

        self.close()
        self._connections = self._runner.run(make())
        return self

    def send(self, request=GET):
        return self._runner.run(self._connections.send(request, "Basic key"))

    def send_many(self, count):
        async def all_of_them():
            return await asyncio.gather(*(self._connections.send(GET, "Basic key") for _ in range(count)))

        return self._runner.run(all_of_them())

    def close(self):
        if self._connections is not None:
            self._runner.run(self._connections.close())

    def end(self):
        self._runner.close()


@pytest.fixture(params=[OfThreads, OfLoop])
def connections(request):
    made = request.param()
    yield made
    made.close()
    made.end()


def always_ok(connection, line, head):  # noqa: ARG001
    connection.body(head)
    return OK


def test_a_connection_is_used_again(connections):
    with scripted_http(always_ok) as server:
        connections.open(server.url)
        replies = [connections.send(HttpRequest("POST", "/x", body=b"body")) for _ in range(5)]
        assert {(reply.status, reply.body, reply.headers["x-case"]) for reply in replies} == {(200, b"ok", "Kept")}
        assert (server.connections, len(server.requests)) == (1, 5)
        assert server.requests[0][1]["authorization"] == "Basic key"


def test_a_connection_that_the_server_closed_is_replaced(connections):
    def close_after_two(connection, *_):
        connection.count = getattr(connection, "count", 0) + 1
        return OK if connection.count < 2 else OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

    with scripted_http(close_after_two) as server:
        connections.open(server.url)
        assert [connections.send().status for _ in range(6)] == [200] * 6
        assert server.connections == 3


def test_a_connection_that_was_idle_for_long_is_not_used(connections, monkeypatch):
    monkeypatch.setattr(connections.module, "KEEP_ALIVE_S", -1)
    with scripted_http(always_ok) as server:
        connections.open(server.url)
        assert [connections.send().status for _ in range(3)] == [200] * 3
        assert server.connections == 3


def test_many_at_once_are_answered_with_a_bounded_number_of_connections(connections):
    with scripted_http(always_ok) as server:
        connections.open(server.url)
        assert [reply.body for reply in connections.send_many(2 * MAX_CONNECTIONS)] == [b"ok"] * 2 * MAX_CONNECTIONS
        assert server.connections <= MAX_CONNECTIONS


def test_calls_that_last_are_all_under_way_at_once(connections):
    together = threading.Barrier(40)

    def meet(*_):
        together.wait(timeout=60)
        return OK

    with scripted_http(meet) as server:
        connections.open(server.url)
        assert len(connections.send_many(40)) == 40
        assert server.connections == 40


def test_a_server_that_is_not_there_is_told_at_once_to_all(connections):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        connections.open(f"http://127.0.0.1:{closed.getsockname()[1]}")
        for _ in range(2):
            with pytest.raises(NoConnectionError):
                connections.send()


def test_a_server_that_is_silent_is_given_up_and_the_connection_is_not_used_again(connections):
    go = threading.Event()

    def answer(connection, line, head):
        if line.startswith("GET /slow"):
            go.wait(timeout=60)
        return always_ok(connection, line, head)

    with scripted_http(answer) as server:
        connections.open(server.url)
        connections.send()
        with pytest.raises(NoAnswerError):
            connections.send(HttpRequest("GET", "/slow", timeout_s=0.05))
        go.set()
        assert connections.send().body == b"ok"
        assert server.connections == 2


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", b"no HTTP at all\r\n\r\n"])
def test_a_connection_that_is_lost_is_an_error_and_the_next_request_gets_another(connections, answer):
    def break_off(connection, line, head):
        if not line.startswith("GET /broken"):
            return always_ok(connection, line, head)
        if answer:
            connection.wfile.write(answer)
        return None

    with scripted_http(break_off) as server:
        connections.open(server.url)
        with pytest.raises(LostConnectionError):
            connections.send(HttpRequest("GET", "/broken"))
        assert connections.send().body == b"ok"


def test_a_large_body_arrives_whole(connections):
    def count(connection, line, head):  # noqa: ARG001
        return b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n%08d" % len(connection.body(head))

    with scripted_http(count) as server:
        connections.open(server.url)
        assert connections.send(HttpRequest("POST", "/x", body=LARGE)).body == b"20000000"
        assert connections.send(HttpRequest("POST", "/x", body=bytes(9_000_000))).body == b"09000000"
        assert server.connections == 1


def test_a_large_body_that_is_refused_early_brings_the_refusal(connections):
    def refuse(connection, line, head):
        if line.startswith("GET"):
            return always_ok(connection, line, head)
        connection.wfile.write(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
        connection.request.shutdown(socket.SHUT_WR)
        while connection.request.recv(1 << 20):  # a server reads on for a while, or the refusal is lost
            pass
        return None

    with scripted_http(refuse) as server:
        connections.open(server.url)
        reply = connections.send(HttpRequest("POST", "/x", body=LARGE))
        assert (reply.status, reply.body) == (413, b"big")
        assert connections.send().status == 200


def test_a_connection_with_half_a_body_is_not_used_again():
    """A server may answer before it has read the body, and say that it keeps the connection."""

    def answer(connection, line, head):
        return OK if line.startswith("POST") else always_ok(connection, line, head)

    async def scene(url):
        connections = LoopConnections(target_of(url))
        assert (await connections.send(HttpRequest("POST", "/x", body=LARGE), "k")).body == b"ok"
        assert (await connections.send(GET, "k")).body == b"ok"
        await connections.close()

    with scripted_http(answer) as server:
        asyncio.run(scene(server.url))
        assert server.connections == 2


def test_a_request_that_is_cancelled_closes_its_connection_and_leaves_the_others():
    silent = threading.Event()

    def answer(connection, line, head):
        if line.startswith("GET /never"):
            silent.set()
            connection.rfile.read(1)  # until the client closes
            silent.clear()
            return None
        return always_ok(connection, line, head)

    async def scene(url):
        connections = LoopConnections(target_of(url))
        task = asyncio.create_task(connections.send(HttpRequest("GET", "/never"), "k"))
        await asyncio.to_thread(silent.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until, lambda: not silent.is_set(), what="the server to see the end")
        assert (await connections.send(GET, "k")).body == b"ok"
        await connections.close()

    with scripted_http(answer) as server:
        asyncio.run(scene(server.url))


def test_a_stream_is_read_line_by_line_as_it_comes():
    go_on = threading.Event()

    def events(connection, _, head):
        assert connection.body(head) == b"body"
        connection.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\none\ntw\xc3\r\n")
        go_on.wait(timeout=60)
        return b"8\r\n\xb6\r\nlast \r\n0\r\n\r\n"

    with scripted_http(events) as server:
        connections = BlockingConnections(target_of(server.url))
        lines = lines_of(connections.stream(HttpRequest("POST", "/x", body=b"body"), "k"))
        assert next(lines) == "one"
        go_on.set()
        assert list(lines) == ["twö", "last "]


# --- TLS and proxies ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", *words.split(), *names], check=True, capture_output=True)
    return folder


@pytest.fixture
def tls(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


def test_tls_is_spoken_to_a_server_that_proves_its_name(connections, tls):
    with scripted_http(always_ok, tls) as server:
        connections.open(server.url)
        assert [connections.send().body for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 1


def test_a_server_with_another_name_is_refused(connections, tls):
    with scripted_http(always_ok, tls) as server:
        connections.open(server.url.replace("localhost", "127.0.0.1"))
        with pytest.raises(NoConnectionError, match="certificate verify failed"):
            connections.send()


def through(server):
    """Return the answer of a proxy that leads to one server."""

    def answer(connection, line, head):
        if not line.startswith("CONNECT"):
            return always_ok(connection, line, head)
        if head.get("proxy-authorization") != "Basic bWU6b25l":
            return b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n"
        connection.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        with socket.create_connection(server.server_address) as far:
            back = threading.Thread(target=pump, args=(far, connection.request), daemon=True)
            back.start()
            pump(connection.request, far)
            back.join(timeout=30)
        return None

    return answer


def pump(source, sink):
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_proxy_passes_tls_through_to_the_server(connections, tls, monkeypatch):
    monkeypatch.setattr("aliquot.sdk.http.exchange._is_on_this_machine", lambda _: False)
    monkeypatch.setenv("no_proxy", "")
    with scripted_http(always_ok, tls) as server, scripted_http(through(server)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url.replace("//", "//me:one@"))
        connections.open(server.url)
        assert [connections.send().body for _ in range(2)] == [b"ok"] * 2
        assert [line for line, _ in proxy.requests] == [f"CONNECT localhost:{server.server_address[1]} HTTP/1.1"]
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(NoConnectionError, match="407 Who are you"):
            connections.open(server.url).send()


def test_a_proxy_gets_the_whole_address_of_a_plain_request(connections, monkeypatch):
    monkeypatch.setenv("no_proxy", "")
    with scripted_http(always_ok) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        connections.open("http://far.example/base")
        assert connections.send().body == b"ok"
        assert proxy.requests[0][0] == "GET http://far.example/base/x HTTP/1.1"
