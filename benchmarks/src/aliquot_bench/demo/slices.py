"""Two slices of one device: a slice of a tenth borrows idle compute until the owner of nine tenths starts to work."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

from msgspec import Struct
from rich.table import Table

from aliquot.tables import FittedTable
from aliquot.testing.client import NamespaceClient, to_pairs
from aliquot.testing.server import LiveServer

CODE = Path(__file__).with_name("loop.py")
PER_SECOND = 10  # windows, as `loop.py` counts them
SHARES = {"borrower": 0.1, "owner": 0.9}
BORROWER_S, OWNER_AT_S, OWNER_S = 6.0, 2.0, 2.0
MAX_FACTOR = 2.0  # the borrower may miss its share by this factor while the owner works
MIN_BORROWED = 5.0  # times its share that the borrower gets while the owner is idle
_EDGE = 2  # windows at both ends of a phase that are not counted


class BorrowResult(Struct, frozen=True):
    """Loop iterations of each function by window, counted from the call of the borrower."""

    counts: Mapping[str, Mapping[int, int]]
    enforced: bool

    def phases(self) -> dict[str, range]:
        """Return the windows before, during and after the owner's call."""
        own, all_ = sorted(self.counts["owner"]), sorted(self.counts["borrower"])
        return {
            "the owner is idle": range(all_[0] + _EDGE, own[0] - _EDGE),
            "the owner is at work": range(own[0] + _EDGE, own[-1] - _EDGE),
            "the owner is idle again": range(own[-1] + 1 + _EDGE, all_[-1] - _EDGE),
        }

    @property
    def ok(self) -> bool:
        """Return whether idle compute was lent, and returned when its owner worked.

        The first phase is the reference for the others. A machine that cannot enforce slices always passes.
        """
        if not self.enforced:
            return True
        share = 100 * SHARES["borrower"]
        _, at_work, again = (self.pace("borrower", windows) for windows in self.phases().values())
        return share / MAX_FACTOR <= at_work <= share * MAX_FACTOR and again >= share * MIN_BORROWED

    def pace(self, name: str, windows: Sequence[int]) -> float:
        """Return the iterations in these windows, in percent of the borrower's iterations alone."""
        alone = [self.counts["borrower"].get(window, 0) for window in self.phases()["the owner is idle"]]
        done = [self.counts[name].get(window, 0) for window in windows]
        return 100 * fmean(done or [0]) / max(1.0, fmean(alone or [0]))


def run_borrow(server: LiveServer) -> BorrowResult:
    """Call the borrower, and while it runs call the owner. It takes about eight seconds."""
    for name, share in SHARES.items():
        server.deploy(name, CODE.read_text(encoding="utf-8"), annotations=to_pairs({"gpu-share": share}))
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


def _call(client: NamespaceClient, name: str, seconds: float) -> dict[int, int]:
    windows: list[list[int]] = client.result(name, {"seconds": seconds})["windows"]
    return {window: count for window, count in windows}  # noqa: C416 - pairs are lists in JSON


def _is_enforced(server: LiveServer) -> bool:
    return all(device["enforced"] is not False for device in server.operate("GET", "status")["devices"])


def borrow_table(borrow: BorrowResult) -> Table:
    table = FittedTable(title="Two slices of one device: the part that each gets, by work done", title_justify="left")
    table.add_column("")
    for name, share in SHARES.items():
        table.add_column(f"{name}, asks for {share:.0%}", justify="right")
    for phase, windows in borrow.phases().items():
        table.add_row(phase, *(f"{borrow.pace(name, windows):.0f} %" for name in SHARES))
    return table


def draw_borrow(borrow: BorrowResult, path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, share in SHARES.items():
        windows = sorted(borrow.counts[name])[1:-1]  # the first and the last are partial
        paces = [borrow.pace(name, [window]) for window in windows]
        axes.step([window / PER_SECOND for window in windows], paces, where="post", label=f"{name}, asks for {share:g}")
    axes.set_xlabel("seconds")
    axes.set_ylabel("% of the device")
    axes.set_title("Idle compute is lent, and returns when its owner works")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="center right")
    figure.savefig(path, dpi=120)
