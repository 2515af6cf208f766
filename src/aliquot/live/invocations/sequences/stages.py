"""The graph of a sequence: its components one after the other, those of a group that share a sandbox as one."""

from collections.abc import Callable

from aliquot.core.model import GraphSpec, GraphStage
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.errors import LimitsError
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import FullName
from aliquot.workflow.stages import MAX_STAGES

Resolve = Callable[[FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`
NO_PLAN = "A deadline or a cost limit needs a plan, and {}."


def sequence_graph(resolved: ResolvedAction, resolve: Resolve, flow_of: Callable[[str, str], str]) -> GraphSpec:
    """Return the stages of a sequence in order, named by their numbers from 1 on. Raises `LimitsError`."""
    if not resolved.is_sequence:
        raise LimitsError(NO_PLAN.format("the actions that a conductor calls are not known before it runs"))
    runs: list[ResolvedAction] = []
    _add(resolved, resolve, runs, 0)
    stages: list[GraphStage] = []
    for number, run in enumerate(runs, 1):
        after = (stages[-1].name,) if stages else ()
        stages.append(GraphStage(str(number), flow_of(run.tenant, run.function), after))
    return GraphSpec(resolved.function, tuple(stages))


def _add(sequence: ResolvedAction, resolve: Resolve, runs: list[ResolvedAction], depth: int) -> None:
    """Add the first component of each run of a sequence, with the sequences inside it."""
    before: ResolvedAction | None = None  # the component before, if the next one may run in its sandbox
    for name in sequence.action.exec.components:
        try:
            component = resolve(name)
        except (NotFoundError, AccessDeniedError):
            raise LimitsError(NO_PLAN.format(f"its component {name} does not exist or cannot be read")) from None
        if component.is_sequence and depth < MAX_STAGES:
            _add(component, resolve, runs, depth + 1)
            before = None
        elif component.composite or component.workflow:
            raise LimitsError(NO_PLAN.format(f"its component {name} is no single function"))
        elif before is None or (component.tenant, component.group) != (before.tenant, before.group):
            runs.append(component)
            if len(runs) > MAX_STAGES:
                raise LimitsError(NO_PLAN.format(f"a plan has at most {MAX_STAGES} stages"))
            before = component if component.group else None
