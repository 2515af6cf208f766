"""One request and its reply as bytes. Nothing here does I/O, so that threads and event loops share it."""

import ssl
from typing import NamedTuple, TypeAlias, cast
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from aliquot.sdk.errors import UsageError
from aliquot.sdk.http.parsing import PARSER_ERRORS, new_parser
from aliquot.sdk.wire import BodyPieces, HttpReply, HttpRequest

CONNECT_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 256
# With few at once, short calls find a connection that has become free before they have made one of their own.
MAX_CONNECTING = 8
# Shorter than the server's own (uvicorn: 5 s), so that no request uses a connection that is being closed.
KEEP_ALIVE_S = 4.0
READ_BYTES = 65_536
_PORTS = {"http": 80, "https": 443}


HttpBody: TypeAlias = bytes | BodyPieces


class TransportError(Exception):
    """An exchange failed."""


class NoConnectionError(TransportError):
    """No connection could be made, so the request was not sent."""


class LostConnectionError(TransportError):
    """The connection ended, or brought something else than HTTP, after the request was sent."""


class NoAnswerError(TransportError):
    """The server did not answer in time."""


class HttpTarget(NamedTuple):
    """The server that an address names, and the proxy that leads to it, if there is one."""

    host: str
    port: int
    authority: str  # as the `Host` header names it
    base: str  # what stands before the path of each request
    tls: ssl.SSLContext | None = None
    proxy: "ProxyAddress | None" = None

    @property
    def peer(self) -> tuple[str, int]:
        """The address to connect to."""
        return self.proxy[:2] if self.proxy else (self.host, self.port)

    @property
    def tunnel(self) -> bytes:
        """The request that makes a proxy pass TLS through, or nothing if none is needed."""
        if self.proxy is None or self.tls is None:
            return b""
        return f"CONNECT {self.host}:{self.port} HTTP/1.1\r\nHost: {self.authority}\r\n{self.proxy.head}\r\n".encode()


class ProxyAddress(NamedTuple):
    """A proxy that the environment names."""

    host: str
    port: int
    head: str  # its credentials as a header line, or empty


def target_of(url: str) -> HttpTarget:
    """Return the server of an address. Raises `UsageError` if it is not an address."""
    parts, port = _split(url)
    host, authority = str(parts.hostname), parts.netloc.rpartition("@")[2]
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    proxy = None if _is_on_this_machine(host) else _proxy_for(parts.scheme, host)
    base = parts.path if proxy is None or tls is not None else f"http://{authority}{parts.path}"
    return HttpTarget(host, port, authority, base, tls, proxy)


def _split(url: str) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(url)
        parts.netloc.encode("ascii")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{_shown(url)}: this is not the address of a server: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        takes = "it takes one such as http://127.0.0.1:3233"
        raise UsageError(f"{_shown(url)}: this is not the address of a server; {takes}")
    return parts, port or _PORTS[parts.scheme]


def _shown(url: str) -> str:
    """Return an address without the name and password that may stand in it."""
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]


def _is_on_this_machine(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


def _proxy_for(scheme: str, host: str) -> ProxyAddress | None:
    from base64 import b64encode
    from urllib.request import getproxies, proxy_bypass

    url = getproxies().get(scheme)
    if not url or proxy_bypass(host):
        return None
    parts, port = _split(url if "://" in url else f"http://{url}")
    if parts.scheme != "http":
        raise UsageError(f"{_shown(url)}: this kind of proxy is not supported; it takes http://HOST:PORT")
    credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    head = f"Proxy-Authorization: Basic {b64encode(credentials.encode()).decode()}\r\n" if parts.username else ""
    return ProxyAddress(str(parts.hostname), port, head)


def encode_head(target: HttpTarget, request: HttpRequest, authorization: str) -> bytes:
    """Return the head of a request, with the length of its body."""
    query = f"?{urlencode(request.query)}" if request.query else ""
    path = f"{target.base}{request.path}{query}"
    headers = {"Host": target.authority, "Authorization": authorization, **request.headers}
    if request.body or request.method != "GET":
        headers["Content-Length"] = str(body_length(request))
    for name, text in {"path": path, **headers}.items():
        if not text.isprintable():  # the text is not shown, because it may be a key
            raise UsageError(f"{request.method} {request.path!r}: {name} has a character that cannot be sent")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    proxied = target.proxy.head if target.proxy and target.tls is None else ""
    return f"{request.method} {path} HTTP/1.1\r\n{lines}{proxied}\r\n".encode()


def body_length(request: HttpRequest) -> int:
    body = cast("bytes | BodyPieces", request.body)
    return body.length if isinstance(body, BodyPieces) else len(body)


def check_tunnel(answer: bytes) -> None:
    """Check a proxy's answer to the request for a tunnel. Raises `ConnectionRefusedError` if it refuses."""
    line = answer.split(b"\r\n", 1)[0].decode("latin-1")
    if line.split(" ")[1:2] != ["200"]:
        raise ConnectionRefusedError(f"the proxy refuses the connection: {line or 'it closed it'}")


class ReplyReader:
    """Reads one reply. Names of headers are in lower case."""

    __slots__ = ("_body", "_has_body", "_parser", "complete", "has_head", "headers", "keeps_open", "status")

    def __init__(self, head: bytes = b"") -> None:
        """Read the reply to a request with this head."""
        self._parser = new_parser(self)
        self._has_body = not head.startswith(b"HEAD ")
        self._body: list[bytes] = []
        self.headers: dict[str, str] = {}
        self.status = 0
        self.has_head = False
        self.complete = False
        self.keeps_open = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection. Raises `LostConnectionError` if they are not HTTP."""
        try:
            self._parser.feed_data(data)
        except PARSER_ERRORS as error:
            raise LostConnectionError(f"the reply is not HTTP: {error}") from error

    def end(self, why: str = "") -> None:
        """Take the end of the connection. Raises `LostConnectionError` if the reply is incomplete."""
        if why:
            raise LostConnectionError(why)
        if not self.has_head:
            raise LostConnectionError("the server closed the connection and sent no reply")
        if "content-length" in self.headers or "transfer-encoding" in self.headers:
            raise LostConnectionError("the server closed the connection before the end of its reply")
        self.complete = True  # the length of such a reply is what has come until the end

    def take_body(self) -> bytes:
        """Return what has come of the body since the last time."""
        body = b"".join(self._body)
        self._body.clear()
        return body

    def reply(self) -> HttpReply:
        return HttpReply(self.status, self.headers, self.take_body())

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:  # bytes behind the reply, for which nobody asked
            self.keeps_open = False
            return
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.complete:
            self.keeps_open = False
            return
        self.status = self._parser.get_status_code()
        if self.status >= 200:  # noqa: PLR2004 - below it is a message before the reply
            self.has_head = True
            self.keeps_open = self._has_body and self._parser.should_keep_alive()
            self.complete = not self._has_body  # the length of the body is told, and none comes

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self._body.append(data)

    def on_message_complete(self) -> None:
        if self.has_head:
            self.complete = True
        else:
            self.headers.clear()
