"""HTTP connections that are kept and used again, and answers that are read into a buffer of one's own.

The standard library's client: large bodies go from the socket into one buffer, at a fifth of the processor's time that
a client which cuts them into events takes.
"""

import base64
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from threading import Lock
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from aliquot.storage.origins.base import thread_buffer

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 30.0  # without a byte: given up
MAX_KEPT = 16
MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
CONNECTION_ERRORS = (HTTPException, OSError, ValueError)  # whatever a connection may end in

_HostKey: TypeAlias = tuple[str, str]  # scheme, and host with port


class OriginResponse:
    """Read once, from the beginning; what is left unread costs the connection."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers: Message = response.headers
        self._response = response

    def header(self, name: str) -> str:
        return str(self.headers.get(name, ""))

    def pieces(self, most: int) -> Iterator[memoryview]:
        """So many bytes, or fewer if it ends before; a piece is good until the next one is asked for."""
        buffer = thread_buffer()
        while most > 0 and (count := self._response.readinto(buffer[:most])):
            yield buffer[:count]
            most -= count

    def read_all(self, most: int) -> bytes:
        body = self._response.read(most + 1)
        if len(body) > most:
            raise HTTPException(f"an answer of more than {most} bytes")
        return body

    def line(self, most: int) -> str:
        """The next one, or so many bytes of it; none: the end."""
        return self._response.readline(most).decode(errors="replace")

    @property
    def is_read(self) -> bool:
        return self._response.isclosed()


class ConnectionPool:
    """Thread-safe. `headers` go with every request to the host that was named, and not to where it leads elsewhere."""

    def __init__(self, headers: Mapping[str, str], user: str, password: str) -> None:
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "aliquot", **headers}
        if user:
            self._headers["Authorization"] = _basic(user, password)
        self._kept: dict[_HostKey, list[HTTPConnection]] = {}
        self._lock = Lock()
        self._tls = ssl.create_default_context()
        self._closed = False
        self._nearness = ""  # of the origin itself

    @contextmanager
    def answer(self, method: str, url: str, headers: Mapping[str, str]) -> Iterator[OriginResponse]:
        """The answer, after redirects; raises one of `CONNECTION_ERRORS`."""
        first = urlsplit(url)
        for _ in range(MAX_REDIRECTS):
            parts = urlsplit(url)
            own = self._headers if _may_receive_credentials(first, parts) else {"Accept-Encoding": "identity"}
            connection, response = self._ask(
                method, parts, {**own, **headers}, is_led=_host_key(parts) != _host_key(first)
            )
            answer = OriginResponse(response)
            if answer.status in REDIRECTS and answer.header("Location"):
                connection.close()
                url = urljoin(url, answer.header("Location"))
                continue
            try:
                yield answer
            finally:
                self._give_back(parts, connection, keep=answer.is_read and not response.will_close)
            return
        raise HTTPException(f"more than {MAX_REDIRECTS} redirects")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            kept = [connection for each in self._kept.values() for connection in each]
            self._kept.clear()
        for connection in kept:
            connection.close()

    def _ask(
        self, method: str, parts: SplitResult, headers: Mapping[str, str], *, is_led: bool
    ) -> tuple[HTTPConnection, HTTPResponse]:
        while True:
            kept = self._take(parts)
            connection = kept or self._connect(parts, is_led=is_led)
            try:
                connection.request(method, self._target(parts), headers=dict(headers))
                return connection, connection.getresponse()
            except CONNECTION_ERRORS:
                connection.close()
                if kept is None:  # one that was kept may have been closed by the other side meanwhile
                    raise

    def _take(self, parts: SplitResult) -> HTTPConnection | None:
        with self._lock:
            kept = self._kept.get(_host_key(parts))
            return kept.pop() if kept else None

    def _give_back(self, parts: SplitResult, connection: HTTPConnection, *, keep: bool) -> None:
        with self._lock:
            kept = self._kept.setdefault(_host_key(parts), [])
            if keep and len(kept) < MAX_KEPT and not self._closed:
                kept.append(connection)
                return
        connection.close()

    def _connect(self, parts: SplitResult, *, is_led: bool) -> HTTPConnection:
        if is_led:
            self._refuse_near(parts.hostname or "")
        place, tunnel = parts, False
        proxy = _proxy(parts)
        if proxy is not None:
            place, tunnel = proxy, parts.scheme == "https"
        host = place.hostname or ""
        if parts.scheme == "https":
            connection: HTTPConnection = HTTPSConnection(host, place.port, timeout=CONNECT_TIMEOUT_S, context=self._tls)
        else:
            connection = HTTPConnection(host, place.port, timeout=CONNECT_TIMEOUT_S)
        if tunnel:
            connection.set_tunnel(parts.hostname or "", parts.port)
        connection.connect()
        connection.sock.settimeout(SILENCE_TIMEOUT_S)
        if proxy is None:
            self._look_at(connection, is_led=is_led)
        return connection

    def _look_at(self, connection: HTTPConnection, *, is_led: bool) -> None:
        """By the address that was reached: what a name means may change from one question to the next."""
        reached = str(connection.sock.getpeername()[0])
        if not is_led:
            self._nearness = _local_scope(reached)
            return
        try:
            self._refuse_near(reached)
        except HTTPException:
            connection.close()
            raise

    def _refuse_near(self, address: str) -> None:
        if _local_scope(address) not in {"", self._nearness}:
            raise HTTPException("a redirect to this machine or its link, where the origin is not")

    @staticmethod
    def _target(parts: SplitResult) -> str:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        by_proxy = parts.scheme == "http" and _proxy(parts) is not None
        return f"http://{parts.netloc.rpartition('@')[2]}{path}" if by_proxy else path


def _host_key(parts: SplitResult) -> _HostKey:
    return parts.scheme, parts.netloc


def _may_receive_credentials(first: SplitResult, parts: SplitResult) -> bool:
    """Whether this place may be told what was meant for the first: the same one, or the same by TLS."""
    return parts.netloc == first.netloc and parts.scheme in {first.scheme, "https"}


def _local_scope(address: str) -> str:
    """Whether it is an address that only this machine, or its link, has: services there take who asks for a friend."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    return "link" if ip.is_link_local else ""


def _proxy(parts: SplitResult) -> SplitResult | None:
    """As the environment says: HTTP_PROXY, HTTPS_PROXY, NO_PROXY."""
    address = getproxies().get(parts.scheme)
    if not address or proxy_bypass(parts.hostname or ""):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
