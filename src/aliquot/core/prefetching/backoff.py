"""Delay the next attempt to fetch a file that could not be fetched. Each failure doubles the delay.

After a few failures in a row all files of the dataset are delayed, because its origin is probably down.
"""

from typing import NamedTuple

from aliquot.core.clock import after
from aliquot.core.prefetching.records import FileKey

FIRST_DELAY_S, MAX_DELAY_S = 10, 600
MAX_DATASET_FAILURES = 3  # in a row, with no success between, before all its files are delayed
MAX_FILES = 1000  # with a failure on record; the oldest is forgotten first


class Failure(NamedTuple):
    """The failures of a file or dataset in a row, and the time until which it is delayed."""

    times: int
    until: float


class Backoff:
    """The failed fetches by file and by dataset."""

    def __init__(self) -> None:
        self._files: dict[FileKey, Failure] = {}
        self._datasets: dict[str, Failure] = {}

    def must_wait(self, key: FileKey, *, now: float) -> bool:
        file, dataset = self._files.get(key), self._datasets.get(key[0])
        return (file is not None and now < file.until) or (
            dataset is not None and dataset.times >= MAX_DATASET_FAILURES and now < dataset.until
        )

    def failed(self, key: FileKey, *, now: float) -> None:
        file, dataset = self._files.pop(key, None), self._datasets.pop(key[0], None)
        self._files[key] = _add_failure(file, 1, now)
        self._datasets[key[0]] = _add_failure(dataset, MAX_DATASET_FAILURES, now)
        if len(self._files) > MAX_FILES:
            del self._files[next(iter(self._files))]

    def succeeded(self, key: FileKey) -> None:
        self._files.pop(key, None)
        self._datasets.pop(key[0], None)

    def forget(self, dataset: str) -> None:
        self._datasets.pop(dataset, None)
        for key in [key for key in self._files if key[0] == dataset]:
            del self._files[key]


def _add_failure(failure: Failure | None, free: int, now: float) -> Failure:
    """Count one more failure. The delay doubles with each one after the first `free`."""
    times = 1 if failure is None else failure.times + 1
    return Failure(times, after(now, min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** max(0, min(times, 32) - free))))
