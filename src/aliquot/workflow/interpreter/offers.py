"""Offers of chains: the tasks that may run after another one, in its sandbox. They are made when a shell asks."""

from collections.abc import Mapping

from msgspec import Struct

from aliquot.workflow.interpreter.tokens import TaskPlace
from aliquot.workflow.language.records import ChainLink, ChainPart
from aliquot.workflow.language.resources import read_resource
from aliquot.workflow.values import Value


class ChainArgument(Struct, frozen=True, omit_defaults=True):
    """An argument of a chained task: a value, or the part at a path in the result of an earlier step (from 0)."""

    value: Value = None
    step: int | None = None
    path: tuple[str | int, ...] = ()


class ChainedTask(Struct, frozen=True, omit_defaults=True):
    """A task that may run in the sandbox of the one before it. Without arguments it takes the whole result before it.

    The results between stay in the sandbox. A chain may end here only if nothing else reads them (`may_end`).
    """

    task: str
    resource: str
    state: str
    key: str
    arguments: dict[str, ChainArgument] | None = None
    may_end: bool = True


class ChainOffer(Struct, frozen=True):
    """The states that may follow a task in its sandbox, with the variables as they were when it began.

    Most functions are in no group, so the tasks are not made before a shell asks for them.
    """

    place: TaskPlace
    links: tuple[ChainLink, ...]
    variables: Mapping[str, Value]

    def tasks(self) -> tuple[ChainedTask, ...]:
        """Return the tasks that may follow, with the values of variables in their arguments."""
        made: list[ChainedTask] = []
        for number, link in enumerate(self.links, 1):
            task = self._task(link, number)
            if task is None:  # its arguments fail, which its state tells when it is entered
                break
            made.append(task)
        while made and not made[-1].may_end:
            made.pop()
        return tuple(made)

    def _task(self, link: ChainLink, number: int) -> ChainedTask | None:
        resource = read_resource(link.resource)
        task, key = self.place.chained(number)
        arguments: dict[str, ChainArgument] | None = None
        try:
            if link.arguments is not None:
                arguments = {name: self._argument(part) for name, part in link.arguments.items()}
        except (KeyError, IndexError, TypeError):
            return None
        name = resource.name if resource is not None else ""
        return ChainedTask(task, name, link.state, key, arguments, link.may_end)

    def _argument(self, part: ChainPart) -> ChainArgument:
        if part.step is not None:
            return ChainArgument(step=part.step, path=part.path)
        if not part.variable:
            return ChainArgument(part.value)
        value: Value = self.variables[part.variable]
        for key in part.path:
            value = value[key]
        return ChainArgument(value)
