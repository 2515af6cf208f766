"""Check how states follow each other: targets, reachable states, ways to an end, and assigned variables."""

from collections.abc import Mapping

from aliquot.workflow.language.records import CHOICE, FAIL, SUCCEED, Complaint, State
from aliquot.workflow.values import Value


class Transition:
    """A transition: the field that has it, the target, and the variables that are assigned on the way."""

    __slots__ = ("assigned", "field", "target")

    def __init__(self, field: str, target: str, assigned: Value) -> None:
        self.field = field
        self.target = target
        names = assigned if isinstance(assigned, dict) else {}
        self.assigned = frozenset(name.removesuffix(".$") for name in names)


def edges_of(state: State, raw: Mapping[str, Value]) -> list[Transition]:
    """Return the transitions of a state."""
    made = []
    if state.next is not None:
        made.append(Transition("Next", state.next, raw.get("Assign")))
    if state.kind == CHOICE:
        rules = raw.get("Choices")
        rows = [row for row in rules if isinstance(row, dict)] if isinstance(rules, list) else []
        for position, (target, row) in enumerate(zip(state.targets, rows, strict=False)):
            made.append(Transition(f"Choices[{position}].Next", target, row.get("Assign")))
        if len(state.targets) > len(rows):
            made.append(Transition("Default", state.targets[-1], raw.get("Assign")))
    caught = raw.get("Catch")
    rows = [row for row in caught if isinstance(row, dict)] if isinstance(caught, list) else []
    for position, (catcher, row) in enumerate(zip(state.catchers, rows, strict=False)):
        made.append(Transition(f"Catch[{position}].Next", catcher.next, row.get("Assign")))
    return made


def ends(state: State, raw: Mapping[str, Value]) -> bool:
    return state.kind in {SUCCEED, FAIL} or raw.get("End") is True


class FlowCheck:
    """The check of one machine. `visible` has the variables that each state may read when it is entered."""

    def __init__(
        self,
        start: str,
        states: Mapping[str, State],
        raws: Mapping[str, Mapping[str, Value]],
        outer: frozenset[str],
        complaints: list[Complaint],
    ) -> None:
        self._complaints = complaints
        self._edges = {name: self._known(name, edges_of(state, raws[name]), states) for name, state in states.items()}
        self._outer = outer
        self.visible: dict[str, frozenset[str]] = {}
        if start not in states:
            return
        reachable = self._reached(start)
        self._report_unreachable(states, reachable)
        self._report_endless(states, raws, reachable)
        self._shadowing(raws, reachable)

    def _known(self, name: str, edges: list[Transition], states: Mapping[str, State]) -> list[Transition]:
        known = []
        for edge in edges:
            if edge.target in states:
                known.append(edge)
            elif edge.target:
                reason = f"there is no state {edge.target!r} in this machine; there are {', '.join(states)}"
                self._complaints.append(Complaint(name, edge.field, reason))
        return known

    def _reached(self, start: str) -> list[str]:
        """Return the reachable states, and note the variables that each may read."""
        self.visible = {start: self._outer}
        work = [start]
        while work:
            name = work.pop()
            for edge in self._edges[name]:
                before = self.visible.get(edge.target)
                after = (before or frozenset()) | self.visible[name] | edge.assigned
                if after != before:
                    self.visible[edge.target] = after
                    work.append(edge.target)
        return list(self.visible)

    def _report_unreachable(self, states: Mapping[str, State], reachable: list[str]) -> None:
        for name in states:
            if name not in self.visible:
                self._complaints.append(Complaint(name, "Next", "no other state leads to this state from StartAt"))
        for name in reachable:
            if states[name].kind == CHOICE and not any(edge.field == "Default" for edge in self._edges[name]):
                reason = "without Default an input that no rule matches fails the execution"
                self._complaints.append(Complaint(name, "Default", reason, warning=True))

    def _report_endless(
        self, states: Mapping[str, State], raws: Mapping[str, Mapping[str, Value]], reachable: list[str]
    ) -> None:
        """Complain about states from which no end can be reached."""
        before: dict[str, list[str]] = {name: [] for name in states}
        for name in reachable:
            for edge in self._edges[name]:
                before[edge.target].append(name)
        work = [name for name in reachable if ends(states[name], raws[name])]
        ending = dict.fromkeys(work)
        while work:
            for name in before[work.pop()]:
                if name not in ending:
                    ending[name] = None
                    work.append(name)
        for name in reachable:
            if name not in ending and self._edges[name]:
                reason = "from here no state with End, and no Succeed or Fail state, can be reached"
                self._complaints.append(Complaint(name, "Next", reason))

    def _shadowing(self, raws: Mapping[str, Mapping[str, Value]], reachable: list[str]) -> None:
        for name in reachable:
            own = Transition("", "", raws[name].get("Assign"))  # a state that ends its machine has no edge
            for edge in (own, *self._edges[name]):
                for variable in sorted(edge.assigned & self._outer):
                    reason = f"the variable {variable!r} belongs to the machine outside, and cannot be assigned here"
                    self._complaints.append(Complaint(name, "Assign", reason))
