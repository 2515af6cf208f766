"""Schedules on disk: one CSV line per dispatch."""

import csv
from typing import IO

from aliquot.config import PolicySettings
from aliquot.sim.recorder import DispatchLine
from aliquot.sim.statistics import rounded

HEADER = ("time_s", "device", "function", "start", "reason", "tenant", "arrived_s", "policy", "seed")


class ScheduleWriter:
    def __init__(self, file: IO[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(HEADER)

    def write(self, settings: PolicySettings, line: DispatchLine) -> None:
        self._writer.writerow(
            [
                rounded(line.time_s),
                line.device,
                line.function,
                line.start,
                line.reason,
                line.tenant,
                rounded(line.arrived_s),
                settings.queueing,
                settings.seed,
            ]
        )
