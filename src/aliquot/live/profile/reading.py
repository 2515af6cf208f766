"""Reads the profiles of a server that runs, has ended or was killed, and advises what applications should request."""

from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.live.profile.log import GRAINS, read_frames, segment_paths
from aliquot.live.profile.records import ProfileRow
from aliquot.live.store.data_directory import PROFILE

QUANTILE, MARGIN = 0.95, 1.1  # advice is this quantile and a tenth more
MIN_ADVISED_ROWS = 20  # with fewer there is no advice
SHARE_STEP, MEMORY_STEP = 0.01, 16 * MIB  # advice is rounded up to multiples of these


class Advice(Struct, frozen=True):
    """The share and the memory of one sandbox that its function should request. None where too little is known."""

    share: float | None
    memory_bytes: int | None


class ProfileSummary(Struct, frozen=True):
    """One application over all rows that were read."""

    tenant: str
    function: str
    rows: int
    calls: int
    starts: int
    at_once: int
    compute_s: float
    share: float  # the most
    request: float
    memory_bytes: int  # the most
    memory_limit: int
    read_bytes: int
    written_bytes: int
    system_calls: int
    faults: int
    last_s: int  # the begin of the last row
    advice: Advice


def read_profiles(data: Path, grain_s: int, last_s: float | None) -> dict[tuple[str, str], list[ProfileRow]]:
    """Return the rows of each application, the oldest first, from `last_s` seconds before the newest row on."""
    folder = data / PROFILE
    if not folder.is_dir():
        raise InputError(f"--data: there are no profiles in {data}; nothing has run yet")
    found = [row for path in segment_paths(folder, GRAINS[grain_s]) for rows in read_frames(path) for row in rows]
    since_s = 0 if last_s is None else max((row.t_s for row in found), default=0) - last_s
    by_key: dict[tuple[str, str], list[ProfileRow]] = {}
    for row in sorted(found, key=lambda row: (row.key, row.t_s)):
        if row.t_s >= since_s:
            by_key.setdefault(row.key, []).append(row)
    return by_key


def summary(rows: Sequence[ProfileRow]) -> ProfileSummary:
    """Return the sums and peaks of one application's rows, and the advice that follows from them."""
    last = rows[-1]
    return ProfileSummary(
        last.tenant,
        last.function,
        len(rows),
        sum(row.calls for row in rows),
        sum(row.starts for row in rows),
        max(row.at_once for row in rows),
        round(sum(row.compute_s for row in rows), 6),
        max(row.share for row in rows),
        last.request,
        max(row.memory_bytes for row in rows),
        last.memory_limit,
        sum(row.read_bytes for row in rows),
        sum(row.written_bytes for row in rows),
        sum(row.system_calls for row in rows),
        sum(row.faults for row in rows),
        last.t_s,
        advise(rows),
    )


def advise(rows: Sequence[ProfileRow]) -> Advice:
    """Advise the 95 % quantile of what one sandbox used, and a tenth more. Cold seconds do not count."""
    typical = [row for row in rows if not row.cold]
    if len(typical) < MIN_ADVISED_ROWS:
        return Advice(None, None)
    share = None
    if typical[-1].request:
        used = quantile(row.share for row in typical) * MARGIN
        share = round(min(1.0, max(SHARE_STEP, ceil(round(used / SHARE_STEP, 6)) * SHARE_STEP)), 2)
    memory = quantile(row.memory_bytes for row in typical) * MARGIN
    return Advice(share, max(1, ceil(memory / MEMORY_STEP)) * MEMORY_STEP if memory else None)


def quantile(values: Iterable[float], part: float = QUANTILE) -> float:
    """Return the smallest value that so large a part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(part * len(ordered)) - 1)]
