"""Records of a checked definition. Queries in them are compiled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aliquot.workflow.query.scope import Scope
from aliquot.workflow.values import Value

MAX_STATES = 5000
MAX_NESTED_MACHINES = 20

TASK, PASS, WAIT, CHOICE = "Task", "Pass", "Wait", "Choice"
SUCCEED, FAIL, PARALLEL, MAP = "Succeed", "Fail", "Parallel", "Map"


class Complaint(NamedTuple):
    """A mistake in a definition, or a warning: the state and the field, the reason, and what would be accepted."""

    state: str  # empty for fields of the machine itself
    field: str
    reason: str
    warning: bool = False

    def __str__(self) -> str:
        place = f"state {self.state!r}, {self.field}" if self.state else self.field
        return f"{place}: {self.reason}"


class Phase(NamedTuple):
    """A part of a state that evaluates queries. It returns JSON, so that another process can evaluate it.

    `slow` phases are always evaluated beside the event loop. A phase that only passes a value on is not run: `passes`
    names what it makes, and the input, result or error output that this is.
    """

    run: Callable[[Scope], dict[str, Value]]
    slow: bool = False
    passes: tuple[str, str] | None = None


class Retrier(NamedTuple):
    """A rule of Retry."""

    errors: tuple[str, ...]
    interval_s: float = 1
    max_attempts: int = 3
    backoff_rate: float = 2.0
    max_delay_s: float | None = None
    jitter: bool = False


class Catcher(NamedTuple):
    """A rule of Catch. Its phase makes the output and the variables for the next state."""

    errors: tuple[str, ...]
    next: str
    phase: Phase


class Resource(NamedTuple):
    """The function or workflow that a Task calls. `name` is empty if the arguments have it (lambda:invoke)."""

    name: str
    callback: bool = False
    wrapped: bool = False  # arguments and result are those of AWS's lambda:invoke


class ChainPart(NamedTuple):
    """An argument of a link: a constant, or the value at a path in a variable or in the result of an earlier step."""

    value: Value = None
    variable: str = ""
    step: int | None = None  # the step of the chain whose result the variable holds
    path: tuple[str | int, ...] = ()


class ChainLink(NamedTuple):
    """A Task state that may follow others in their sandbox. Without arguments it takes the whole result before it.

    A chain may end with it if no state outside reads a result from before it.
    """

    state: str
    resource: str
    arguments: dict[str, ChainPart] | None
    may_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state. `next` is None where it ends its machine."""

    name: str
    kind: str
    language: str
    next: str | None = None
    enter: Phase | None = None
    leave: Phase | None = None
    retriers: tuple[Retrier, ...] = ()
    catchers: tuple[Catcher, ...] = ()
    resource: Resource | None = None
    branches: tuple["Machine", ...] = ()  # of Parallel; of Map the processor alone
    targets: tuple[str, ...] = ()  # of Choice: Next of each rule, and Default
    has_default: bool = False  # of Choice: the last target is that of Default
    comment: str = ""
    chain: tuple[ChainLink, ...] = ()  # of Task: the states that may follow in its sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """States with a start: a whole definition, a branch of Parallel, or the processor of Map."""

    start: str
    states: Mapping[str, State]
    timeout_s: float | None = None
    comment: str = ""

    def find(self, name: str) -> State:
        """Return a state of this machine or of a machine inside it."""
        if name in self.states:
            return self.states[name]
        for state in self.states.values():
            for branch in state.branches:
                try:
                    return branch.find(name)
                except KeyError:
                    continue
        raise KeyError(name)
