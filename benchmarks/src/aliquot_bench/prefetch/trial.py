"""One measured session, and what follows from many of them. Pure."""

from collections.abc import Mapping, Sequence
from statistics import fmean, quantiles

from msgspec import Struct

from aliquot_bench.prefetch.workload import ReadSession

POINTS = 100


class SessionTrial(Struct, frozen=True):
    """Seconds are those of the function itself; bytes are counted by the origin."""

    user: str
    lead_s: float  # that was asked for, between the session's creation and the call
    loading_s: float  # from the first open to the last byte of the last file
    first_batch_s: float  # from the call's sending to the last byte of the first batch
    read_bytes: int
    moved: dict[str, int]  # by path, from the session's creation to its end
    files: tuple[str, ...]  # that were read
    repeats: bool = True  # as the user's sessions usually are
    waited_s: float | None = None  # for files, as the activation tells it
    opened: dict[str, int] = {}  # by what the open found, as the activation tells it

    @property
    def moved_bytes(self) -> int:
        return sum(self.moved.values())

    def wasted_bytes(self, sizes: Mapping[str, int]) -> int:
        """What was moved and not read, or moved once more."""
        read = set(self.files)
        return sum(max(0, sent - sizes[path]) if path in read else sent for path, sent in self.moved.items())


def make_trial(
    session: ReadSession, lead_s: float, sent_at: float, result: Mapping[str, list[float]], notes: Mapping[str, object]
) -> SessionTrial:
    """Of what the reader returned; the origin's counts come later, when all has settled."""
    marks, began = result["marks"], result["began"]
    waited, opened = notes.get("dataTime"), notes.get("opened")
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
    gone = {path: sent - before.get(path, 0) for path, sent in after.items()}
    return {path: sent for path, sent in gone.items() if sent}


def hidden(loading_s: float, plain_s: float) -> float:
    """The share of the loading time that the function does not see."""
    return 1 - loading_s / plain_s


def ideal(lead_s: float, transfer_s: float) -> float:
    """What the best of all prefetchers hides: as much as the link carries before the first read."""
    return min(1.0, lead_s / transfer_s)


class LeadPoint(Struct, frozen=True):
    """The sessions with one lead, against the plain mount for the same users."""

    lead_s: float
    transfer_s: float  # a mean
    hidden: float
    ideal: float
    enough: bool  # the lead is at least the transfer time, of every session


def curve(trials: Sequence[SessionTrial], plain_s: Mapping[str, float]) -> list[LeadPoint]:
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
    moved = sum(trial.moved_bytes for trial in trials)
    return sum(trial.wasted_bytes(sizes) for trial in trials) / moved if moved else None


def quantile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=POINTS, method="inclusive")[percent - 1] if len(values) > 1 else values[0]
