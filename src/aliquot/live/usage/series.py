"""Turns samples into windows of equal length, with a summary for each sandbox or function."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, pstdev

from msgspec import Struct

from aliquot.live.usage.reading import SandboxSamples


class UsageWindow(Struct, frozen=True):
    t_ms: int  # its beginning, since the epoch
    share: float  # of the device's compute that was used, on average
    request: float
    memory_bytes: int


class UsageRow(Struct, frozen=True):
    """The usage of one sandbox, or of all sandboxes of a function on one device."""

    tenant: str
    function: str
    device: str
    sandboxes: list[int]
    request: float  # the highest share that was requested at one time
    compute_s: float  # seconds of the whole device
    active_s: float  # duration of the windows with any compute
    share: float  # mean over these windows
    deviation: float  # standard deviation over these windows
    peak: float  # highest of these windows
    peak_bytes: int
    windows: list[UsageWindow]
    enforced: bool = True  # whether its slice was enforced


class _WindowSum:
    """The sums of one window."""

    __slots__ = ("compute_us", "memory_bytes", "request_us")

    def __init__(self) -> None:
        self.compute_us = 0.0
        self.request_us = 0.0
        self.memory_bytes = 0

    def window(self, t_ms: int, width: int) -> UsageWindow:
        return UsageWindow(
            t_ms, round(self.compute_us / width, 6), round(self.request_us / width, 6), self.memory_bytes
        )


def usage_rows(series: Sequence[SandboxSamples], window_ms: int, *, each_sandbox: bool) -> list[UsageRow]:
    groups: dict[tuple[str, str, str, int], list[SandboxSamples]] = {}
    for number, track in enumerate(series):
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
    """Return the windows of some sandboxes, without the incomplete first and last window of each."""
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
    """Add the highest memory of a sandbox in each window."""
    highest: dict[int, int] = {}
    for sample in track.samples:
        place = sample.t_us // width
        highest[place] = max(highest.get(place, 0), sample.memory_bytes)
    held = 0
    for place in sorted(sums):
        held = highest.get(place, held)
        if track.samples[0].t_us // width <= place <= track.samples[-1].t_us // width:
            sums[place].memory_bytes += held
