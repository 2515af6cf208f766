"""Tasks in a row that run in one sandbox of their group: one dispatch, and results that do not leave it."""

from collections.abc import Callable, Sequence

from aliquot.live.catalogue.needs import reruns_of
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call, ChainCall, NestedCall
from aliquot.live.node.base import StepArgument, StepArguments
from aliquot.live.store.ids import Ids
from aliquot.workflow.interpreter import RunTask
from aliquot.workflow.interpreter.offers import ChainedTask
from aliquot.workflow.language.records import ChainLink
from aliquot.workflow.language.resources import read_resource
from aliquot.workflow.values import ObjectRef, replace_objects

Links = list[tuple[ChainedTask, ResolvedAction]]


def links_of(command: RunTask, first: ResolvedAction, resolve: Callable[[ChainedTask], ResolvedAction | None]) -> Links:
    """Return the tasks that can run in the sandbox of the first: those of its group, up to where a chain may end."""
    found: Links = []
    if command.chain is None or not _can_be_chained(first):
        return found
    for task in command.chain.tasks():
        resolved = resolve(task)
        if resolved is None or not _can_be_chained(resolved) or _place(resolved) != _place(first):
            break
        found.append((task, resolved))
    while found and not found[-1][0].may_end:
        found.pop()
    return found


def count_links(links: Sequence[ChainLink], first: ResolvedAction, find: Callable[[str], ResolvedAction | None]) -> int:
    """Return how many of these states will run in the sandbox of the first function, as far as it is known before."""
    if not _can_be_chained(first):
        return 0
    count = 0
    for number, link in enumerate(links, 1):
        resource = read_resource(link.resource)
        resolved = None if resource is None else find(resource.name)
        if resolved is None or not _can_be_chained(resolved) or _place(resolved) != _place(first):
            break
        count = number if link.may_end else count
    return count


def _place(resolved: ResolvedAction) -> tuple[str, str]:
    return resolved.tenant, resolved.group


def _can_be_chained(resolved: ResolvedAction) -> bool:
    """Return whether a function may run again with the whole chain, however often, and shares its sandbox."""
    return bool(resolved.group) and not resolved.composite and reruns_of(resolved.action) is None


class TaskChain:
    """A chain under way: the call that runs it, and how many of its tasks have ended."""

    def __init__(
        self, first: Call, ids: Ids, *, step_ended: Callable[[Call], None], done: Callable[["TaskChain"], None]
    ) -> None:
        """`first` is the call of the first task. `step_ended` is called with each task, and `done` at the end."""
        self._report = step_ended
        self._done = done
        self.last: Call | None = None  # the last one that has ended
        self.ended = 0
        self.waited_ms = 0  # of all steps, of which only the first can wait
        self.ran_ms = 0.0
        self.call = ChainCall(
            ids(),
            first.namespace,
            first.resolved,
            first.payload,
            session=first.session,
            shared=first.shared,
            done=self._end,
        )
        self.add(first, None)

    def add(self, task: Call, arguments: dict[str, StepArgument] | None) -> None:
        """Add a task as the last step."""
        step = NestedCall(
            self.call,
            task.id,
            task.resolved,
            task.payload,
            transaction=task.transaction,
            cause=task.cause,
            notes=task.notes,
            followers=task.followers,
            done=self._step_ended,
            arguments=arguments,
            trace=task.trace,
        )
        step.task = task.task
        self.call.steps.append(step)

    def _step_ended(self, step: Call) -> None:
        step.done = None
        self.last = step
        self.ended += 1
        self.waited_ms += step.run.wait_ms
        self.ran_ms += step.outcome.run_s * 1000 if step.outcome is not None else 0
        if not step.parked:
            self._report(step)

    def _end(self, chain: Call) -> None:
        chain.done = None
        self._done(self)


StepsArguments = tuple[StepArguments, ...]
References = list[tuple[tuple[str | int, ...], ObjectRef]]


def step_arguments(task: ChainedTask) -> tuple[StepArguments, References]:
    """Return the arguments of a task as its sandbox takes them, and the references that were in them."""
    found: References = []
    if task.arguments is None:
        return None, found
    made = {}
    for name, one in task.arguments.items():

        def note(reference: ObjectRef, path: tuple[str | int, ...], name: str = name) -> None:
            found.append(((name, *path), reference))

        made[name] = StepArgument(replace_objects(one.value, note), one.step, one.path)
    return made, found
