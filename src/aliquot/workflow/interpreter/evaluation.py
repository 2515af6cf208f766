"""Evaluate the phases of states: at once, or beside the event loop by an Evaluate command."""

from collections.abc import Callable, Mapping

from aliquot.workflow.chance import Chance
from aliquot.workflow.errors import RUNTIME, StateError
from aliquot.workflow.interpreter.commands import Evaluate
from aliquot.workflow.interpreter.events import Evaluated
from aliquot.workflow.language.records import Machine, Phase, State
from aliquot.workflow.query.scope import Scope, Work
from aliquot.workflow.values import Value

ENTER, LEAVE, CATCH = "enter", "leave", "catch"


def phase_of(state: State, name: str) -> Phase:
    """Return a phase by its name: enter, leave, or catch with the number of the rule."""
    if name == LEAVE:
        found = state.leave
    elif name == ENTER:
        found = state.enter
    else:
        found = state.catchers[int(name.removeprefix(CATCH))].phase
    if found is None:
        raise KeyError(f"the state {state.name!r} has no phase {name!r}")
    return found


def run_phase(
    phase: Phase,
    value: Value,
    variables: Mapping[str, Value],
    states: Mapping[str, Value],
    context: Callable[[], dict[str, Value]],
    seed: str | Callable[[], str],
    now: float,
    work: Work,
) -> dict[str, Value]:
    """Run a phase. Raises StateError, or TooLongError if it needs more steps than the work has left."""
    scope = Scope(value, variables, context, Chance(seed), now=now, states=states, work=work)
    try:
        return phase.run(scope)
    except RecursionError as error:
        raise StateError(RUNTIME, "The values of the state are nested too deep") from error


def evaluate(machine: Machine, command: Evaluate) -> Evaluated:
    """Perform an Evaluate command."""
    phase = phase_of(machine.find(command.state), command.phase)
    try:
        value = run_phase(
            phase,
            command.input,
            command.variables,
            command.states,
            lambda: command.context,
            command.seed,
            command.now,
            Work(None),
        )
    except StateError as error:
        return Evaluated(command.evaluation, error=error.error, cause=error.cause)
    return Evaluated(command.evaluation, value)
