"""How a device's compute falls to those at work under the slices they were given.

Nobody gets more than its ceiling; below that, what there is goes in proportion to the shares, and what one cannot use
goes to the others. A run that was declared to take so long takes that long with the share it asked for: with twice as
much it takes half the time.
"""

from collections.abc import Sequence
from typing import NamedTuple


class ComputeClaim(NamedTuple):
    share: float
    ceiling: float


def divide_compute(claims: Sequence[ComputeClaim]) -> list[float]:
    """Parts of the device, at most 1 together."""
    given = [0.0] * len(claims)
    left, open_ = 1.0, [number for number, claim in enumerate(claims) if claim.ceiling > 0]
    while open_ and left > 0:
        weight = sum(claims[number].share for number in open_)
        full = [number for number in open_ if _part(claims[number], weight, left) >= claims[number].ceiling]
        if not full:
            for number in open_:
                given[number] = _part(claims[number], weight, left)
            break
        for number in full:
            given[number] = claims[number].ceiling
            left -= given[number]
        open_ = [number for number in open_ if number not in full]
    return given


def _part(claim: ComputeClaim, weight: float, left: float) -> float:
    return left * claim.share / weight if weight else left
