"""The machine of a definition that has been checked. Each state is compiled when it is first entered.

To compile a definition of a mebibyte takes a second, which the event loop does not have. To compile a state takes some
microseconds. JSONata is not compiled here, unless it is short.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from aliquot.workflow.language.chains import Chains
from aliquot.workflow.language.kinds import make_state
from aliquot.workflow.language.records import TASK, Machine, State
from aliquot.workflow.language.sources import Fields
from aliquot.workflow.query.languages import CHECKED, JSONPATH
from aliquot.workflow.values import Value


def checked_machine(definition: Value) -> Machine:
    """Return the machine of a definition in which `read_definition` has found no mistake."""
    return _machine(definition, JSONPATH)


def _machine(raw: Value, language: str) -> Machine:
    language = raw.get("QueryLanguage", language)
    return Machine(
        start=raw["StartAt"],
        states=_States(raw["States"], language),
        timeout_s=raw.get("TimeoutSeconds"),
        comment=raw.get("Comment", ""),
    )


class _States(Mapping[str, State]):
    """The states of a machine by name, in the order of the definition."""

    def __init__(self, raws: Mapping[str, Value], language: str) -> None:
        self._raws = raws
        self._language = language
        self._made: dict[str, State] = {}
        self._chains = Chains(raws, language)

    def __getitem__(self, name: str) -> State:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._make(name, self._raws[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._raws)

    def __len__(self) -> int:
        return len(self._raws)

    def __contains__(self, name: object) -> bool:
        return name in self._raws

    def _make(self, name: str, raw: Value) -> State:
        language = raw.get("QueryLanguage", self._language)
        state = make_state(Fields(name, language, raw, [], CHECKED))
        if state.kind == TASK:
            return replace(state, chain=self._chains.after(name))
        inner = [*raw.get("Branches", ()), *(raw[key] for key in ("ItemProcessor", "Iterator") if key in raw)]
        return replace(state, branches=tuple(_machine(machine, language) for machine in inner)) if inner else state
