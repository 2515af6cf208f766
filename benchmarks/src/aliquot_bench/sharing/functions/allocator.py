"""A function that allocates so many megabytes of memory and touches every page."""

from typing import Any


def main(args: dict[str, Any]) -> dict[str, Any]:
    held = bytearray(args["megabytes"] << 20)
    for offset in range(0, len(held), 4096):
        held[offset] = 1
    return {"held": len(held)}
