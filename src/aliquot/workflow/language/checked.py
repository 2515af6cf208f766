"""The machine of a definition that has been checked. Each state is compiled when it is first entered.

To compile a definition of a mebibyte takes a second, which the event loop does not have. To compile a usual state takes
some microseconds. JSONata is not compiled here, unless it is short. A state with many or long queries is not compiled
here either: a worker evaluates it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from aliquot.workflow.language.chains import Chains
from aliquot.workflow.language.kinds import make_state
from aliquot.workflow.language.records import TASK, Machine, Phase, State
from aliquot.workflow.language.sources import Fields, not_here
from aliquot.workflow.query.languages import CHECKED, JSONPATH
from aliquot.workflow.values import Value

MAX_QUERIES = 50  # of a state that is compiled here
MAX_QUERY_CHARACTERS = 3000
QUERY_STARTS = ("$", "{%", "States.")
INNER_MACHINES = ("Branches", "ItemProcessor", "Iterator")  # their states are compiled on their own
_BESIDE = Phase(not_here, slow=True)


def checked_machine(definition: Value, *, whole: bool = False) -> Machine:
    """Return the machine of a definition in which `read_definition` has found no mistake.

    A `whole` one, for workers, also compiles states with many or long queries.
    """
    return _machine(definition, JSONPATH, whole=whole)


def _machine(raw: Value, language: str, *, whole: bool) -> Machine:
    language = raw.get("QueryLanguage", language)
    return Machine(
        start=raw["StartAt"],
        states=_States(raw["States"], language, whole=whole),
        timeout_s=raw.get("TimeoutSeconds"),
        comment=raw.get("Comment", ""),
    )


class _States(Mapping[str, State]):
    """The states of a machine by name, in the order of the definition."""

    def __init__(self, raws: Mapping[str, Value], language: str, *, whole: bool) -> None:
        self._raws = raws
        self._whole = whole
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
        deferred = not self._whole and _is_long(raw)
        state = make_state(Fields(name, language, raw, [], CHECKED, deferred=deferred))
        if deferred:
            state = _evaluated_beside(state)
        if state.kind == TASK:
            return replace(state, chain=self._chains.after(name))
        inner = [*raw.get("Branches", ()), *(raw[key] for key in ("ItemProcessor", "Iterator") if key in raw)]
        machines = tuple(_machine(machine, language, whole=self._whole) for machine in inner)
        return replace(state, branches=machines) if machines else state


def _is_long(raw: Value) -> bool:
    """Return whether the queries of a state take too long to be compiled on the event loop."""
    queries = characters = 0
    parts: list[Value] = [value for name, value in raw.items() if name not in INNER_MACHINES]
    while parts:
        part = parts.pop()
        if type(part) is dict:
            parts.extend(part.values())
        elif type(part) is list:
            parts.extend(part)
        elif type(part) is str and part.startswith(QUERY_STARTS):
            queries += 1
            characters += len(part)
            if queries > MAX_QUERIES or characters > MAX_QUERY_CHARACTERS:
                return True
    return False


def _evaluated_beside(state: State) -> State:
    """Return a state whose phases are all evaluated by a worker, because one of its queries may be in any of them."""
    catchers = tuple(one._replace(phase=_BESIDE) for one in state.catchers)
    enter = None if state.enter is None else _BESIDE
    leave = None if state.leave is None else _BESIDE
    return replace(state, enter=enter, leave=leave, catchers=catchers)
