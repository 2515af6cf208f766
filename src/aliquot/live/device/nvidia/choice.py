"""Parses `--devices nvidia…`: which GPUs, how they are shared, and whether idle sandboxes are swapped out."""

from enum import StrEnum

from msgspec import Struct

from aliquot.core.errors import InputError

NVIDIA = "nvidia"
TAKES = (
    "nvidia, all GPUs of this machine, or nvidia:0,1, these ones; then, if wanted, :mps, :hami, :mig or :timeslice, "
    "and :swap, as in nvidia:0,1:hami:swap"
)


class SharingMode(StrEnum):
    MPS = "mps"
    HAMI = "hami"
    MIG = "mig"
    TIMESLICE = "timeslice"


class NvidiaChoice(Struct, frozen=True):
    indices: tuple[int, ...] = ()  # empty: all GPUs
    mode: SharingMode = SharingMode.TIMESLICE  # works everywhere, and enforces nothing
    swap: bool = False


def read_choice(text: str) -> NvidiaChoice:
    """Parse the text after `nvidia:`, which may be empty. Raises `InputError`."""
    indices: tuple[int, ...] = ()
    modes: list[SharingMode] = []
    swap = False
    parts = text.split(":") if text else []
    for part in parts:
        if part in list(SharingMode):
            modes.append(SharingMode(part))
        elif part == "swap":
            swap = True
        elif all(number.isdecimal() for number in part.split(",")) and not indices:
            indices = tuple(map(int, part.split(",")))
        else:
            raise InputError(f"--devices: '{part}' of '{NVIDIA}:{text}' is not understood; it takes {TAKES}")
    if len(modes) > 1 or len(set(indices)) < len(indices):
        raise InputError(f"--devices: '{NVIDIA}:{text}' says a thing twice; it takes {TAKES}")
    return NvidiaChoice(indices, modes[0] if modes else SharingMode.TIMESLICE, swap)
