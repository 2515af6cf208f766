"""Cases for workflows: inputs, results of tasks, and what is expected. `aliquot workflow test` runs them offline.

    {"workflow": "flow.json",
     "cases": [{"name": "a retry", "input": {"n": 1},
                "tasks": {"Resize": [{"error": "Busy"}, {"output": {"ok": true}}]},
                "output": {"ok": true}, "path": ["Resize"]}]}

The results of a state are taken attempt by attempt, and the last one again and again. A single result may stand without
a list. `seconds` in a result says how long the task takes. An object that JSON cannot hold is shown, and expected, as
`{"type": "the name of its class"}`.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from aliquot.testing.workflow import After, Function, NeverEndsError, WorkflowShell
from aliquot.workflow.errors import StateError
from aliquot.workflow.graph import END, START, graph_of
from aliquot.workflow.interpreter import RunTask
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.values import replace_objects


class TaskResult(Struct, forbid_unknown_fields=True):
    """The end of one attempt of a task."""

    output: Any = None
    error: str = ""
    cause: str = ""
    seconds: float = 0


class WorkflowCase(Struct, forbid_unknown_fields=True):
    """One case. What is not given is not compared; without output and error any success is expected."""

    name: str
    input: Any = field(default_factory=dict)
    tasks: dict[str, list[TaskResult] | TaskResult] = {}
    output: Any | UnsetType = UNSET
    error: str = ""
    path: list[str] | None = None


class WorkflowCases(Struct, forbid_unknown_fields=True):
    """A file of cases. `workflow` is the path of a definition beside it, or the definition itself."""

    workflow: Any
    cases: list[WorkflowCase]


SHOWN = ("input", "parameters", "output", "assigned", "error", "cause")


class MissingResultError(Exception):
    """A task ran for which a case has no result."""


class CaseShell(WorkflowShell):
    """A shell in which the results of tasks come from a case, by the name of the state."""

    def __init__(self, definition: Any, case: WorkflowCase, functions: Mapping[str, Function]) -> None:  # noqa: ANN401
        super().__init__(definition, functions)
        self._case = case
        self._used: dict[str, int] = {}
        self._watched = ""
        self.data: list[dict[str, Any]] = []

    def watch(self, state: str) -> None:
        """Keep what goes into a state and comes out of it, in `data`."""
        self._watched = state

    def _observe(self, kind: str, frame: Frame, details: dict[str, Any]) -> None:
        super()._observe(kind, frame, details)
        if frame.state.name == self._watched:
            shown = {name: _shown(value) for name, value in details.items() if name in SHOWN and value is not None}
            self.data.append({"event": kind, **shown})

    def function_of(self, command: RunTask) -> Function:
        given = self._case.tasks.get(command.state)
        results = [given] if isinstance(given, TaskResult) else given
        if not results and command.resource in self.functions:
            return self.functions[command.resource]
        if not results:
            raise MissingResultError(f"the state {command.state!r} runs a task, and the case has no result for it")
        number = self._used.get(command.state, 0)
        self._used[command.state] = number + 1
        result = results[min(number, len(results) - 1)]

        def function(arguments: Any, attempt: int) -> Any:  # noqa: ANN401, ARG001 - any JSON value; a given result
            if result.error:
                raise StateError(result.error, result.cause)
            return After(result.seconds, result.output) if result.seconds else result.output

        return function


def _shown(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return a value with the names of classes in the place of references to objects."""
    return replace_objects(value, lambda one, _: {"type": one.kind})


class CaseOutcome(Struct):
    """The outcome of a case: what differs from what was expected, and the transitions that were taken."""

    name: str
    differences: list[str]
    path: list[str]
    taken: list[tuple[str, str]]
    data: list[dict[str, Any]]  # of the state that was watched


def run_case(
    definition: Any,  # noqa: ANN401 - any JSON value
    case: WorkflowCase,
    functions: Mapping[str, Function] | None = None,
    watched: str = "",
) -> CaseOutcome:
    """Run a case in virtual time. Functions by the names of their actions run where the case has no results."""
    shell = CaseShell(definition, case, functions or {})
    shell.watch(watched)
    differences = []
    try:
        shell.run(case.input)
    except (MissingResultError, NeverEndsError) as error:
        differences.append(str(error))
    else:
        result = shell.finished[-1]
        output = _shown(result.output)
        if (result.error or "") != case.error:
            ended = f"{result.status}: {result.error}: {result.cause}" if result.error else result.status
            differences.append(f"expected {case.error or 'no error'}, but the execution ended with {ended}")
        elif case.output is not UNSET and output != case.output:
            differences.append(f"expected the output {case.output!r}, not {output!r}")
        if case.path is not None and shell.path != case.path:
            differences.append(f"expected the path {' → '.join(case.path)}, not {' → '.join(shell.path)}")
    return CaseOutcome(case.name, differences, shell.path, list(shell.taken), shell.data)


def never_taken(definition: Any, outcomes: list[CaseOutcome]) -> list[tuple[str, str]]:  # noqa: ANN401 - any JSON value
    """Return the transitions between states that no case has taken."""
    shell = WorkflowShell(definition)
    taken = {pair for outcome in outcomes for pair in outcome.taken}
    pairs = [(edge.source, "" if edge.target == END else edge.target) for edge in graph_of(shell.machine).edges]
    kinds = {node.name: node.kind for node in graph_of(shell.machine).nodes}
    return [
        (source, target or END)
        for source, target in dict.fromkeys(pairs)
        if source != START and kinds[source] != "Fail" and (source, target) not in taken
    ]
