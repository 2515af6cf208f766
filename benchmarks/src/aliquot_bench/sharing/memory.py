"""Memory: a function that exceeds its limit is ended, and its neighbours are not affected."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from aliquot.sim.plots import PlotPanel
from aliquot_bench.result import Goal, ResultTable, at_least
from aliquot_bench.sharing.part import SharingSizes
from aliquot_bench.sharing.platform import SharingPlatform, host_device
from aliquot_bench.sharing.windows import WindowCounts, read_counts

LIMIT_MB, ALLOWED_MB, EXCESSIVE_MB = 128, 48, 512
NEIGHBOURS = ("neighbour-1", "neighbour-2")
DEVELOPER_ERROR = "action developer error"


class MemoryCheck(Struct, frozen=True):
    """A statement, the observation, and whether the statement holds."""

    what: str
    holds: bool
    observed: str


class MemoryPart:
    """The part `memory`."""

    name = "memory"
    on_device = False  # the memory of sandboxes is limited without slices, too
    steps = 1

    def __init__(self, sizes: SharingSizes) -> None:
        self._seconds = sizes.memory_s
        self._checks: list[MemoryCheck] = []

    def run(self, on_step: Callable[[str], None]) -> str:
        on_step("memory: one that takes too much, between two neighbours")
        with host_device("elastic") as platform:
            platform.deploy("allocator", "allocator", 0.4, LIMIT_MB)
            for name in NEIGHBOURS:
                platform.deploy(name, "matrix", 0.3)
            before = [read_counts(platform.call(name, {"turns": 1})) for name in NEIGHBOURS]
            with ThreadPoolExecutor(1) as threads:
                neighbours = threads.submit(
                    platform.together, [(name, {"seconds": self._seconds}) for name in NEIGHBOURS]
                )
                time.sleep(self._seconds / 2)
                allowed = platform.record("allocator", {"megabytes": ALLOWED_MB})
                excessive = platform.record("allocator", {"megabytes": EXCESSIVE_MB})
                again = platform.record("allocator", {"megabytes": ALLOWED_MB})
                during = [read_counts(result) for result in neighbours.result()]
            self._checks = [
                *_allocator_checks(allowed, excessive, again),
                *self._neighbour_checks(platform, before, during),
            ]
            return platform.unenforced

    def _neighbour_checks(
        self, platform: SharingPlatform, before: list[WindowCounts], during: list[WindowCounts]
    ) -> list[MemoryCheck]:
        after = [read_counts(platform.call(name, {"turns": 1})) for name in NEIGHBOURS]
        lasted = [each.ended - each.began for each in during]
        same = all(len({one.born for one in each}) == 1 for each in zip(before, during, after, strict=True))
        return [
            MemoryCheck(
                "the neighbours worked on to their end",
                all(seconds >= self._seconds for seconds in lasted),
                ", ".join(f"{each.turns} turns" for each in during),
            ),
            MemoryCheck("the neighbours' sandboxes are the same before and after", same, f"{len(after)} neighbours"),
        ]

    def goals(self) -> list[Goal]:
        held = sum(check.holds for check in self._checks)
        return [at_least("memory: an overrun ends that function alone, points that hold", held, len(self._checks))]

    def tables(self) -> list[ResultTable]:
        rows: list[list[str | float | None]] = [
            [check.what, "yes" if check.holds else "no", check.observed] for check in self._checks
        ]
        title = f"Memory: a function with a limit of {LIMIT_MB} MB between two neighbours on one device"
        return [ResultTable(title, ["", "holds", "seen"], rows)]

    def panels(self) -> list[PlotPanel]:
        return []


def _allocator_checks(allowed: dict[str, Any], excessive: dict[str, Any], again: dict[str, Any]) -> list[MemoryCheck]:
    ended = excessive["response"]
    text = str(ended["result"].get("error", ended["result"])) if isinstance(ended["result"], dict) else ""
    return [
        MemoryCheck(f"{ALLOWED_MB} MB, within its limit", *_succeeded(allowed)),
        MemoryCheck(
            f"{EXCESSIVE_MB} MB: ended as a developer's error", ended["status"] == DEVELOPER_ERROR, ended["status"]
        ),
        MemoryCheck("and the error names memory", "memory" in text.lower(), text),
        MemoryCheck("its next call finds a new sandbox", *_succeeded(again)),
    ]


def _succeeded(record: dict[str, Any]) -> tuple[bool, str]:
    return bool(record["response"]["success"]), str(record["response"]["status"])
