"""Models of contention: how concurrent runs on one device slow each other down.

An `InterferenceCurve` stretches all runs by a factor that depends on their number. `divide_compute` divides a device by
the slices of the running sandboxes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aliquot.core.errors import InputError

# Published for a V100: run time with this many concurrent runs, relative to running alone.
V100_STRETCH = {1: 1.0, 2: 1.28, 3: 1.57, 4: 1.95, 6: 3.0}


class InterferenceCurve:
    """Stretch factors by number of concurrent runs, interpolated and extrapolated linearly."""

    def __init__(self, points: Mapping[int, float]) -> None:
        self._points = sorted(points.items())

    def stretch(self, running: int) -> float:
        points = self._points
        below = max((point for point in points if point[0] <= running), default=points[0])
        above = min((point for point in points if point[0] >= running), default=None)
        if below[0] == running or len(points) == 1:
            return below[1]
        if above is None:
            below, above = points[-2], points[-1]
        slope = (above[1] - below[1]) / (above[0] - below[0])
        return below[1] + slope * (running - below[0])


def parse_curve(text: str) -> InterferenceCurve | None:
    """Parse `off`, `v100`, or the factors for 1, 2, 3, … concurrent runs, such as `1,1.28,1.57`."""
    if text == "off":
        return None
    if text == "v100":
        return InterferenceCurve(V100_STRETCH)
    takes = "it takes off, v100, or factors for 1, 2, 3, … at once that begin with 1 and never fall, such as 1,1.3,1.6"
    try:
        factors = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--interference: '{text}' is not a curve; {takes}") from error
    if factors[0] != 1 or sorted(factors) != factors or not factors[-1] < float("inf"):
        raise InputError(f"--interference: '{text}' is not a curve; {takes}")
    return InterferenceCurve(dict(enumerate(factors, start=1)))


class ComputeClaim(NamedTuple):
    """The slice of one running sandbox: its share, and its maximum."""

    share: float
    ceiling: float


def divide_compute(claims: Sequence[ComputeClaim]) -> list[float]:
    """Return each claim's part of the device. The parts add up to at most 1.

    Compute is divided in proportion to the shares. No claim gets more than its ceiling, and the rest goes to the
    others.
    """
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
