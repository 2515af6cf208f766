"""Executions of workflows in memory, for `MemoryStore`."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from aliquot.live.store.executions import (
    OPEN_STATUS,
    ExecutionChange,
    ExecutionQuery,
    ExecutionRow,
    ExecutionTimer,
    OpenExecution,
    StoredExecution,
)


@dataclass
class KeptExecution:
    """An execution with its definition and its log."""

    row: ExecutionRow
    definition: bytes
    timer: ExecutionTimer | None = None
    events: list[bytes] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)


class MemoryExecutions:
    """Keeps executions in a dictionary."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptExecution] = {}

    def write(self, change: ExecutionChange) -> None:
        if change.begin is not None:
            self._kept.setdefault(change.id, KeptExecution(change.begin, change.definition))
        one = self._kept[change.id]
        if change.events:
            one.events.append(change.events)
        one.objects |= {name: bytes(body) for name, body in change.objects}
        if change.removes_objects:
            one.objects.clear()
        if change.reopen:
            one.row = replace(one.row, status=OPEN_STATUS, end=None, outcome=b"")
        if change.timer is not None:
            one.timer = change.timer
        if change.end is not None:
            end = change.end
            one.row = replace(one.row, status=end.status, end=end.record.end, outcome=end.outcome)

    def objects(self, owner: str, execution: str) -> dict[str, bytes]:
        """Return the objects of an execution, by id."""
        one = self._kept.get(execution)
        return one.objects if one is not None and one.row.owner == owner else {}

    def open(self) -> list[OpenExecution]:
        found = [one for one in self._kept.values() if one.row.status == OPEN_STATUS]
        return [
            OpenExecution(
                one.row.id,
                one.row.owner,
                one.timer.due if one.timer else None,
                one.timer.busy if one.timer else True,
                len(one.row.body) + sum(map(len, one.events)),
            )
            for one in found
        ]

    def find(self, owner: str, execution_id: str) -> StoredExecution | None:
        one = self._kept.get(execution_id)
        if one is None or one.row.owner != owner:
            return None
        return StoredExecution(one.row, one.definition, list(one.events))

    def named(self, owner: str, workflow: str, name: str) -> ExecutionRow | None:
        wanted = (owner, workflow, name)
        rows = (one.row for one in self._kept.values())
        return next((row for row in rows if (row.owner, row.workflow, row.name) == wanted), None)

    def matching(self, query: ExecutionQuery) -> list[ExecutionRow]:
        """Return the rows that a query matches, latest start first."""
        rows = [
            one.row
            for one in self._kept.values()
            if one.row.owner == query.owner
            and query.workflow in {None, one.row.workflow}
            and query.status in {None, one.row.status}
            and (query.since is None or one.row.start >= query.since)
            and (query.upto is None or one.row.start <= query.upto)
        ]
        latest_first = rows[::-1]
        return sorted(latest_first, key=lambda row: -row.start)

    def remove(self, kept: set[str]) -> None:
        """Remove the ended executions whose records are not among these."""
        for execution in [one for one, found in self._kept.items() if found.row.status != OPEN_STATUS]:
            if execution not in kept:
                del self._kept[execution]
