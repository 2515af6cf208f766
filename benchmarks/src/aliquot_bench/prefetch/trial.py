"""One measured session, and the figures computed from many of them. Pure."""

from collections.abc import Mapping, Sequence
from statistics import fmean, quantiles

from msgspec import Struct

from aliquot_bench.prefetch.workload import ReadSession
from aliquot_bench.result import PERCENT


class SessionTrial(Struct, frozen=True):
    """One session. The function measures the seconds, and the origin counts the bytes."""

    user: str
    lead_s: float  # requested, between the session's creation and the call
    loading_s: float  # from the first open to the last byte of the last file
    first_batch_s: float  # from the request of the call to the last byte of the first batch
    read_bytes: int
    moved: dict[str, int]  # bytes by path, from the session's creation to its end
    files: tuple[str, ...]  # read by the session
    repeats: bool = True  # like the user's usual sessions
    waited_s: float | None = None  # time waited for files, according to the activation
    opened: dict[str, int] = {}  # number of opens by state of the file, according to the activation

    @property
    def moved_bytes(self) -> int:
        return sum(self.moved.values())

    def wasted_bytes(self, sizes: Mapping[str, int]) -> int:
        """Return the bytes that were moved but not read, or moved more than once."""
        read = set(self.files)
        return sum(max(0, sent - sizes[path]) if path in read else sent for path, sent in self.moved.items())


def make_trial(
    session: ReadSession,
    lead_s: float,
    sent_at: float,
    result: Mapping[str, list[float]],
    annotations: Mapping[str, object],
) -> SessionTrial:
    """Make a trial of the reader's result and the activation's annotations. The origin's counts are added later."""
    marks, began = result["marks"], result["began"]
    waited, opened = annotations.get("dataTime"), annotations.get("opened")
    return SessionTrial(
        session.user,
        lead_s,
        marks[-1] - float(began),  # type: ignore[arg-type]
        marks[session.batch - 1] - sent_at,
        int(sum(result["sizes"])),
        {},
        tuple(file.path for file in session.files),
        session.repeats,
        waited / 1000 if isinstance(waited, int | float) else None,
        dict(opened) if isinstance(opened, dict) else {},
    )


def moved_between(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes by path that the origin sent between two counts."""
    sent_bytes = {path: sent - before.get(path, 0) for path, sent in after.items()}
    return {path: sent for path, sent in sent_bytes.items() if sent}


def hidden(loading_s: float, plain_s: float) -> float:
    """Return the part of the loading time that the function does not wait for."""
    return 1 - loading_s / plain_s


def ideal(lead_s: float, transfer_s: float) -> float:
    """Return the part that a perfect prefetcher hides: the part that the link carries before the first read."""
    return min(1.0, lead_s / transfer_s)


class LeadPoint(Struct, frozen=True):
    """The sessions with one lead time, compared with the plain mount for the same users."""

    lead_s: float
    transfer_s: float  # mean
    hidden: float
    ideal: float
    enough: bool  # the lead time is at least the transfer time of every session


def curve(trials: Sequence[SessionTrial], plain_s: Mapping[str, float]) -> list[LeadPoint]:
    """Return a point for each lead time. `plain_s` is the loading time of each user from the plain mount."""
    points = []
    for lead_s in sorted({trial.lead_s for trial in trials}):
        own = [trial for trial in trials if trial.lead_s == lead_s]
        plain = [plain_s[trial.user] for trial in own]
        points.append(
            LeadPoint(
                lead_s,
                fmean(plain),
                hidden(sum(trial.loading_s for trial in own), sum(plain)),
                sum(ideal(lead_s, each) * each for each in plain) / sum(plain),
                lead_s >= max(plain),
            )
        )
    return points


def wasted_share(trials: Sequence[SessionTrial], sizes: Mapping[str, int]) -> float | None:
    """Return the wasted part of all moved bytes, or None if none were moved."""
    moved = sum(trial.moved_bytes for trial in trials)
    return sum(trial.wasted_bytes(sizes) for trial in trials) / moved if moved else None


def quantile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=PERCENT, method="inclusive")[percent - 1] if len(values) > 1 else values[0]
