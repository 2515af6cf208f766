"""The stages of a definition: the Task states, and which of them wait for which others.

A plan needs all stages before the execution begins. So a definition with a loop, or with a state whose duration or
whose calls are only known later, has none. States that only follow an error are left out: a plan is for executions
without errors.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aliquot.workflow.interpreter import frames
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.language.records import CHOICE, MAP, PARALLEL, TASK, WAIT, Complaint, Machine, State

MAX_STAGES = 100
MAX_STATES = 500  # of a definition, with those inside of branches; to look at them takes a few milliseconds

# Returns how many of the states after a Task run in its sandbox.
CountChained = Callable[[State], int]


class Stage(NamedTuple):
    """A Task state, with those that follow in its sandbox, and the stages that must have ended before it."""

    name: str
    resource: str
    after: tuple[str, ...] = ()


class UnplannableError(Exception):
    """The stages of a definition are not known before it runs."""

    def __init__(self, complaint: Complaint) -> None:
        super().__init__(str(complaint))
        self.complaint = complaint


def stages_of(machine: Machine, count_chained: CountChained = lambda _: 0) -> tuple[Stage, ...]:
    """Return the stages of a checked definition, each after those that it waits for. Raises `UnplannableError`."""
    found: list[Stage] = []
    _check_size(machine)
    _add(machine, (), found, {}, count_chained)
    if not found:
        raise UnplannableError(Complaint("", "States", "it has no Task, so there is nothing to plan"))
    return tuple(found)


def _check_size(machine: Machine) -> None:
    waiting, count = [machine], 0
    while waiting:
        inner = waiting.pop()
        count += len(inner.states)
        if count > MAX_STATES:
            raise UnplannableError(Complaint("", "States", f"a plan is made for at most {MAX_STATES} states"))
        waiting += (branch for state in inner.states.values() for branch in state.branches)


def _add(
    machine: Machine,
    before: Sequence[str],
    found: list[Stage],
    chained: dict[str, None],
    count_chained: CountChained,
) -> tuple[str, ...]:
    """Add the stages of a machine that begins after others, and return those that it ends with."""
    waits: dict[str, dict[str, None]] = {name: {} for name in machine.states}
    waits[machine.start] = dict.fromkeys(before)
    last: dict[str, None] = {}
    for name in _in_order(machine):
        state = machine.states[name]
        after = tuple(waits[name])
        if state.kind == TASK and name not in chained:
            _check_task(state)
            links = state.chain[: count_chained(state)]
            chained.update(dict.fromkeys(link.state for link in links))
            found.append(Stage(name, state.resource.name if state.resource else "", after))
            if len(found) > MAX_STAGES:
                raise UnplannableError(Complaint(name, "Type", f"a plan has at most {MAX_STAGES} Tasks"))
            after = (name,)
        elif state.kind == PARALLEL:
            ends = [_add(branch, after, found, chained, count_chained) for branch in state.branches]
            after = tuple(dict.fromkeys(stage for end in ends for stage in end))
        elif state.kind in {MAP, WAIT}:
            raise UnplannableError(_unknown(state))
        for target in _targets(state):
            waits[target].update(dict.fromkeys(after))
        if not _targets(state):
            last.update(dict.fromkeys(after))
    return tuple(last)


def _check_task(state: State) -> None:
    resource = state.resource
    if resource is None or not resource.name:
        reason = "the function is only known when the state is entered"
        raise UnplannableError(Complaint(state.name, "Resource", reason))
    if resource.callback:
        raise UnplannableError(Complaint(state.name, "Resource", "it is not known when the answer will come"))


def _unknown(state: State) -> Complaint:
    if state.kind == WAIT:
        return Complaint(state.name, "Type", "a Wait holds the execution back for a time that no plan shortens")
    return Complaint(state.name, "Type", "the number of its iterations is only known when a Map is entered")


def _in_order(machine: Machine) -> list[str]:
    """Return the states that are reached without errors, each after those that lead to it."""
    reached = _reached(machine, (machine.start,))
    leading = dict.fromkeys(reached, 0)
    for name in reached:
        for target in _targets(machine.states[name]):
            leading[target] += 1
    ready, ordered = deque(name for name in reached if not leading[name]), list[str]()
    while ready:
        ordered.append(name := ready.popleft())
        for target in _targets(machine.states[name]):
            leading[target] -= 1
            if not leading[target]:
                ready.append(target)
    if len(ordered) < len(reached):
        looped = next(name for name in reached if leading[name])
        raise UnplannableError(Complaint(looped, "Next", "it is part of a loop, and the number of rounds is not known"))
    return ordered


def _targets(state: State) -> tuple[str, ...]:
    if state.kind == CHOICE:
        return tuple(dict.fromkeys(state.targets))
    return () if state.next is None else (state.next,)


def _reached(machine: Machine, start: Sequence[str]) -> dict[str, None]:
    reached, waiting = dict.fromkeys(start), deque(start)
    while waiting:
        for target in _targets(machine.states[waiting.popleft()]):
            if target not in reached:
                reached[target] = None
                waiting.append(target)
    return reached


class PossibleStates:
    """Answers which states of a definition an execution may still enter, from where it stands."""

    def __init__(self) -> None:
        self._from: dict[str, frozenset[str]] = {}  # by state: itself, and those after it and inside of them

    def of(self, root: Frame | None) -> set[str]:
        """Return the states in which the frames stand, and all that may follow."""
        found: set[str] = set()
        waiting = [] if root is None else [root]
        while waiting:
            frame = waiting.pop()
            if frame.waits in {frames.DONE, frames.FAILED, frames.ABORTED}:
                continue
            if frame.waits == frames.FORK and frame.fork is not None:
                waiting += frame.fork.frames.values()
                for target in _targets(frame.state):
                    found |= self._after(frame.machine, target)
            else:
                found |= self._after(frame.machine, frame.state.name)
        return found

    def _after(self, machine: Machine, state: str) -> frozenset[str]:
        known = self._from.get(state)
        if known is None:
            reached: set[str] = set()
            machines = [(machine, (state,))]
            while machines:
                inner, start = machines.pop()
                names = _reached(inner, start)
                reached.update(names)
                machines += [(one, (one.start,)) for name in names for one in inner.states[name].branches]
            known = self._from[state] = frozenset(reached)
        return known
