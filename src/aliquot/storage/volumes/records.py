"""The records of volumes that the server and the storage agent exchange."""

from msgspec import Struct


class VolumeSpec(Struct, frozen=True):
    """A volume as the storage agent knows it."""

    id: str  # the name of its folder, which is never used again
    max_bytes: int


class VolumeEntry(Struct, frozen=True):
    """A file or a directory of a volume."""

    name: str
    directory: bool
    bytes: int
    modified: int  # epoch ms


class VolumePart(Struct, frozen=True):
    """A part of a file, and the size and the version of the whole."""

    data: bytes
    size: int
    version: str  # changes with every write
