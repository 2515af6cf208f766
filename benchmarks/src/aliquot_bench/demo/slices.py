"""Slices of one device, and a borrow: a tenth works on a device whose owner of nine tenths is away, until it wakes."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

import httpx
from msgspec import Struct
from rich.table import Table

from aliquot.testing.server import LiveServer

CODE = Path(__file__).with_name("loop.py")
PER_SECOND = 10  # windows
SHARES = {"borrower": 0.1, "owner": 0.9}
BORROWER_S, OWNER_AT_S, OWNER_S = 6.0, 2.0, 2.0
NEAR = 2.0  # while its owner works, the borrower has its share within this factor,
LENT = 5.0  # and while it is away at least so many times its share
_EDGE = 2  # windows at both ends of a phase in which somebody just began or ended


class BorrowResult(Struct, frozen=True):
    """Turns of each in every window, from the moment at which the borrower was called."""

    counts: Mapping[str, Mapping[int, int]]
    enforced: bool

    def phases(self) -> dict[str, range]:
        """The windows in which the owner was away, at work, and away again."""
        own, all_ = sorted(self.counts["owner"]), sorted(self.counts["borrower"])
        return {
            "the owner is away": range(all_[0] + _EDGE, own[0] - _EDGE),
            "the owner is at work": range(own[0] + _EDGE, own[-1] - _EDGE),
            "the owner is away again": range(own[-1] + 1 + _EDGE, all_[-1] - _EDGE),
        }

    @property
    def ok(self) -> bool:
        """Whether it is as said: what is idle is lent, and back when its owner works.

        The first phase is what the others are measured by. Where nothing is enforced there is nothing to judge.
        """
        if not self.enforced:
            return True
        share = 100 * SHARES["borrower"]
        _, at_work, again = (self.pace("borrower", windows) for windows in self.phases().values())
        return share / NEAR <= at_work <= share * NEAR and again >= share * LENT

    def pace(self, name: str, windows: Sequence[int]) -> float:
        """In percent of what the borrower makes alone."""
        alone = [self.counts["borrower"].get(window, 0) for window in self.phases()["the owner is away"]]
        done = [self.counts[name].get(window, 0) for window in windows]
        return 100 * fmean(done or [0]) / max(1.0, fmean(alone or [0]))


def run_borrow(server: LiveServer) -> BorrowResult:
    """Takes some eight seconds."""
    for name, share in SHARES.items():
        server.deploy(name, CODE.read_text(encoding="utf-8"), annotations=[{"key": "gpu-share", "value": share}])
    with server.client() as client, ThreadPoolExecutor(1) as threads:
        for name in SHARES:
            _call(client, name, 0)
        began = int(time.monotonic() * PER_SECOND)
        borrower = threads.submit(_call, client, "borrower", BORROWER_S)
        time.sleep(OWNER_AT_S)
        owner = _call(client, "owner", OWNER_S)
        counts = {"borrower": borrower.result(), "owner": owner}
    shifted = {name: {window - began: count for window, count in own.items()} for name, own in counts.items()}
    return BorrowResult(shifted, _is_enforced(server))


def _call(client: httpx.Client, name: str, seconds: float) -> dict[int, int]:
    answer = client.post(f"actions/{name}", params={"blocking": "true", "result": "true"}, json={"seconds": seconds})
    windows: list[list[int]] = answer.raise_for_status().json()["windows"]
    return {window: count for window, count in windows}  # noqa: C416 - pairs are lists in JSON


def _is_enforced(server: LiveServer) -> bool:
    return all(device["enforced"] is not False for device in server.operate("GET", "status")["devices"])


def borrow_table(borrow: BorrowResult) -> Table:
    table = Table(title="Two slices of one device: who gets how much of it, by work done", title_justify="left")
    table.add_column("")
    for name, share in SHARES.items():
        table.add_column(f"{name}, asks for {share:.0%}", justify="right")
    for phase, windows in borrow.phases().items():
        table.add_row(phase, *(f"{borrow.pace(name, windows):.0f} %" for name in SHARES))
    return table


def draw_borrow(borrow: BorrowResult, path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and not needed for the table

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, share in SHARES.items():
        windows = sorted(borrow.counts[name])[1:-1]  # the first and the last are not whole
        paces = [borrow.pace(name, [window]) for window in windows]
        axes.step([window / PER_SECOND for window in windows], paces, where="post", label=f"{name}, asks for {share:g}")
    axes.set_xlabel("seconds")
    axes.set_ylabel("% of the device")
    axes.set_title("What is idle is lent, and is back when its owner wakes")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="center right")
    figure.savefig(path, dpi=120)
