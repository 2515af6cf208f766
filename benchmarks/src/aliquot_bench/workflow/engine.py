"""The interpreter alone, in this process: the time of a transition, and what it adds to functions that it calls."""

import time
from typing import Any

from aliquot.workflow.interpreter import Execution, Finish, RunTask, Started, TaskEnded
from aliquot.workflow.language import Machine, read_definition
from aliquot_bench.environments import MeasurementError

STATES = 100
FUNCTIONS, FUNCTION_S = 10, 0.001
NOW = 1_700_000_000.0

Definition = dict[str, Any]


def pass_and_choice(states: int) -> Definition:
    """Return a chain of Pass and Choice states in turn, which compute a little."""
    made: dict[str, Any] = {}
    for number in range(states):
        following = f"S{number + 1}"
        if number % 2:
            rule = {"Variable": "$.n", "NumericLessThan": 0, "Next": "Last"}
            made[f"S{number}"] = {"Type": "Choice", "Choices": [rule], "Default": following}
        else:
            parameters = {"n.$": "States.MathAdd($.n, 1)", "text.$": "$.text"}
            made[f"S{number}"] = {"Type": "Pass", "Parameters": parameters, "Next": following}
    made[f"S{states}"] = {"Type": "Pass", "Next": "Last"}
    return {"StartAt": "S0", "States": {**made, "Last": {"Type": "Succeed"}}}


INPUT = {"n": 1, "text": "some text"}


def compile_machine(definition: Definition) -> Machine:
    machine, complaints = read_definition(definition)
    if machine is None:
        raise MeasurementError(f"the definition is refused: {complaints[0]}")
    return machine


def transition_us(runs: int) -> float:
    """Return the microseconds of one transition: those of many states less those of one, over the difference."""
    short, long = compile_machine(pass_and_choice(1)), compile_machine(pass_and_choice(STATES + 1))
    times = [(_run_s(short), _run_s(long)) for _ in range(runs)]
    return 1e6 * (min(last for _, last in times) - min(first for first, _ in times)) / STATES


def _run_s(machine: Machine) -> float:
    began = time.perf_counter()
    commands = Execution(machine).step([Started("execution", INPUT)], NOW)
    took = time.perf_counter() - began
    if not isinstance(commands[-1], Finish) or commands[-1].error is not None:
        raise MeasurementError(f"the machine did not succeed: {commands[-1]}")
    return took


def tasks(count: int, **fields: Any) -> Definition:  # noqa: ANN401 - fields of a state
    """Return a chain of Task states that call `noop`."""
    names = [f"T{number}" for number in range(count)]
    ways = [{"Next": name} for name in names[1:]] + [{"End": True}]
    states = {
        name: {"Type": "Task", "Resource": "noop", **fields, **way} for name, way in zip(names, ways, strict=True)
    }
    return {"StartAt": names[0], "States": states}


def called_in_a_row_s() -> float:
    """Return the processor seconds of some functions that are called one after the other."""
    began = time.thread_time()
    for _ in range(FUNCTIONS):
        _compute()
    return time.thread_time() - began


def called_by_the_engine_s() -> float:
    """Return the processor seconds of the same functions as tasks of a workflow, in this process."""
    execution = Execution(compile_machine(tasks(FUNCTIONS)))
    began = time.thread_time()
    commands = execution.step([Started("execution", INPUT)], NOW)
    while isinstance(command := commands[0], RunTask):
        commands = execution.step([TaskEnded(command.task, _compute())], NOW)
    return time.thread_time() - began


def _compute() -> int:
    """Compute for a millisecond of processor time, so that a busy machine slows both ways alike."""
    until = time.thread_time() + FUNCTION_S
    turns = 0
    while time.thread_time() < until:
        turns += 1
    return turns
