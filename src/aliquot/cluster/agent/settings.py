"""The settings of a node agent, and the files by which a node is known to its head."""

import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.cluster.certificates import KeyFiles
from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.live.store.data_directory import write_private

FOLDER = "node"
EPOCH = "epoch"  # the highest that the node has seen
_FILE = "node.json"


class HeadAddress(Struct, frozen=True):
    """The head's port for nodes."""

    host: str
    port: int
    tls: bool = True

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Membership(Struct, frozen=True):
    """The name and the secrets of a machine that has joined. Certificate and key are in files of their own."""

    node: str
    identity: str
    head: HeadAddress
    secret: bytes = b""  # by which it shows who it is without TLS


class AgentOptions(Struct, frozen=True):
    """The options of the agent that the operator of its machine gives."""

    data: str
    devices: tuple[DeviceSpec, ...]
    devices_asked: str
    host_memory_bytes: int
    max_sandbox_bytes: int
    grace_s: float
    python: str | None = None
    instance: str = ""  # of this process; another one has another


def key_files(data: Path) -> KeyFiles:
    return KeyFiles(data / FOLDER)


def load_membership(data: Path) -> Membership | None:
    """Return what the machine has, or None if it has not joined. Raises `InputError`."""
    file = data / FOLDER / _FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=Membership)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"--data: {file} cannot be read: {error}; join again with --token") from error


def store_membership(data: Path, membership: Membership) -> None:
    write_private(data / FOLDER / _FILE, msgspec.json.encode(membership).decode())


def make_identity() -> str:
    return secrets.token_hex(16)


def parse_address(text: str, default_port: int, *, tls: bool) -> HeadAddress:
    """Parse the head's address, `HOST`, `HOST:PORT` or either with a scheme. Raises `InputError`."""
    rest = text.partition("://")[2] or text
    rest = rest.rstrip("/")
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(default_port)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f"'{text}' is no address of a head; it takes HOST:PORT, as `aliquot up --cluster` prints it")
    return HeadAddress(host, int(port), tls)
