"""What could not be brought is not asked for again at once: each failure doubles the wait.

After a few failures in a row all files of the dataset wait, for then it is likely the origin that is down.
"""

from typing import NamedTuple

from aliquot.core.clock import after
from aliquot.core.prefetching.records import FileKey

FIRST_S, LONGEST_S = 10, 600
IN_A_ROW = 3  # failures of different files of a dataset, with no success between
MOST = 1000  # that are remembered; the oldest is forgotten first


class Failure(NamedTuple):
    times: int
    until: float


class Backoff:
    def __init__(self) -> None:
        self._files: dict[FileKey, Failure] = {}
        self._datasets: dict[str, Failure] = {}

    def waits(self, key: FileKey, *, now: float) -> bool:
        file, dataset = self._files.get(key), self._datasets.get(key[0])
        return (file is not None and now < file.until) or (
            dataset is not None and dataset.times >= IN_A_ROW and now < dataset.until
        )

    def failed(self, key: FileKey, *, now: float) -> None:
        file, dataset = self._files.pop(key, None), self._datasets.pop(key[0], None)
        self._files[key] = _once_more(file, 1, now)
        self._datasets[key[0]] = _once_more(dataset, IN_A_ROW, now)
        if len(self._files) > MOST:
            del self._files[next(iter(self._files))]

    def came(self, key: FileKey) -> None:
        self._files.pop(key, None)
        self._datasets.pop(key[0], None)

    def forget(self, dataset: str) -> None:
        self._datasets.pop(dataset, None)
        for key in [key for key in self._files if key[0] == dataset]:
            del self._files[key]


def _once_more(failure: Failure | None, free: int, now: float) -> Failure:
    """The wait doubles from the failure on that is the first to count."""
    times = 1 if failure is None else failure.times + 1
    return Failure(times, after(now, min(LONGEST_S, FIRST_S * 2 ** max(0, min(times, 32) - free))))
