"""Datagrams of a sandbox. A flow has a socket with the destination's address in the sandbox, and one outside.

Only the first datagram of a flow arrives at the sandbox's gateway socket. Later ones arrive at the flow's own, because
the kernel prefers a connected socket.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from aliquot.runtime import network
from aliquot.runtime.network import IpAddress, NetworkGateway

MAX_DATAGRAM_BYTES = 65536
IDLE_TIMEOUT_S = 60.0
_IPV6_FREEBIND = 78  # lets a socket have an address that no interface has
_AT_ONCE = 16  # datagrams that one turn of the event loop takes from a socket


def receive(sock: socket.socket) -> tuple[bytes, tuple[str, int], tuple[IpAddress, int]] | None:
    """Return a datagram with its source and its original destination, or None if there is none."""
    try:
        data, ancillary, _, source = sock.recvmsg(MAX_DATAGRAM_BYTES, 256)
    except OSError:
        return None
    for level, kind, value in ancillary:
        port = struct.unpack_from("!H", value, 2)[0]
        if (level, kind) == (network.SOL_IP, network.IP_RECVORIGDSTADDR):
            return data, source[:2], (network.plain(socket.inet_ntop(socket.AF_INET, value[4:8])), port)
        if (level, kind) == (network.SOL_IPV6, network.IPV6_RECVORIGDSTADDR):
            return data, source[:2], (network.plain(socket.inet_ntop(socket.AF_INET6, value[8:24])), port)
    return None


def open_inside(
    gateway: NetworkGateway, target: tuple[IpAddress, int], source: tuple[str, int] | None = None
) -> socket.socket:
    """Return a socket in a sandbox's namespace with the destination's address. Raises `OSError`.

    With `source` it is connected, and receives what that port of the sandbox sends to the destination.
    """
    address, port = target
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - the version
    with network.entered(gateway.namespace):
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # other flows have the same destination
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        sock.bind((str(address), port))
        if source is not None:
            sock.connect((str(network.plain(source[0])), source[1]))
    except OSError:
        sock.close()
        raise
    return sock


class DatagramFlow:
    """Passes datagrams between one port of a sandbox and one destination."""

    def __init__(self, inner: socket.socket, target: tuple[IpAddress, int], ended: Callable[[], None]) -> None:
        """Raises `OSError`, and closes the inner socket then. `ended` is called by `close`."""
        address, port = target
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - the version
        self._loop = asyncio.get_running_loop()
        self._inner = inner
        self._outer = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._ended = ended
        self._open = True
        self.used_s = self._loop.time()
        try:
            self._outer.connect((str(address), port))
        except OSError:
            self._outer.close()
            inner.close()
            raise
        self._loop.add_reader(inner.fileno(), self._pass_on, inner, self._outer)
        self._loop.add_reader(self._outer.fileno(), self._pass_on, self._outer, inner)

    def send(self, data: bytes) -> None:
        """Send a datagram to the destination."""
        with suppress(OSError):  # datagrams may be lost
            self._outer.send(data)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        self.used_s = self._loop.time()
        for _ in range(_AT_ONCE):
            try:
                data = source.recv(MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            except OSError:
                continue  # an earlier datagram was refused
            with suppress(OSError):
                target.send(data)

    def close(self) -> None:
        if self._open:
            self._open = False
            for sock in (self._inner, self._outer):
                self._loop.remove_reader(sock.fileno())
                sock.close()
            self._ended()
