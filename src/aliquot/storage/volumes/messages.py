"""The messages about volumes between the server and the storage agent."""

from typing import TypeAlias

from msgspec import Struct

from aliquot.storage.volumes.records import VolumeEntry, VolumePart, VolumeSpec


class PutVolume(Struct, frozen=True, tag=True):
    """Add a volume, or change its size."""

    volume: VolumeSpec


class RemoveVolume(Struct, frozen=True, tag=True):
    """Delete a volume with its files. Answered by `VolumeReply`, as are all that follow."""

    request: int
    volume: str


class ShowVolumes(Struct, frozen=True, tag=True):
    """Report the bytes that volumes use."""

    request: int
    volumes: tuple[str, ...]


class ListVolume(Struct, frozen=True, tag=True):
    request: int
    volume: str
    path: str
    skip: int
    limit: int


class ReadVolume(Struct, frozen=True, tag=True):
    request: int
    volume: str
    path: str
    offset: int
    size: int


class WriteVolume(Struct, frozen=True, tag=True):
    """Write a part of a file that is uploaded."""

    request: int
    volume: str
    path: str
    data: bytes
    upload: str
    offset: int
    last: bool


class MakeVolumeDirectory(Struct, frozen=True, tag=True):
    request: int
    volume: str
    path: str


class RemoveVolumePath(Struct, frozen=True, tag=True):
    request: int
    volume: str
    path: str
    recursive: bool


class MountVolumes(Struct, frozen=True, tag=True):
    """Show volumes, ids by name, to a sandbox. Sent on the view socket, with the descriptor of `/dev/fuse`."""

    sandbox: int
    volumes: dict[str, str]
    tenant: str


class UnmountVolumes(Struct, frozen=True, tag=True):
    sandbox: int


class VolumeReply(Struct, frozen=True, tag=True):
    """The answer to a request. `error` is a text for people, empty on success, and `code` an errno."""

    request: int
    used: dict[str, int] = {}  # bytes of volumes, by id
    count: int = 0  # of names that were removed, or the bytes of an upload so far
    entries: tuple[VolumeEntry, ...] = ()
    part: VolumePart | None = None
    error: str = ""
    code: int = 0


VolumeRequest: TypeAlias = (
    RemoveVolume | ShowVolumes | ListVolume | ReadVolume | WriteVolume | MakeVolumeDirectory | RemoveVolumePath
)
