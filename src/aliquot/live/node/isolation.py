"""Which walls stand between a sandbox and the rest of the machine."""

from msgspec import Struct


class Isolation(Struct, frozen=True):
    """The layers in use. `none()` leaves processes alone: for debugging."""

    @classmethod
    def none(cls) -> "Isolation":
        return cls()
