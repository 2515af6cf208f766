"""Check the definition of a workflow when it is deployed."""

from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.workflows.definitions import check_definition
from aliquot.live.store.records import Action
from aliquot.workflow.language import Machine

MAX_SHOWN = 20
CALLBACK_IN_EXPRESS = (
    "state '{}', Resource: an execution that is not durable cannot wait for an answer; leave .waitForTaskToken out, or "
    "deploy the workflow with the annotation durable: true"
)


def check_workflow(action: Action) -> None:
    """Raise a 400 with all mistakes of a definition."""
    durable = action.annotation("durable")
    if durable is not None and not isinstance(durable, bool):
        raise Refusal(400, f"annotation durable: it takes true or false, not {durable!r}")
    machine, complaints = check_definition(action.exec.code)
    mistakes = [str(complaint) for complaint in complaints if not complaint.warning]
    if machine is not None and durable is False:
        mistakes = [CALLBACK_IN_EXPRESS.format(name) for name in _callbacks(machine)]
    if mistakes:
        more = [f"and {len(mistakes) - MAX_SHOWN} more"] if len(mistakes) > MAX_SHOWN else []
        raise Refusal(400, "The definition of the workflow has mistakes:\n" + "\n".join(mistakes[:MAX_SHOWN] + more))


def _callbacks(machine: Machine) -> list[str]:
    """Return the states that wait for an answer to their token."""
    found = []
    for state in machine.states.values():
        if state.resource is not None and state.resource.callback:
            found.append(state.name)
        for branch in state.branches:
            found += _callbacks(branch)
    return found
