"""The settings of the console."""

from urllib.parse import urlsplit

from msgspec import Struct

from aliquot.core.errors import InputError


class ConsoleSettings(Struct, frozen=True):
    """The place where the console is served. Without a port it takes the one after the gateway's, or a free one."""

    enabled: bool = True
    port: int | None = None
    url: str | None = None  # the address that browsers use, if a proxy is in front


def parse_console(port: str | None, url: str | None) -> ConsoleSettings:
    """Parse `--console-port` and `--console-url`. Raises `InputError`."""
    if port is not None and port != "none" and not (port.isdecimal() and int(port) < 2**16):
        raise InputError(f"--console-port: '{port}' is not a port; it takes a number from 0 to 65535, or none")
    parts = urlsplit(url or "")
    if url is not None and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise InputError(f"--console-url: '{url}' is not an address; it takes one such as https://console.example.org")
    if port is None or port == "none":
        return ConsoleSettings(enabled=port is None, url=url)
    return ConsoleSettings(port=int(port), url=url)
