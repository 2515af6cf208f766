"""Facts about the machine's own network that decide what sandboxes may reach."""

import socket
from contextlib import suppress
from pathlib import Path

from aliquot.runtime.network import IpAddress, plain

_RESOLVER = Path("/etc/resolv.conf")
_ROUTES_6 = Path("/proc/net/ipv6_route")
_NOWHERE = ("0" * 32, "00")  # a destination and its prefix: the default route
_ANY_PORT = 9


def is_own(address: IpAddress) -> bool:
    """Return whether an address is one of this machine, to which packets go without a network."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - the version
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((str(address), _ANY_PORT))  # sends nothing, and chooses the source address
            return plain(sock.getsockname()[0]) == address
    except OSError:
        return False  # it cannot be reached at all


def nameservers() -> tuple[IpAddress, ...]:
    """Return the addresses of the nameservers that programs on this machine ask."""
    found = []
    with suppress(OSError):
        for line in _RESOLVER.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "nameserver":
                with suppress(ValueError):
                    found.append(plain(words[1].partition("%")[0]))
    return tuple(found)


def has_version_6() -> bool:
    """Return whether the machine has a route to the outside for version 6 of IP."""
    with suppress(OSError):
        for line in _ROUTES_6.read_text().splitlines():
            fields = line.split()
            if (fields[0], fields[1]) == _NOWHERE and fields[-1] != "lo":
                return True
    return False


def namespace_inode() -> int:
    """Return the number of the network namespace that the calling thread is in."""
    return Path("/proc/thread-self/ns/net").stat().st_ino
