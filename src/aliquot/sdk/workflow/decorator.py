"""A workflow of an app, made by `@app.workflow`: `w(x)` runs here, `w.remote(x)` runs the graph on the platform."""

import os
from collections.abc import Callable, Iterator
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, cast

from aliquot.sdk.calls import limit_headers
from aliquot.sdk.client import Client
from aliquot.sdk.deployment import Deployment, deploy_workflow
from aliquot.sdk.dual import dual
from aliquot.sdk.errors import NotFoundError, UsageError
from aliquot.sdk.wire import Operation
from aliquot.sdk.workflow import executions
from aliquot.sdk.workflow.executions import ExecutionHandle, WorkflowName
from aliquot.sdk.workflow.here import runs_here

if TYPE_CHECKING:
    from aliquot.sdk.app import App

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """The result of `@app.workflow`. Its source is read once, when it is decorated."""

    def __init__(
        self,
        app: "App",
        raw: Callable[P, R],
        timeout_s: int | None,
        *,
        durable: bool,
        group: str | None,
        limits: dict[str, float],
    ) -> None:
        """`limits` are the annotations of its deadline and its cost limit."""
        update_wrapper(self, raw)
        self.app = app
        self.raw = raw
        self.name = raw.__name__
        self.action = f"{app.name}.{raw.__name__}"
        self.durable = durable
        self._timeout_s = timeout_s
        self._limits = limits
        self._definition: dict[str, Any] | None = None
        self._deployed = False
        if "__OW_ACTION_NAME" not in os.environ:  # in a sandbox nobody asks for it
            self.definition()
            if group is not None:
                self._join_group(group)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        token = runs_here.set(True)
        try:
            return self.raw(*args, **kwargs)
        finally:
            runs_here.reset(token)

    def __repr__(self) -> str:
        return f"<workflow {self.action} of Aliquot>"

    def client(self) -> Client:
        return self.app.client()

    def definition(self) -> dict[str, Any]:
        """Return the definition in the Amazon States Language. Raises `WorkflowRefusedError` with all mistakes."""
        from aliquot.sdk.workflow.reading import read_workflow

        if self._definition is None:
            self._definition = read_workflow(self.raw, self, self._timeout_s)
        return self._definition

    @dual
    def remote(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[R]:
        """Run the graph on the platform, and return its output. Its error is raised here."""
        given = self._input(args, kwargs)
        return cast("R", (yield from self._on_platform(lambda: executions.call(self._named(), given))))

    def options(
        self,
        *,
        deadline: str | float | None = None,
        cost: float | str | None = None,
        late: Literal["run", "drop"] | None = None,
        prefer: Literal["cost", "latency", "balanced"] | None = None,
    ) -> "LimitedWorkflow[P, R]":
        """Return the workflow with limits for whole executions, as in `w.options(deadline="2s").remote(x)`.

        `Refused` is raised at once if a limit cannot be met. The arguments are those of the options of a function.
        """
        return LimitedWorkflow(self, limit_headers(deadline, cost, late, prefer))

    def limited(
        self,
        run: Callable[[WorkflowName, Any], Operation[Any]],
        limits: dict[str, str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Operation[Any]:
        """Return the operation that runs or starts an execution with limits."""
        given = self._input(args, kwargs)
        return (yield from self._on_platform(lambda: run(self._named()._replace(limits=limits), given)))

    @dual
    def start(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[ExecutionHandle[R]]:
        """Start an execution on the platform. On return it is on disk there, so a crash does not lose it."""
        given = self._input(args, kwargs)
        return self.execution((yield from self._on_platform(lambda: executions.begin(self._named(), given))))

    @dual
    def start_as(self, name: str, /, *args: P.args, **kwargs: P.kwargs) -> Operation[ExecutionHandle[R]]:
        """Start an execution with a name, which no other execution of the workflow may have.

        With the same name and input the one that runs is returned, so that a repeated request starts nothing twice.
        """
        given = self._input(args, kwargs)
        return self.execution((yield from self._on_platform(lambda: executions.begin(self._named(), given, name))))

    def execution(self, execution: str) -> ExecutionHandle[R]:
        """Return the handle of an execution that was started earlier, perhaps by another process."""
        return ExecutionHandle(self._named(), execution, self.client)

    @dual
    def deploy(self) -> Operation[Deployment]:
        """Deploy the workflow and the functions and workflows of the app that it calls."""
        return (yield from self.update())

    def update(self) -> Operation[Deployment]:
        """Return the operation that deploys the workflow, for callers that have a driver."""
        for part in self._parts():
            yield from part.update()
        return (yield from self.put())

    def put(self) -> Operation[Deployment]:
        """Return the operation that deploys the workflow alone."""
        result = yield from deploy_workflow(
            self.app.name, self.action, self.definition(), self._limits, durable=self.durable
        )
        self._deployed = True
        return result

    def _named(self) -> WorkflowName:
        return WorkflowName(self.action, self.app.module, self.app.name)

    def _input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the input of an execution: a value for each parameter."""
        import inspect

        return dict(inspect.signature(self.raw).bind(*args, **kwargs).arguments)

    def _on_platform(self, operation: Callable[[], Operation[Any]]) -> Operation[Any]:
        if self.app.autodeploy and not self._deployed:
            yield from self.update()
        try:
            return (yield from operation())
        except NotFoundError:
            if not self.app.autodeploy:
                raise
        yield from self.update()  # it was deleted; nothing was started, so it can be repeated
        return (yield from operation())

    def _parts(self) -> list[Any]:
        """Return the functions and workflows of the app that the definition calls."""
        parts: list[Any] = [*self.app.functions.values(), *self.app.workflows.values()]
        known = {one.action: one for one in parts}
        names = dict.fromkeys(name.removesuffix(".waitForTaskToken") for name in _resources(self.definition()))
        return [known[name] for name in names if name in known and known[name] is not self]

    def _join_group(self, group: str) -> None:
        """Put the functions of the workflow into a group."""
        for part in self._parts():
            needs = getattr(part, "needs", None)
            if needs is None:
                continue
            if needs.group not in {None, group}:
                raise UsageError(
                    f"group: {part.action} is in the group {needs.group!r}, and the workflow {self.action} puts its "
                    f"functions into {group!r}; leave one of them out"
                )
            part.needs = needs._replace(group=group)


class LimitedWorkflow(Generic[P, R]):
    """A workflow with limits for its executions, made by `w.options(…)`."""

    def __init__(self, workflow: Workflow[P, R], limits: dict[str, str]) -> None:
        self.workflow = workflow
        self._limits = limits

    def client(self) -> Client:
        return self.workflow.client()

    @dual
    def remote(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[R]:
        """Run the graph on the platform within the limits, and return its output."""
        return cast("R", (yield from self.workflow.limited(executions.call, self._limits, args, kwargs)))

    @dual
    def start(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[ExecutionHandle[R]]:
        """Start an execution within the limits."""
        return self.workflow.execution((yield from self.workflow.limited(executions.begin, self._limits, args, kwargs)))


def _resources(machine: dict[str, Any]) -> Iterator[str]:
    """Yield the resources of all Task states, those of inner machines too."""
    for state in machine["States"].values():
        if "Resource" in state:
            yield str(state["Resource"])
        for inner in [*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())]:
            yield from _resources(inner)
