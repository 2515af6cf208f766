"""The rules for connections from sandboxes to the outside, and `aliquot up --egress`, which sets them."""

import ipaddress
import re

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.runtime.network import IpAddress, IpNetwork, SteeredPort

ALL, NONE = "all", "none"
MAX_PORT = 65535
_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.?")
_TAKES = "it takes all, none, or a list of hosts and networks, such as db.example.org:5432,*.example.org,10.0.0.0/8"
# Addresses at which clouds give credentials to whoever asks from the machine. Others of them are link-local.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))


class EgressRule(Struct, frozen=True):
    """A destination that the operator has listed: a host name or a network, with one port or all."""

    host: str = ""  # a name, or `*.` and the end of names
    network: str = ""  # an address or a network, if there is no name
    port: int = 0  # 0 means every port


class EgressPolicy(Struct, frozen=True):
    """The operator's decision. Without `open`, only what is listed can be reached."""

    open: bool = True
    rules: tuple[EgressRule, ...] = ()

    @property
    def is_none(self) -> bool:
        return not self.open and not self.rules


def parse_egress(text: str, option: str) -> EgressPolicy:
    """Parse `all`, `none`, or a list that may contain `all`. Raises `InputError`, which names the option."""
    parts = [part.strip().lower() for part in text.split(",")]
    if parts == [NONE]:
        return EgressPolicy(open=False)
    if NONE in parts or "" in parts:
        raise InputError(f"{option}: '{text}' is not understood; {_TAKES}")
    return EgressPolicy(ALL in parts, tuple(_parse_rule(part, option) for part in parts if part != ALL))


def _parse_rule(text: str, option: str) -> EgressRule:
    place, port = _split_port(text, option)
    if place == "localhost":
        place = "127.0.0.1"
    try:
        net = ipaddress.ip_network(place, strict=False)
    except ValueError:
        if not _NAME.fullmatch(place) or place.replace(".", "").isdecimal() or "/" in place:
            raise InputError(f"{option}: '{text}' is neither a host nor a network; {_TAKES}") from None
        return EgressRule(host=place.rstrip("."), port=port)
    if net.is_loopback and (not port or net.num_addresses > 1):
        # Functions have servers of their own at these addresses.
        raise InputError(
            f"{option}: '{text}' is an address of each sandbox itself; to reach a server of the machine there, name "
            f"one address and port, such as {net.network_address}:5432"
        )
    return EgressRule(network=str(net), port=port)


def _split_port(text: str, option: str) -> tuple[str, int]:
    """Split `host:port`, `[address]:port`, or a text without a port."""
    if text.startswith("["):
        place, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InputError(f"{option}: '{text}' is not understood; an address of IPv6 with a port is [::1]:5432")
        port = rest[1:]
    elif text.count(":") > 1:
        return text, 0
    else:
        place, colon, port = text.partition(":")
        if colon and not port:
            raise InputError(f"{option}: '{text}' has no port after the colon")
    if not port:
        return place, 0
    if not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise InputError(f"{option}: '{text}': a port is a number from 1 to {MAX_PORT}, not '{port}'")
    return place, int(port)


class EgressRules:
    """Decides which destinations can be reached."""

    def __init__(self, policy: EgressPolicy) -> None:
        self.is_open = policy.open
        self.is_none = policy.is_none
        self._networks = [(ipaddress.ip_network(rule.network), rule.port) for rule in policy.rules if rule.network]
        self._hosts = [(rule.host, rule.port) for rule in policy.rules if rule.host]

    @property
    def host_names(self) -> tuple[str, ...]:
        """The listed names that can be looked up."""
        return tuple(dict.fromkeys(host for host, _ in self._hosts if not host.startswith("*.")))

    def lists_name(self, name: str) -> bool:
        return any(_matches(host, name) for host, _ in self._hosts)

    def lists(self, address: IpAddress, port: int, names: tuple[str, ...]) -> bool:
        """Return whether the operator has listed this destination. `names` are those that lead to the address."""
        return any(address in net and wanted in (0, port) for net, wanted in self._networks) or any(
            _matches(host, name) and wanted in (0, port) for host, wanted in self._hosts for name in names
        )

    def allows(self, address: IpAddress, port: int, names: tuple[str, ...], *, own: bool) -> bool:
        """Return whether a destination can be reached. `own` says that it is an address of this machine."""
        if self.lists(address, port, names):
            return True
        return self.is_open and not own and not _is_reserved(address)

    def steered_ports(self) -> list[SteeredPort]:
        """Return the listed ports of loopback addresses."""
        return [SteeredPort(net.network_address, port) for net, port in self._networks if net.is_loopback]


def _matches(host: str, name: str) -> bool:
    return name.endswith(host[1:]) if host.startswith("*.") else name == host


def _is_reserved(address: IpAddress) -> bool:
    """Return whether an address is refused unless it is listed: none of another machine, or one of credentials."""
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or str(address) == "255.255.255.255"
        or address in _METADATA
    )


def everything(*, version_6: bool) -> list[IpNetwork]:
    """Return the networks that contain all addresses."""
    return [ipaddress.ip_network("0.0.0.0/0"), *([ipaddress.ip_network("::/0")] if version_6 else [])]
