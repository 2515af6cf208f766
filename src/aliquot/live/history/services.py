"""The parts of the server that answer questions about the past, each in a process of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aliquot.live.history.historian_process import HistorianJobPeer, HistorianProcess
from aliquot.live.history.questions import HistoryQuestions
from aliquot.live.history.whatif_runs import WhatIfRuns
from aliquot.live.store.base import Store


class HistoryServices(NamedTuple):
    """Timelines of single calls, the index of all, and what other policies would have done."""

    timelines: HistoryQuestions
    historian: HistorianProcess
    whatif: WhatIfRuns


def make_history(
    store: Store,
    data: Path | None,
    place: Callable[[int], None] = lambda _: None,
    job: HistorianJobPeer | None = None,
) -> HistoryServices:
    """Make all three. Without a data folder there is no journal. `place` puts the historian into its CPU group."""
    historian = HistorianProcess(store, data, place, job)
    return HistoryServices(HistoryQuestions(store, data), historian, WhatIfRuns(store, data))
