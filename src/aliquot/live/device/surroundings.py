"""What a driver may have to know of its node, to see whether they go together."""

from pathlib import Path

from msgspec import Struct


class Surroundings(Struct, frozen=True):
    data: Path = Path()  # the node's folder
    asked: str = ""  # what `--devices` said after the driver's name
    own_uid: bool = False  # each sandbox has a user id of its own
    own_files: bool = False  # and a root directory


ANYWHERE = Surroundings()
