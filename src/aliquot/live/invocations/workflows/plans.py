"""Plans of executions of workflows with limits: their graphs, their admission, and the stages that are given back."""

from collections.abc import Callable

from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.core.model import GraphSpec, GraphStage
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.errors import LimitsError
from aliquot.live.invocations.limited_executions import LimitedExecutions
from aliquot.live.invocations.objective import CallLimits, CallObjective
from aliquot.live.invocations.sequences.payloads import name_from_text
from aliquot.live.invocations.workflows.chains import count_links
from aliquot.live.invocations.workflows.definitions import Definition
from aliquot.live.invocations.workflows.executions import end_call
from aliquot.live.invocations.workflows.run import ExecutionRun
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import FullName
from aliquot.workflow.language import Complaint
from aliquot.workflow.language.records import State
from aliquot.workflow.stages import Stage, UnplannableError, stages_of

ResolveFor = Callable[[str, FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`


class WorkflowPlans:
    """Asks the scheduler about executions with limits before they begin."""

    def __init__(
        self, limited: LimitedExecutions, resolve: ResolveFor, stop: Callable[[ExecutionRun, str], None]
    ) -> None:
        """`stop` ends an execution whose promise is broken, with a reason."""
        self._limited = limited
        self._resolve = resolve
        self._stop = stop

    def graph(self, run: ExecutionRun) -> GraphSpec | None:
        """Return the graph of an execution with limits, or None if it has none that count. Raises `LimitsError`."""
        call = run.call
        if call.objective is None:
            return None
        try:
            return self._graph(run.call.namespace.name, call.function, run.definition)
        except UnplannableError as error:
            if not call.objective.declared:
                raise LimitsError(f"A deadline or a cost limit needs a plan. {error}.") from error
            call.objective = None
            return None

    def _graph(self, caller: str, name: str, definition: Definition) -> GraphSpec:
        def count_chained(state: State) -> int:
            first = self._function(caller, state.name, state.resource.name if state.resource else "")
            return count_links(state.chain, first, lambda resource: self._find(caller, resource))

        def flow(stage: Stage) -> str:
            return self._limited.flow_of(caller, self._function(caller, stage.name, stage.resource).function)

        stages = stages_of(definition.machine, count_chained)
        return GraphSpec(name, tuple(GraphStage(stage.name, flow(stage), stage.after) for stage in stages))

    def _function(self, caller: str, state: str, resource: str) -> ResolvedAction:
        """Return the function that a state calls. Raises `UnplannableError` if there is none."""
        found = self._find(caller, resource)
        if found is None:
            reason = f"there is no action {resource}, or it cannot be read"
        elif found.composite or found.workflow:
            reason = f"{resource} is no single function, and only functions can be planned"
        else:
            return found
        raise UnplannableError(Complaint(state, "Resource", reason))

    def _find(self, caller: str, resource: str) -> ResolvedAction | None:
        name = name_from_text(resource, caller)
        try:
            return None if name is None else self._resolve(caller, name)
        except (NotFoundError, AccessDeniedError):
            return None

    async def admit(self, run: ExecutionRun, graph: GraphSpec) -> bool:
        """Let the scheduler decide about an execution that has not begun. Return whether it is taken."""
        objective = run.call.objective
        run.limited = await self._limited.admit(run.call, graph, lambda reason: self._stop(run, reason))
        if run.limited is None or objective is None:
            return False
        limits = objective.limits
        run.info = replace(
            run.info,
            deadline_s=limits.deadline_s,
            cost_limit=limits.cost,
            late=limits.late,
            promised=objective.promised,
        )
        return True

    def begin_if_admitted(self, run: ExecutionRun, graph: GraphSpec, begin: Callable[[ExecutionRun], None]) -> None:
        """Begin an execution when the scheduler has taken it, or tell its caller that it is refused."""

        async def decide() -> None:
            if await self.admit(run, graph):
                begin(run)
            else:
                end_call(run.call)

        self._limited.decide_later(run.id, decide())

    def restored(self, run: ExecutionRun) -> None:
        """Take over the limits of an execution that an earlier server ran. Its promise is broken."""
        info = run.info
        if info.deadline_s is None and info.cost_limit is None:
            return
        objective = run.call.objective = CallObjective(CallLimits(info.deadline_s, info.cost_limit, info.late))
        objective.promised = info.promised
        age_s = max(0, now_ms() - info.started_ms) / 1000
        run.limited = self._limited.restored(run.call, age_s)
        if objective.dropped:
            self._stop(run, "its promise was broken: the server was restarted")
