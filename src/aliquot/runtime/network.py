"""The network of a sandbox: a namespace in which every connection to the outside arrives at sockets of the platform.

Only the loopback interface is up in the namespace, and a route makes every address one of its own, so no packet ever
leaves it. A small BPF program chooses the receiving socket. Packets to 127.0.0.0/8 and ::1 go where they would go
anyway, to the sandbox's own servers. All others go to the platform's sockets, which know the original destination:
it is the local address of an accepted connection, and the ancillary data of a datagram.

All this is done by a process outside, which enters the namespace for a moment (`make_gateway`). The sandbox takes no
part in it and has no privileges in its namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import ipaddress
import os
import socket
import struct
import sys
from typing import Any, Iterator, NamedTuple, Union  # noqa: UP035 - Python 3.9 on

from . import linux

IpAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]  # noqa: UP007 - Python 3.9 on
IpNetwork = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]  # noqa: UP007

SOL_IP, IP_RECVORIGDSTADDR = 0, 20
SOL_IPV6, IPV6_RECVORIGDSTADDR = 41, 74
_LISTEN_PORT = 1  # functions may bind no port below 1024, so theirs are never taken
_BACKLOG = 128
_LOOPBACK_INDEX = 1  # of the interface, in every namespace


class SteeredPort(NamedTuple):
    """A port of a loopback address that leads to the platform's sockets, and not to the sandbox's own."""

    address: IpAddress
    port: int


class NetworkGateway(NamedTuple):
    """The platform's descriptors in a sandbox's namespace. Datagrams are sent and received as they are."""

    namespace: int
    link: int  # while it is open, the BPF program is in place
    listener: socket.socket
    datagrams: socket.socket

    def close(self) -> None:
        self.listener.close()
        self.datagrams.close()
        os.close(self.link)
        os.close(self.namespace)


@contextlib.contextmanager
def entered(namespace: int) -> Iterator[None]:
    """Be in another network namespace for a moment. `namespace` is its descriptor, or a pidfd of a process in it."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        linux.enter_namespace(namespace, linux.CLONE_NEWNET)
        try:
            yield
        finally:
            linux.enter_namespace(own, linux.CLONE_NEWNET)
    finally:
        os.close(own)


def make_gateway(routes: list[IpNetwork], steered: list[SteeredPort]) -> NetworkGateway:
    """Configure the namespace of the calling thread, and return the sockets that receive what is sent outside."""
    configure(routes)
    with contextlib.ExitStack() as undo:
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, namespace)
        listener = undo.enter_context(_bound(socket.SOCK_STREAM))
        listener.listen(_BACKLOG)
        datagrams = undo.enter_context(_bound(socket.SOCK_DGRAM))
        datagrams.setsockopt(SOL_IP, IP_RECVORIGDSTADDR, 1)
        if datagrams.family == socket.AF_INET6:
            datagrams.setsockopt(SOL_IPV6, IPV6_RECVORIGDSTADDR, 1)
        link = steer(namespace, listener, datagrams, steered)
        undo.pop_all()
    return NetworkGateway(namespace, link, listener, datagrams)


def destination(connection: socket.socket) -> tuple[str, int]:
    """Return the address and port to which the other end of an accepted connection wanted to connect."""
    host, port = connection.getsockname()[:2]
    return str(plain(host)), port


def plain(host: str) -> IpAddress:
    """Return an address. Addresses of version 4 come from sockets of version 6 in a longer form."""
    address = ipaddress.ip_address(host)
    return (address.version == 6 and address.ipv4_mapped) or address  # noqa: PLR2004 - the version


def _bound(kind: int) -> socket.socket:
    """Return a socket for both versions of IP, or for version 4 where the machine has no other."""
    try:
        sock = socket.socket(socket.AF_INET6, kind | socket.SOCK_NONBLOCK)
    except OSError:
        sock = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("", _LISTEN_PORT))
    return sock


# --- interfaces and routes, by netlink ------------------------------------------------------------------------

_RTM_NEWLINK, _RTM_NEWROUTE, _NLMSG_ERROR = 16, 24, 2
_REQUEST, _ACK, _REPLACE, _CREATE = 1, 4, 0x100, 0x400
_IFF_UP = 1
_SIOCGIFFLAGS = 0x8913
_RTA_DST, _RTA_OIF, _RTA_PREFSRC = 1, 4, 7
_TABLE_LOCAL, _PROTO_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2
_HEADER = struct.Struct("=IHHII")


def configure(routes: list[IpNetwork]) -> None:
    """Bring up the loopback interface, and make the addresses of these networks local. Raises `OSError`."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as netlink:
        netlink.send(_configuration(tuple(routes)))
        left = 1 + len(routes)
        while left:
            answer = netlink.recv(65536)
            while answer:
                size, kind = _HEADER.unpack_from(answer)[:2]
                code = struct.unpack_from("=i", answer, _HEADER.size)[0]
                if kind == _NLMSG_ERROR and code:
                    raise OSError(-code, f"netlink: {os.strerror(-code)}")
                left -= 1
                answer = answer[size:]


@functools.lru_cache(maxsize=8)  # for each sandbox of a relay they are the same
def _configuration(routes: tuple[IpNetwork, ...]) -> bytes:
    """Return the messages that bring up the loopback interface and make routes."""
    up = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, _LOOPBACK_INDEX, _IFF_UP, _IFF_UP)
    messages = [(_RTM_NEWLINK, _ACK, up), *((_RTM_NEWROUTE, _ACK | _CREATE | _REPLACE, _route(net)) for net in routes)]
    data = b""
    for number, (kind, flags, body) in enumerate(messages, 1):
        data += _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, number, 0) + body
    return data


def is_new() -> bool:
    """Return whether the namespace of the calling thread has never been configured."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16s24x", b"lo"))
    return not struct.unpack_from("=H", answer, 16)[0] & _IFF_UP


def _route(net: IpNetwork) -> bytes:
    family = socket.AF_INET if net.version == 4 else socket.AF_INET6  # noqa: PLR2004 - the version
    source = ipaddress.ip_address("127.0.0.1" if family == socket.AF_INET else "::1")
    head = struct.pack("=8BI", family, net.prefixlen, 0, 0, _TABLE_LOCAL, _PROTO_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0)
    attributes = [(_RTA_OIF, struct.pack("=i", _LOOPBACK_INDEX)), (_RTA_PREFSRC, source.packed)]
    if net.prefixlen:
        attributes.append((_RTA_DST, net.network_address.packed))
    return head + b"".join(struct.pack("=HH", 4 + len(value), kind) + value for kind, value in attributes)


# --- the choice of the socket, by BPF -------------------------------------------------------------------------

_BPF = {"x86_64": 321, "aarch64": 280}.get(linux.MACHINE, -1)
_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD, _LINK_CREATE = 0, 2, 5, 28
_SOCKMAP, _SK_LOOKUP_PROGRAM, _SK_LOOKUP_ATTACH = 15, 30, 36
_LOG_BYTES = 65536
_FAMILY, _PROTOCOL, _LOCAL_IP4, _LOCAL_IP6, _LOCAL_PORT = 8, 12, 40, 44, 60  # offsets in the kernel's bpf_sk_lookup
_LOAD, _STORE, _COPY, _SET, _AND = 0x61, 0x63, 0xBF, 0xB7, 0x57
_JUMP, _IF_EQUAL, _IF_NOT_EQUAL, _CALL, _EXIT, _LOAD_MAP = 0x05, 0x16, 0x56, 0x85, 0x95, 0x18
_LOOKUP_ELEMENT, _SK_RELEASE, _SK_ASSIGN = 1, 86, 124
_PASS = 1
_KEY = -4  # on the stack
_TCP_KEY, _UDP_KEY = 0, 1


def steer(namespace: int, listener: socket.socket, datagrams: socket.socket, steered: list[SteeredPort]) -> int:
    """Let all packets to the outside reach these sockets while the returned descriptor is open. Raises `OSError`."""
    sockets = _bpf(_MAP_CREATE, struct.pack("=IIII", _SOCKMAP, 4, 8, 2), "a map")
    try:
        for key, sock in ((_TCP_KEY, listener), (_UDP_KEY, datagrams)):
            place, value = ctypes.c_uint32(key), ctypes.c_uint64(sock.fileno())
            attributes = struct.pack("=IxxxxQQQ", sockets, ctypes.addressof(place), ctypes.addressof(value), 0)
            _bpf(_MAP_UPDATE, attributes, "a socket in a map")
        program = _load(assemble(sockets, steered))
    finally:
        os.close(sockets)
    try:
        return _bpf(_LINK_CREATE, struct.pack("=IIII", program, namespace, _SK_LOOKUP_ATTACH, 0), "sk_lookup")
    finally:
        os.close(program)


def _bpf(command: int, attributes: bytes, what: str) -> int:
    if _BPF < 0:
        raise OSError(0, f"bpf: its number on {linux.MACHINE} is not known here")
    size = max(len(attributes), 120)
    return linux.syscall(_BPF, command, ctypes.create_string_buffer(attributes, size), size, what=f"bpf ({what})")


def _load(code: bytes) -> int:
    text, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"MIT")
    attributes = struct.pack(
        "=IIQQ", _SK_LOOKUP_PROGRAM, len(code) // 8, ctypes.addressof(text), ctypes.addressof(licence)
    )
    # The expected kind of attachment is at offset 68; without it the kernel refuses programs of this kind.
    attributes += bytes(68 - len(attributes)) + struct.pack("=I", _SK_LOOKUP_ATTACH)
    return _bpf(_PROG_LOAD, attributes, "a program")


Instruction = Any  # a label, or an operation with its registers, offset or label, and value


def assemble(sockets: int, steered: list[SteeredPort]) -> bytes:
    """Return the program: pass packets to loopback addresses on, and give all others to the sockets of the map."""
    code = _assemble(tuple(steered))
    place = next(offset for offset in range(0, len(code), 8) if code[offset] == _LOAD_MAP) + 4
    return code[:place] + struct.pack("=I", sockets) + code[place + 4 :]


@functools.lru_cache(maxsize=8)
def _assemble(steered: tuple[SteeredPort, ...]) -> bytes:
    """Return the program with 0 for the descriptor of the map."""
    code: list[Instruction] = [
        (_COPY, 6, 1, 0, 0),
        (_LOAD, 2, 6, _FAMILY, 0),
        (_LOAD, 5, 6, _LOCAL_PORT, 0),
        (_IF_EQUAL, 2, 0, "version 6", socket.AF_INET6),
        (_LOAD, 3, 6, _LOCAL_IP4, 0),
        (_COPY, 4, 3, 0, 0),
        (_AND, 4, 0, 0, 0xFF),  # its first byte
        (_IF_NOT_EQUAL, 4, 0, "outside", 127),
        *_steered_ports(steered, 4),
        "pass",
        (_SET, 0, 0, 0, _PASS),
        (_EXIT, 0, 0, 0, 0),
        "version 6",
        *[one for word in range(3) for one in _unless(_LOCAL_IP6 + 4 * word, 0)],
        *_unless(_LOCAL_IP6 + 12, _word(b"\0\0\0\1")),
        *_steered_ports(steered, 6),
        (_JUMP, 0, 0, "pass", 0),
        "outside",
        (_LOAD, 2, 6, _PROTOCOL, 0),
        (_SET, 3, 0, 0, _TCP_KEY),
        (_IF_EQUAL, 2, 0, "choose", socket.IPPROTO_TCP),
        (_SET, 3, 0, 0, _UDP_KEY),
        "choose",
        (_STORE, 10, 3, _KEY, 0),
        (_LOAD_MAP, 1, 1, 0, 0),
        (0, 0, 0, 0, 0),
        (_COPY, 2, 10, 0, 0),
        (0x07, 2, 0, 0, _KEY),  # add
        (_CALL, 0, 0, 0, _LOOKUP_ELEMENT),
        (0x15, 0, 0, "pass again", 0),  # the platform has closed its socket
        (_COPY, 7, 0, 0, 0),
        (_COPY, 1, 6, 0, 0),
        (_COPY, 2, 0, 0, 0),
        (_SET, 3, 0, 0, 0),
        (_CALL, 0, 0, 0, _SK_ASSIGN),
        (_COPY, 1, 7, 0, 0),
        (_CALL, 0, 0, 0, _SK_RELEASE),
        "pass again",
        (_SET, 0, 0, 0, _PASS),
        (_EXIT, 0, 0, 0, 0),
    ]
    return _encode(code)


def _unless(offset: int, word: int) -> list[Instruction]:
    """Jump outside if a word of the address is another one."""
    return [(_LOAD, 3, 6, offset, 0), (_IF_NOT_EQUAL, 3, 0, "outside", word)]


def _steered_ports(steered: tuple[SteeredPort, ...], version: int) -> list[Instruction]:
    code: list[Instruction] = []
    for number, (address, port) in enumerate(steered):
        if address.version == version:
            label = f"after {version}.{number}"
            code.append((_IF_NOT_EQUAL, 5, 0, label, port))
            if version == 4:  # noqa: PLR2004 - the version; version 6 has only one loopback address
                code.append((_IF_NOT_EQUAL, 3, 0, label, _word(address.packed)))
            code += [(_JUMP, 0, 0, "outside", 0), label]
    return code


def _word(packed: bytes) -> int:
    """Return four bytes in the network's order as the kernel compares them."""
    return int.from_bytes(packed, sys.byteorder)


def _encode(code: list[Instruction]) -> bytes:
    labels: dict[str, int] = {}
    place = 0
    for one in code:
        if isinstance(one, str):
            labels[one] = place
        else:
            place += 1
    words = b""
    for operation, target, source, offset, value in (one for one in code if not isinstance(one, str)):
        distance = labels[offset] - len(words) // 8 - 1 if isinstance(offset, str) else offset
        words += struct.pack("=BBhI", operation, target | source << 4, distance, value & 0xFFFFFFFF)
    return words
