"""Which datasets the functions of each tenant read; others' files are of no use to it."""

from collections.abc import Sequence


class Readers:
    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}  # of functions, by tenant and dataset

    def any_of(self, tenant: str) -> bool:
        return tenant in self._counts

    def reads(self, tenant: str, dataset: str) -> bool:
        return dataset in self._counts.get(tenant, ())

    def change(self, tenant: str, before: Sequence[str], after: Sequence[str]) -> list[str]:
        """One function reads these instead of those; returns what the tenant reads no longer."""
        counts = self._counts.setdefault(tenant, {})
        for dataset in dict.fromkeys(after):
            counts[dataset] = counts.get(dataset, 0) + 1
        gone = []
        for dataset in dict.fromkeys(before):
            counts[dataset] -= 1
            if not counts[dataset]:
                del counts[dataset]
                gone.append(dataset)
        if not counts:
            del self._counts[tenant]
        return gone
