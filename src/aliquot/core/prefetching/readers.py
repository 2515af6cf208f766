"""Count which datasets the functions of each tenant read."""

from collections.abc import Sequence


class DatasetReaders:
    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}  # number of functions by tenant and dataset

    def has_any(self, tenant: str) -> bool:
        return tenant in self._counts

    def reads(self, tenant: str, dataset: str) -> bool:
        return dataset in self._counts.get(tenant, ())

    def change(self, tenant: str, before: Sequence[str], after: Sequence[str]) -> list[str]:
        """Replace the datasets of one function, and return those that no function of the tenant reads any more."""
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
