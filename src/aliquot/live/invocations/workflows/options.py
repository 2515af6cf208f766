"""Options for the start of an execution, and the limits of all executions."""

from msgspec import UNSET, Struct, UnsetType

from aliquot.live.expressions.workers import ExpressionWorkers
from aliquot.live.invocations.workflows.tasks import MAX_TASKS
from aliquot.workflow.values import Value

MAX_OPEN_EXECUTIONS = 10_000  # of a namespace


class StartOptions(Struct, frozen=True):
    """Options for the start of an execution, besides the workflow and the caller."""

    name: str = ""
    value: Value | UnsetType = UNSET  # the input; the call's payload if it is unset
    timeout_s: float | None = None


PLAIN = StartOptions()


class WorkflowSettings(Struct, frozen=True):
    """The limits of executions, and the workers that evaluate their expressions."""

    max_open: int = MAX_OPEN_EXECUTIONS  # executions of a namespace that have not ended
    max_tasks: int = MAX_TASKS  # of all executions, that are calls now; a namespace has half of the rest
    expressions: ExpressionWorkers | None = None  # made if they are not given
