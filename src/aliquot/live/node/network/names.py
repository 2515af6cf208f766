"""Host names for sandboxes: the addresses of listed hosts, and answers to DNS queries about them.

Under a list of allowed destinations no query of a function leaves the machine, because names can carry data out. The
relay looks up listed names itself, answers with what it has found, and lets functions connect to those addresses.
"""

import asyncio
import ipaddress
import socket
import struct
import time
from contextlib import suppress

from aliquot.live.node.network.egress import EgressRules
from aliquot.runtime.network import IpAddress

DNS_PORT = 53
_REFRESH_S = 60
_FRESH_S = 5  # for which a lookup is not repeated
_KEEP_S = 3600  # for which an address stays known after the last lookup: functions keep addresses, too
_TTL_S = 60
_MAX_ADDRESSES = 4096
_MAX_ANSWERS = 16
_A, _AAAA = 1, 28
_HEAD = struct.Struct("!HHHHHH")
_RESPONSE, _RECURSION = 0x8180, 0x0100
_FORMAT_ERROR, _NO_SUCH_NAME = 1, 3


class HostNames:
    """The addresses of listed hosts, by what was looked up lately."""

    def __init__(self, rules: EgressRules) -> None:
        self._rules = rules
        self._names: dict[IpAddress, dict[str, float]] = {}  # by address: names, and when they were last found
        self._lookups: dict[str, asyncio.Task[list[IpAddress]]] = {}  # running or recent

    def of(self, address: IpAddress) -> tuple[str, ...]:
        """Return the listed names that lead to an address."""
        return tuple(self._names.get(address, ()))

    async def refresh(self) -> None:
        """Look up the listed names again and again."""
        while self._rules.host_names:
            for name in self._rules.host_names:
                with suppress(OSError):
                    await self.look_up(name)
            self._forget(time.monotonic() - _KEEP_S)
            await asyncio.sleep(_REFRESH_S)

    async def look_up(self, name: str) -> list[IpAddress]:
        """Return the addresses of a listed name, as they are now or were a moment ago. Raises `OSError`."""
        lookup = self._lookups.get(name)
        if lookup is None:
            loop = asyncio.get_running_loop()
            lookup = self._lookups[name] = loop.create_task(self._find(name))
            lookup.add_done_callback(lambda _: loop.call_later(_FRESH_S, self._lookups.pop, name))
        return await asyncio.shield(lookup)

    async def _find(self, name: str) -> list[IpAddress]:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
        for address in addresses[:_MAX_ANSWERS]:
            if address in self._names or len(self._names) < _MAX_ADDRESSES:
                self._names.setdefault(address, {})[name] = time.monotonic()
        return addresses[:_MAX_ANSWERS]

    def _forget(self, before: float) -> None:
        for address, names in list(self._names.items()):
            for name in [name for name, found in names.items() if found < before]:
                del names[name]
            if not names:
                del self._names[address]

    async def answer(self, query: bytes) -> bytes:
        """Return the answer to a DNS query: the addresses of a listed name, or that there is no such name."""
        question = read_question(query)
        if question is None:
            return query[:2] + struct.pack("!HHHHH", _RESPONSE | _FORMAT_ERROR, 0, 0, 0, 0)
        name, kind, end = question
        if not self._rules.lists_name(name):
            return _reply(query, end, _NO_SUCH_NAME, [])
        try:
            addresses = await self.look_up(name)
        except OSError:
            return _reply(query, end, _NO_SUCH_NAME, [])
        version = {_A: 4, _AAAA: 6}.get(kind)
        return _reply(query, end, 0, [address for address in addresses if address.version == version])


def read_question(query: bytes) -> tuple[str, int, int] | None:
    """Return the name of a query, the type of record, and the length of head and question, or None if it is invalid."""
    if len(query) < _HEAD.size or _HEAD.unpack_from(query)[2] != 1:
        return None
    labels, place = [], _HEAD.size
    while place < len(query) and 0 < query[place] < 64:  # noqa: PLR2004 - longer ones are references
        labels.append(query[place + 1 : place + 1 + query[place]])
        place += 1 + query[place]
    if place + 5 > len(query) or query[place] or not labels:
        return None
    kind = struct.unpack_from("!H", query, place + 1)[0]
    return b".".join(labels).decode("ascii", "replace").lower(), kind, place + 5


def _reply(query: bytes, end: int, code: int, addresses: list[IpAddress]) -> bytes:
    number, flags = struct.unpack_from("!HH", query)
    head = _HEAD.pack(number, _RESPONSE | (flags & _RECURSION) | code, 1, len(addresses), 0, 0)
    records = b"".join(
        # 0xC00C refers to the name in the question.
        struct.pack("!HHHIH", 0xC00C, _A if address.version == 4 else _AAAA, 1, _TTL_S, len(address.packed))  # noqa: PLR2004
        + address.packed
        for address in addresses
    )
    return head + query[_HEAD.size : end] + records
