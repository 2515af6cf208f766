"""How much slower invocations run side by side on one device."""

from collections.abc import Mapping

from aliquot.core.errors import InputError

# Published for a V100: the time of each when so many run at once, against running alone.
V100_STRETCH = {1: 1.0, 2: 1.28, 3: 1.57, 4: 1.95, 6: 3.0}


class InterferenceCurve:
    """A stretch factor by the number that run at once: straight lines between the given points and beyond the last."""

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
    """`off`, `v100`, or the factors for 1, 2, 3, … at once, such as `1,1.28,1.57`."""
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
