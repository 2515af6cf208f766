"""The executions that have not ended, in memory or not: who owns them, and how many each owner has."""


class OpenExecutions:
    """Counts the open executions of all owners."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # by id
        self._counts: dict[str, int] = {}  # by owner

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, execution: str, owner: str) -> None:
        if execution not in self._owners:
            self._owners[execution] = owner
            self._counts[owner] = self._counts.get(owner, 0) + 1

    def remove(self, execution: str) -> None:
        owner = self._owners.pop(execution, None)
        if owner is not None:
            left = self._counts[owner] - 1
            if left:
                self._counts[owner] = left
            else:
                del self._counts[owner]

    def owner(self, execution: str) -> str | None:
        """Return the owner of an open execution."""
        return self._owners.get(execution)

    def count(self, owner: str) -> int:
        """Return how many executions an owner has."""
        return self._counts.get(owner, 0)

    def items(self) -> list[tuple[str, str]]:
        """Return the ids of all open executions with their owners."""
        return list(self._owners.items())
