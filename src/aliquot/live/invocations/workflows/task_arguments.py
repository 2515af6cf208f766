"""Arguments of tasks as their sandboxes take them: JSON, and the references to objects that are in it."""

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.sequences.payloads import with_defaults
from aliquot.live.invocations.workflows.chains import Links, StepsArguments, step_arguments
from aliquot.live.invocations.workflows.objects import Path, PlainValue, plain_value
from aliquot.workflow.interpreter import RunTask
from aliquot.workflow.values import ObjectRef


class TaskArguments(PlainValue, frozen=True):
    """The payload of a task, and the arguments of the tasks that follow in its sandbox.

    The path of an object begins with the number of the step, unless the task is a workflow.
    """

    steps: StepsArguments = ()


def takes_objects(resolved: ResolvedAction) -> bool:
    """Return whether an action takes objects that JSON cannot hold."""
    if resolved.workflow:
        return True
    return resolved.action.annotation("sdk") is True and resolved.has_code and not resolved.composite


def arguments_of(command: RunTask, resolved: ResolvedAction, links: Links) -> TaskArguments:
    """Return the arguments of a task and of those that follow it in a chain."""
    arguments = command.arguments
    plain = plain_value(arguments if isinstance(arguments, dict) else {"value": arguments})
    text = plain.text if resolved.is_sequence else with_defaults(resolved.action, plain.text)
    if resolved.workflow or not (plain.found or links):
        return TaskArguments(text, plain.found)
    found: list[tuple[Path, ObjectRef]] = [((0, *path), one) for path, one in plain.found]
    steps = []
    for number, (task, _) in enumerate(links, 1):
        made, inside = step_arguments(task)
        steps.append(made)
        found += [((number, *path), one) for path, one in inside]
    return TaskArguments(text, tuple(found), tuple(steps))
