"""A row of a profile: what one application did in one second or one minute."""

from collections.abc import Sequence
from zlib import crc32

from msgspec import Struct

SECOND_S, MINUTE_S = 1, 60
GRAM_BUCKETS = 64


class ProfileRow(Struct, frozen=True, array_like=True):
    """The work of all sandboxes of one function from `t_s` on. Rows exist only where something happened."""

    tenant: str
    function: str
    t_s: int  # since the epoch
    grain_s: int
    calls: int  # that began
    at_once: int  # most calls at the same time
    starts: int  # of sandboxes
    compute_s: float  # of accelerators, or of processors if it has none
    share: float  # of its device that one sandbox used, the most
    request: float  # the share that it requested; 0 without an accelerator
    memory_bytes: int  # of the largest sandbox, on its device or on the host
    memory_limit: int  # that one sandbox may use
    read_bytes: int
    written_bytes: int
    system_calls: int  # that read or wrote
    faults: int  # of pages
    cold: bool  # within a second after a cold start, so it is not typical
    grams: dict[int, int]  # counts of hashed names and pairs of names in the sequence of its operations, by bucket

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant, self.function


def gram(*names: str) -> int:
    """Return the bucket of a name, or of names that follow each other."""
    return crc32("\0".join(names).encode()) % GRAM_BUCKETS


def merged(rows: Sequence[ProfileRow], t_s: int, grain_s: int) -> ProfileRow:
    """Return one row for several of the same function. Cold seconds count only if there is nothing else."""
    typical = [row for row in rows if not row.cold] or rows
    grams: dict[int, int] = {}
    for row in rows:
        for bucket, count in row.grams.items():
            grams[bucket] = grams.get(bucket, 0) + count
    last = rows[-1]
    return ProfileRow(
        last.tenant,
        last.function,
        t_s,
        grain_s,
        sum(row.calls for row in rows),
        max(row.at_once for row in rows),
        sum(row.starts for row in rows),
        round(sum(row.compute_s for row in typical), 6),
        max(row.share for row in typical),
        last.request,
        max(row.memory_bytes for row in typical),
        last.memory_limit,
        sum(row.read_bytes for row in typical),
        sum(row.written_bytes for row in typical),
        sum(row.system_calls for row in typical),
        sum(row.faults for row in typical),
        all(row.cold for row in rows),
        grams,
    )
