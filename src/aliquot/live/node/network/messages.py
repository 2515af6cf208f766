"""Messages between the server and the relay, one JSON object per packet. Some carry a descriptor.

to the relay     {"start": …}                              first: `RelaySettings`
                 {"add": n, "tenant": "…"} and a pidfd     take over the network of this sandbox's process;
                                                           "configured" if trusted code may have configured it
                 {"assign": n, "tenant": "…"}              count its connections for a tenant
                 {"remove": n}                             the sandbox has ended
to the server    {"added": n} or {"failed": n, "why": "…"}
                 {"api": n} and a connected socket         a function calls the platform
"""

from msgspec import Struct

from aliquot.live.node.network.egress import EgressPolicy

MAX_PACKET_BYTES = 65536


class ApiAddress(Struct, frozen=True):
    """The address of the platform's API, as functions know it."""

    host: str
    port: int
    any_address: bool = False  # it also listens on all other addresses of the machine


class RelaySettings(Struct, frozen=True):
    """The settings of a relay, sent to it when it starts."""

    policy: EgressPolicy = EgressPolicy()
    api: ApiAddress | None = None
    connections: int = 2048  # to the outside, which tenants share, flows of datagrams included


class ToRelay(Struct, omit_defaults=True):
    """A message to the relay. One field says what it is."""

    start: RelaySettings | None = None
    add: int | None = None
    configured: bool = False
    assign: int | None = None
    tenant: str = ""
    remove: int | None = None


class FromRelay(Struct, omit_defaults=True):
    """A message to the server. One field says what it is."""

    added: int | None = None
    failed: int | None = None
    why: str = ""
    api: int | None = None
