"""A pool of HTTP connections whose responses are read into the thread's own buffer.

It uses the standard library's client, which reads large bodies straight from the socket into one buffer. Decision 0027
compares it with urllib3.
"""

import base64
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from threading import Lock
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from aliquot.storage.origins.base import thread_buffer

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 30.0  # without a byte
MAX_KEPT = 16
MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
CONNECTION_ERRORS = (HTTPException, OSError, ValueError)  # raised by requests and responses

_HostKey: TypeAlias = tuple[str, str]  # scheme; host with port


class OriginResponse:
    """A response, read once from the beginning. A connection with unread bytes is not kept."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers: Message = response.headers
        self._response = response

    def header(self, name: str) -> str:
        return str(self.headers.get(name, ""))

    def pieces(self, max_bytes: int) -> Iterator[memoryview]:
        """Yield up to `max_bytes`. A piece is valid until the next one is requested."""
        buffer = thread_buffer()
        while max_bytes > 0 and (count := self._response.readinto(buffer[:max_bytes])):
            yield buffer[:count]
            max_bytes -= count

    def read_all(self, max_bytes: int) -> bytes:
        body = self._response.read(max_bytes + 1)
        if len(body) > max_bytes:
            raise HTTPException(f"an answer of more than {max_bytes} bytes")
        return body

    def line(self, max_bytes: int) -> str:
        """Return the next line, or its first `max_bytes`; empty at the end."""
        return self._response.readline(max_bytes).decode(errors="replace")

    @property
    def is_read(self) -> bool:
        return self._response.isclosed()


class ConnectionPool:
    """Thread-safe. `headers` are sent to the origin's own host only, not to hosts that it redirects to."""

    def __init__(self, headers: Mapping[str, str], user: str, password: str) -> None:
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "aliquot", **headers}
        if user:
            self._headers["Authorization"] = _basic(user, password)
        self._kept: dict[_HostKey, list[HTTPConnection]] = {}
        self._lock = Lock()
        self._closed = False
        self._scope = ""  # scope of the origin's own address

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Read the trusted certificates, which takes 25 ms, when they are needed."""
        return ssl.create_default_context()

    @contextmanager
    def request(self, method: str, url: str, headers: Mapping[str, str]) -> Iterator[OriginResponse]:
        """Send a request, follow redirects and yield the response. Raises one of `CONNECTION_ERRORS`."""
        first = urlsplit(url)
        for _ in range(MAX_REDIRECTS):
            parts = urlsplit(url)
            own = self._headers if _may_receive_credentials(first, parts) else {"Accept-Encoding": "identity"}
            connection, response = self._request(
                method, parts, {**own, **headers}, is_redirected=_host_key(parts) != _host_key(first)
            )
            wrapped = OriginResponse(response)
            if wrapped.status in REDIRECTS and wrapped.header("Location"):
                connection.close()
                url = urljoin(url, wrapped.header("Location"))
                continue
            try:
                yield wrapped
            finally:
                self._give_back(parts, connection, keep=wrapped.is_read and not response.will_close)
            return
        raise HTTPException(f"more than {MAX_REDIRECTS} redirects")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            kept = [connection for each in self._kept.values() for connection in each]
            self._kept.clear()
        for connection in kept:
            connection.close()

    def _request(
        self, method: str, parts: SplitResult, headers: Mapping[str, str], *, is_redirected: bool
    ) -> tuple[HTTPConnection, HTTPResponse]:
        while True:
            kept = self._take(parts)
            connection = kept or self._connect(parts, is_redirected=is_redirected)
            try:
                connection.request(method, self._target(parts), headers=dict(headers))
                return connection, connection.getresponse()
            except CONNECTION_ERRORS:
                connection.close()
                if kept is None:  # the server may have closed a kept connection
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

    def _connect(self, parts: SplitResult, *, is_redirected: bool) -> HTTPConnection:
        if is_redirected:
            self._refuse_local(parts.hostname or "")
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
            self._check_address(connection, is_redirected=is_redirected)
        return connection

    def _check_address(self, connection: HTTPConnection, *, is_redirected: bool) -> None:
        """Check the address that was reached, because a name may resolve differently each time."""
        reached = str(connection.sock.getpeername()[0])
        if not is_redirected:
            self._scope = _local_scope(reached)
            return
        try:
            self._refuse_local(reached)
        except HTTPException:
            connection.close()
            raise

    def _refuse_local(self, address: str) -> None:
        if _local_scope(address) not in {"", self._scope}:
            raise HTTPException("a redirect to this machine or its link, where the origin is not")

    @staticmethod
    def _target(parts: SplitResult) -> str:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        by_proxy = parts.scheme == "http" and _proxy(parts) is not None
        return f"http://{parts.netloc.rpartition('@')[2]}{path}" if by_proxy else path


def _host_key(parts: SplitResult) -> _HostKey:
    return parts.scheme, parts.netloc


def _may_receive_credentials(first: SplitResult, parts: SplitResult) -> bool:
    """Return whether credentials may follow a redirect: to the same host, by the same scheme or by TLS."""
    return parts.netloc == first.netloc and parts.scheme in {first.scheme, "https"}


def _local_scope(address: str) -> str:
    """Return "loopback" or "link" for addresses that only this machine or its network link reaches, else "".

    Services at such addresses often trust every client.
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    return "link" if ip.is_link_local else ""


def _proxy(parts: SplitResult) -> SplitResult | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name."""
    address = getproxies().get(parts.scheme)
    if not address or proxy_bypass(parts.hostname or ""):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
