"""The values that a query can read."""

from collections.abc import Callable, Mapping

from aliquot.workflow.chance import Chance
from aliquot.workflow.values import Value


class Missing:
    """The type of MISSING, which stands for no value."""


MISSING = Missing()
MAX_STEPS_ON_THE_LOOP = 1000  # a step takes some microseconds


class TooLongError(Exception):
    """An evaluation has reached its bound of steps and must be made beside the event loop."""


class Work:
    """The steps that the queries of one phase have left together. None stands for no bound."""

    __slots__ = ("_first", "left")

    def __init__(self, left: int | None) -> None:
        self._first = self.left = left

    @property
    def spent(self) -> int:
        """The steps that were taken, if there is a bound."""
        return 0 if self.left is None or self._first is None else self._first - self.left

    def spend(self, steps: int) -> None:
        if self.left is not None:
            self.left -= steps
            if self.left < 0:
                raise TooLongError


class Scope:
    """The values that the queries of one state read.

    `input` is `$` of JSONPath. `states` has the fields of `$states`: input, result and errorOutput. The context object
    is made when it is read.
    """

    __slots__ = ("_context", "_made", "chance", "input", "now", "states", "variables", "work")

    def __init__(
        self,
        input: Value,  # noqa: A002 - the name of the language
        variables: Mapping[str, Value],
        context: Callable[[], dict[str, Value]],
        chance: Chance,
        *,
        now: float = 0.0,
        states: Mapping[str, Value] | None = None,
        work: Work | None = None,
    ) -> None:
        self.input = input
        self.variables = variables
        self.chance = chance
        self.now = now
        self.work = work or Work(MAX_STEPS_ON_THE_LOOP)
        self.states = {"input": input} if states is None else states
        self._context = context
        self._made: dict[str, Value] | None = None

    @property
    def context(self) -> dict[str, Value]:
        if self._made is None:
            self._made = self._context()
        return self._made

    def at(self, value: Value) -> "Scope":
        """Return the same scope with another value for `$`."""
        scope = Scope(
            value,
            self.variables,
            self._context,
            self.chance,
            now=self.now,
            states=self.states,
            work=self.work,
        )
        scope._made = self._made
        return scope

    def add_context(self, fields: dict[str, Value]) -> None:
        """Add fields to the context object."""
        self._made = {**self.context, **fields}

    def record(self) -> dict[str, Value]:
        """Return the value of `$states`, with the context object."""
        return {**self.states, "context": self.context}
