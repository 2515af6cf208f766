"""The outline of a definition: Tasks that could follow each other in one sandbox, and Tasks that run at once.

The checker warns about both when the functions and the devices are known. It gets them as functions, so this module
knows neither.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Union

from msgspec import Struct

from aliquot.workflow.language.chains import Chains
from aliquot.workflow.language.records import MAP, PARALLEL, TASK, Complaint
from aliquot.workflow.language.resources import read_resource
from aliquot.workflow.query.languages import JSONPATH
from aliquot.workflow.values import Value

MAX_OUTLINED_TASKS = 500  # of a definition; with more the outline is empty
MAX_AT_ONCE = 256  # tasks of an execution that are in flight


class RowState(NamedTuple):
    """A Task state in a row. The states up to this one may be a chain if it `may_end` there."""

    state: str
    may_end: bool = True


class ForkOutline(Struct, frozen=True):
    """A Parallel or Map state: for each branch its Task states, and the forks inside it.

    A Map has one branch, of which `at_once` may run at once. It is 1 if the definition has no number.
    """

    state: str
    branches: tuple[tuple[Union[str, "ForkOutline"], ...], ...]
    at_once: int = 1
    is_map: bool = False


class Outline(Struct, frozen=True):
    """The rows of Task states that could be chains, and the outermost forks. `tasks` has the resource of each Task."""

    tasks: dict[str, str] = {}
    rows: tuple[tuple[RowState, ...], ...] = ()
    forks: tuple[ForkOutline, ...] = ()


def outline_of(definition: Value) -> Outline:
    """Return the outline of a checked definition."""
    tasks: dict[str, str] = {}
    rows: list[tuple[RowState, ...]] = []
    parts = _parts(definition, JSONPATH, tasks, rows)
    if len(tasks) > MAX_OUTLINED_TASKS:
        return Outline()
    inside = dict.fromkeys(one.state for row in rows for one in row[1:])
    rows.sort(key=lambda row: row[0].state in inside)  # whole rows before their ends
    return Outline(tasks, tuple(rows), tuple(part for part in parts if isinstance(part, ForkOutline)))


def _parts(
    machine: Value, language: str, tasks: dict[str, str], rows: list[tuple[RowState, ...]]
) -> tuple[str | ForkOutline, ...]:
    language = machine.get("QueryLanguage", language)
    states = machine["States"]
    chains = Chains(states, language)
    found: list[str | ForkOutline] = []
    for name, raw in states.items():
        if len(tasks) > MAX_OUTLINED_TASKS:
            break
        kind = raw["Type"]
        if kind == TASK:
            resource = read_resource(raw["Resource"])
            if resource is not None and resource.name:
                tasks[name] = resource.name
                found.append(name)
                if links := chains.after(name):
                    rows.append((RowState(name), *(RowState(link.state, link.may_end) for link in links)))
        elif kind in {PARALLEL, MAP}:
            inner = raw["Branches"] if kind == PARALLEL else [raw.get("ItemProcessor", raw.get("Iterator"))]
            branches = tuple(_parts(one, raw.get("QueryLanguage", language), tasks, rows) for one in inner)
            found.append(ForkOutline(name, branches, _at_once(raw), kind == MAP))
    return tuple(found)


def _at_once(raw: Value) -> int:
    """Return how many iterations of a Map may run at once, if the definition has a number."""
    count = raw.get("MaxConcurrency")
    return min(count, MAX_AT_ONCE) if type(count) is int and count > 0 else 1


def neighbour_warnings(
    outline: Outline, share_one: Callable[[Sequence[str]], bool], could_share: Callable[[Sequence[str]], bool]
) -> Iterator[Complaint]:
    """Yield a warning for each row of Tasks whose functions could be one group.

    `share_one` tells whether the functions of these resources are in one group, and `could_share` whether they could.
    """
    covered: set[str] = set()
    for row in outline.rows:
        if row[0].state in covered:
            continue
        together: list[str] = []
        for count in range(2, len(row) + 1):
            resources = _resources(outline, row[:count])
            if not share_one(resources) and not could_share(resources):
                break
            if row[count - 1].may_end:
                together = [one.state for one in row[:count]]
        covered.update(together)
        resources = _resources(outline, row[: len(together)])
        if together and not share_one(resources):
            yield _neighbours(together, resources)


def _resources(outline: Outline, row: Sequence[RowState]) -> list[str]:
    return list(dict.fromkeys(outline.tasks[one.state] for one in row))


def _neighbours(states: Sequence[str], resources: Sequence[str]) -> Complaint:
    following = ", ".join(f"'{state}'" for state in states[1:])
    reason = (
        f"with {following} after it, it would fit into one group ({', '.join(resources)}), which runs them as one "
        "dispatch without copies of the values between; set group for these functions"
    )
    return Complaint(states[0], "Resource", reason, warning=True)


def turn_warnings(
    outline: Outline, sizes: Mapping[str, float], count_at_once: Callable[[Sequence[str]], int]
) -> Iterator[Complaint]:
    """Yield a warning for each fork whose tasks cannot run at once.

    `sizes` has the size of the slice of each state that needs one. `count_at_once` tells how many of the tasks of these
    states run at once on the devices.
    """
    for fork in outline.forks:
        _, warnings = _needed(fork, sizes, count_at_once)
        yield from warnings


def _needed(
    fork: ForkOutline, sizes: Mapping[str, float], count_at_once: Callable[[Sequence[str]], int]
) -> tuple[list[str], list[Complaint]]:
    """Return the states whose tasks a fork runs at once, with its largest slices, and the warnings about it."""
    together: list[str] = []
    warnings: list[Complaint] = []
    for branch in fork.branches:
        most: list[str] = []
        for part in branch:
            needed = [part] if isinstance(part, str) else []
            if isinstance(part, ForkOutline):
                needed, inner = _needed(part, sizes, count_at_once)
                warnings += inner
            needed = [state for state in needed if state in sizes]
            most = max(most, needed, key=lambda states: sum(sizes[state] for state in states))
        together += most
    together = (together * fork.at_once)[:MAX_AT_ONCE]
    if not warnings and together and (count := count_at_once(together)) < len(together):
        warnings.append(_turns(fork, together, count))
    return together, warnings


def _turns(fork: ForkOutline, together: Sequence[str], count: int) -> Complaint:
    tasks = ", ".join(f"'{state}'" for state in dict.fromkeys(together))
    what, field = ("iterations", "MaxConcurrency") if fork.is_map else ("branches", "Branches")
    reason = (
        f"its {what} take turns: {len(together)} tasks with a slice ({tasks}) may run at once, and {count} of them fit "
        "on the devices"
    )
    return Complaint(fork.state, field, reason, warning=True)
