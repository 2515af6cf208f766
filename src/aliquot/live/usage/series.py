"""Samples as people ask for them: windows of equal length, and what they say taken together."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, pstdev

from msgspec import Struct

from aliquot.live.usage.reading import SandboxSamples


class UsageWindow(Struct, frozen=True):
    t_ms: int  # when it begins, epoch
    share: float  # of the device's compute that was used, on average
    request: float
    memory_bytes: int


class UsageRow(Struct, frozen=True):
    """One sandbox, or all of a function on one device."""

    tenant: str
    function: str
    device: str
    sandboxes: list[int]
    request: float  # the most that was asked for at one time
    compute_s: float  # seconds of the whole device
    active_s: float  # the windows in which it used any
    share: float  # over these windows: the mean,
    deviation: float  # the deviation from one window to the next,
    peak: float  # and the most
    peak_bytes: int
    windows: list[UsageWindow]
    enforced: bool = True  # whether it was kept to what it asked for


class _WindowSum:
    """What falls into one window."""

    __slots__ = ("compute_us", "memory_bytes", "request_us")

    def __init__(self) -> None:
        self.compute_us = 0.0
        self.request_us = 0.0
        self.memory_bytes = 0

    def window(self, t_ms: int, width: int) -> UsageWindow:
        return UsageWindow(
            t_ms, round(self.compute_us / width, 6), round(self.request_us / width, 6), self.memory_bytes
        )


def usage_rows(tracks: Sequence[SandboxSamples], window_ms: int, *, each_sandbox: bool) -> list[UsageRow]:
    groups: dict[tuple[str, str, str, int], list[SandboxSamples]] = {}
    for number, track in enumerate(tracks):
        label = track.label
        key = (label.tenant, label.function, label.device, number if each_sandbox else 0)
        groups.setdefault(key, []).append(track)
    return [_row(group, window_ms) for _, group in sorted(groups.items())]


def _row(group: list[SandboxSamples], window_ms: int) -> UsageRow:
    label = group[0].label
    windows = _windows(group, window_ms)
    active = [window.share for window in windows if window.share > 0]
    return UsageRow(
        label.tenant,
        label.function,
        label.device,
        sorted({track.label.sandbox for track in group}),
        max((window.request for window in windows), default=0.0),
        round(sum(active) * window_ms / 1000, 6),
        len(active) * window_ms / 1000,
        round(fmean(active), 6) if active else 0.0,
        round(pstdev(active), 6) if active else 0.0,
        max(active, default=0.0),
        max((window.memory_bytes for window in windows), default=0),
        windows,
        all(track.label.enforced for track in group),
    )


def _windows(group: Iterable[SandboxSamples], window_ms: int) -> list[UsageWindow]:
    """The first and the last one of each sandbox are left out where they are not whole: they would say too little."""
    width = window_ms * 1000
    sums: dict[int, _WindowSum] = {}
    for track in group:
        samples = track.samples
        first, beyond = -(-samples[0].t_us // width), samples[-1].t_us // width
        for before, sample in pairwise(samples):
            begin = max(before.t_us, first * width)
            end = min(sample.t_us, beyond * width)
            while begin < end:
                place = begin // width
                until = min(end, (place + 1) * width)
                into = sums.setdefault(place, _WindowSum())
                into.compute_us += sample.share * (until - begin)
                into.request_us += sample.request * (until - begin)
                begin = until
        _add_memory(sums, track, width)
    return [
        UsageWindow(
            place * window_ms, round(into.compute_us / width, 6), round(into.request_us / width, 6), into.memory_bytes
        )
        for place, into in sorted(sums.items())
    ]


def _add_memory(sums: dict[int, _WindowSum], track: SandboxSamples, width: int) -> None:
    """The most that a sandbox had in a window, added to what others had."""
    most: dict[int, int] = {}
    for sample in track.samples:
        place = sample.t_us // width
        most[place] = max(most.get(place, 0), sample.memory_bytes)
    held = 0
    for place in sorted(sums):
        held = most.get(place, held)
        if track.samples[0].t_us // width <= place <= track.samples[-1].t_us // width:
            sums[place].memory_bytes += held
