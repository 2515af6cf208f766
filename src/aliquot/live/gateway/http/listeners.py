"""The sockets that the gateway listens on.

`localhost` is 127.0.0.1 for some clients and ::1 for others. A gateway that listens on one of them listens on the
other, too. Otherwise a function could listen there at the same port, and collect the keys of clients.
"""

import errno
import socket

from aliquot.core.errors import InputError

BACKLOG = 2048
MAX_TRIES = 16  # to find a port that is free on both addresses
_V4, _V6 = "127.0.0.1", "::1"
_ANY_V4, _ANY_V6 = "0.0.0.0", "::"  # noqa: S104 - chosen by the operator
# The loopback address of the other family, by the address that the operator chose.
_TWIN = {_V4: _V6, "localhost": _V6, _ANY_V4: _V6, _V6: _V4}
_TWIN_TAKEN = (
    "{option}: {} cannot be listened on: {}; `localhost` is that address for some clients, so the server must have it, "
    "too: end the program there (`ss -ltnp` names it), or give another port with {option}"
)
_NO_FAMILY = frozenset([errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])


def listen(host: str, port: int, option: str = "--port") -> list[socket.socket]:
    """Return the listening sockets, that of `host` first. Port 0 takes a free one. Raises `InputError`."""
    for _ in range(MAX_TRIES):
        try:
            first = _listen(host, port)
        except OSError as error:
            raise InputError(
                f"{option}: {_text(host, port)} cannot be listened on: {error.strerror}; give another with {option}"
            ) from error
        twin, chosen = _TWIN.get(host), first.getsockname()[1]
        if twin is None:
            return [first]
        try:
            return [first, _listen(twin, chosen)]
        except OSError as error:
            if error.errno in _NO_FAMILY:  # this machine has no such address, so nobody else can listen there
                return [first]
            first.close()
            if port:
                raise InputError(_TWIN_TAKEN.format(_text(twin, port), error.strerror, option=option)) from error
    raise InputError(f"{option}: no port is free on both {host} and {_TWIN[host]}; give one with {option}")


def url_of(listener: socket.socket, *, tls: bool) -> str:
    """Return the address for clients on this machine."""
    host, port = listener.getsockname()[:2]
    reachable = {_ANY_V4: _V4, _ANY_V6: _V6}.get(host, host)
    return f"{'https' if tls else 'http'}://{_text(reachable, port)}"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # All addresses of version 6 include those of version 4, so that no other program can have those.
    dual = host == _ANY_V6 and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
