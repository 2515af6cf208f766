"""Requests and replies of the SDK as bytes."""

import pytest

from aliquot.sdk.errors import UsageError
from aliquot.sdk.http.exchange import HttpTarget, LostConnectionError, ReplyReader, check_tunnel, encode_head, target_of
from aliquot.sdk.wire import BodyPieces, HttpRequest


def read(*pieces):
    reader = ReplyReader()
    for piece in pieces:
        reader.feed(piece)
    return reader


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_head_has_the_length_of_its_body():
    target = HttpTarget("h", 80, "h:80", "/base")
    request = HttpRequest("POST", "/x", {"a": "1 2"}, {"Accept": "y"}, b"body")
    head = encode_head(target, request, "Basic k")
    assert head == (
        b"POST /base/x?a=1+2 HTTP/1.1\r\nHost: h:80\r\nAuthorization: Basic k\r\nAccept: y\r\nContent-Length: 4\r\n\r\n"
    )
    pieces = request._replace(body=BodyPieces([memoryview(b"12"), memoryview(b"345")]))
    assert b"Content-Length: 5\r\n" in encode_head(target, pieces, "Basic k")
    assert b"Content-Length" not in encode_head(target, HttpRequest("GET", "/x"), "Basic k")
    assert b"Content-Length: 0\r\n" in encode_head(target, HttpRequest("DELETE", "/x"), "Basic k")


@pytest.mark.parametrize(
    "request_", [HttpRequest("GET", "/x\r\nEvil: 1"), HttpRequest("GET", "/x", headers={"Accept": "y\r\nEvil: 1"})]
)
def test_a_line_break_cannot_add_a_header(request_):
    with pytest.raises(UsageError, match=r"(path|Accept) has a character that cannot be sent"):
        encode_head(HttpTarget("h", 80, "h", ""), request_, "Basic k")


def test_errors_show_neither_keys_nor_passwords(monkeypatch):
    with pytest.raises(UsageError) as raised:
        encode_head(HttpTarget("h", 80, "h", ""), HttpRequest("GET", "/x"), "Bearer hunter2\n")
    told = str(raised.value)
    for proxy in ("https://me:hunter2@proxy", "socks5://me:hunter2@proxy", "http://me:hunter2@proxy:x"):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(UsageError, match="proxy") as refused:
            target_of("http://far.example")
        told += str(refused.value)
    assert "hunter2" not in told


def test_bytes_behind_a_reply_change_nothing_and_end_the_connection():
    second = b"HTTP/1.1 500 Wrong\r\nX-Name: other\r\nContent-Length: 3\r\n\r\nbad"
    reader = read(b"HTTP/1.1 200 OK\r\nX-Name: one\r\nContent-Length: 2\r\n\r\nok" + second)
    assert (reader.complete, reader.keeps_open) == (True, False)
    reply = reader.reply()
    assert (reply.status, reply.headers["x-name"], reply.body) == (200, "one", b"ok")


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 11\r\n\r\nhello world",
        b"Transfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
    ],
)
def test_a_reply_is_read_however_it_is_cut(framing, size):
    text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nX-Name: Value\r\n" + framing
    reader = read(*(text[start : start + size] for start in range(0, len(text), size)))
    assert (reader.complete, reader.keeps_open) == (True, True)
    reply = reader.reply()
    assert (reply.status, reply.headers["x-name"], reply.body) == (201, "Value", b"hello world")


def test_a_reply_without_a_length_ends_with_its_connection():
    reader = read(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhel", b"lo")
    assert not reader.complete
    reader.end()
    assert (reader.complete, reader.keeps_open, reader.reply().body) == (True, False, b"hello")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "sent no reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "sent no reply"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "sent no reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "before the end of its reply"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", "before the end of its reply"),
    ],
)
def test_a_reply_that_is_cut_off_is_an_error(text, why):
    reader = read(text) if text else ReplyReader()
    with pytest.raises(LostConnectionError, match=why):
        reader.end()


def test_what_is_not_http_is_an_error():
    with pytest.raises(LostConnectionError, match="the reply is not HTTP"):
        read(b"SSH-2.0-OpenSSH\r\n")


@pytest.mark.parametrize("url", ["http://", "http://h:x", "ftp://h", "http://h:99999", "http://ü"])
def test_what_is_not_the_address_of_a_server_is_refused(url):
    with pytest.raises(UsageError, match="this is not the address of a server"):
        target_of(url)


def test_an_address_names_host_port_and_path():
    assert target_of("http://[::1]:3233/deep") == HttpTarget("::1", 3233, "[::1]:3233", "/deep")
    secure = target_of("https://far.example")
    assert (secure.peer, secure.tls is not None, secure.tunnel) == (("far.example", 443), True, b"")


def test_a_proxy_of_the_environment_leads_to_other_machines_only(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://me:a%3Ab@proxy:3128")
    monkeypatch.setenv("https_proxy", "proxy:3128")
    plain = target_of("http://far.example/base")
    assert (plain.peer, plain.base, plain.tunnel) == (("proxy", 3128), "http://far.example/base", b"")
    assert b"Proxy-Authorization: Basic bWU6YTpi\r\n" in encode_head(plain, HttpRequest("GET", "/x"), "k")
    secure = target_of("https://far.example")
    assert (secure.peer, secure.base) == (("proxy", 3128), "")
    assert secure.tunnel == b"CONNECT far.example:443 HTTP/1.1\r\nHost: far.example\r\n\r\n"
    assert target_of("http://127.0.0.1:3233").proxy is None
    monkeypatch.setenv("no_proxy", "far.example")
    assert target_of("http://far.example").proxy is None


def test_a_proxy_of_another_kind_is_refused(monkeypatch):
    monkeypatch.setenv("http_proxy", "socks5://proxy:1080")
    with pytest.raises(UsageError, match="socks5://proxy:1080: this is not the address of a server"):
        target_of("http://far.example")


def test_a_proxy_that_refuses_is_quoted():
    check_tunnel(b"HTTP/1.1 200 Connection established\r\n\r\n")
    with pytest.raises(ConnectionRefusedError, match=r"HTTP/1\.1 407 Who are you"):
        check_tunnel(b"HTTP/1.1 407 Who are you\r\n\r\n")
    with pytest.raises(ConnectionRefusedError, match="it closed it"):
        check_tunnel(b"")


def test_the_reply_to_a_head_request_ends_with_its_head():
    reader = ReplyReader(b"HEAD / HTTP/1.1\r\n\r\n")
    reader.feed(b"HTTP/1.1 404 Not Found\r\nContent-Length: 40\r\n\r\n")
    assert reader.complete
    assert (reader.status, reader.reply().body, reader.keeps_open) == (404, b"", False)
