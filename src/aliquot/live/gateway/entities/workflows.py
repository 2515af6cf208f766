"""Check the definition of a workflow when it is deployed."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.expressions.messages import CheckedDefinition
from aliquot.live.expressions.workers import ExpressionWorkers
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.sequences.payloads import name_from_text
from aliquot.live.invocations.workflows.definitions import MAX_DEFINITION_BYTES
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import Action, FullName
from aliquot.workflow.language import Complaint
from aliquot.workflow.language.resources import CALLBACK

Resolve = Callable[[str, FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`
ReasonNotDeployable = Callable[[Action], str | None]

MAX_SHOWN = 20
CALLBACK_IN_EXPRESS = (
    "an execution that is not durable cannot wait for an answer; leave .waitForTaskToken out, or deploy the workflow "
    "with the annotation durable: true"
)


async def check_text(text: bytes, tenant: str, expressions: ExpressionWorkers) -> CheckedDefinition:
    """Check the text of a definition, beside the event loop."""
    if len(text) > MAX_DEFINITION_BYTES:
        reason = f"it has {len(text)} bytes; a definition has at most {MAX_DEFINITION_BYTES}"
        return CheckedDefinition((Complaint("", "definition", reason),))
    return await expressions.check(tenant, text)


async def check_workflow(
    action: Action, expressions: ExpressionWorkers, resolve: Resolve, reason_not_deployable: ReasonNotDeployable
) -> None:
    """Raise a 400 with all mistakes of a definition, or with the states whose function no device could ever hold."""
    durable = action.annotation("durable")
    if durable is not None and not isinstance(durable, bool):
        raise Refusal(400, f"annotation durable: it takes true or false, not {durable!r}")
    text = action.exec.code.encode()
    checked = await check_text(text, action.namespace, expressions)
    mistakes = [str(complaint) for complaint in checked.complaints if not complaint.warning]
    if not mistakes and durable is False:
        names = _callbacks(msgspec.json.decode(text))
        mistakes = [str(Complaint(name, "Resource", CALLBACK_IN_EXPRESS)) for name in names]
    mistakes = mistakes or list(_misfits(action.namespace, checked, resolve, reason_not_deployable))
    if mistakes:
        more = [f"and {len(mistakes) - MAX_SHOWN} more"] if len(mistakes) > MAX_SHOWN else []
        raise Refusal(400, "The definition of the workflow has mistakes:\n" + "\n".join(mistakes[:MAX_SHOWN] + more))


def _misfits(
    caller: str, checked: CheckedDefinition, resolve: Resolve, reason_not_deployable: ReasonNotDeployable
) -> Iterator[str]:
    """Yield the states whose function fits on no device. Devices may have changed since it was deployed.

    A function that does not exist yet is asked for when it is deployed.
    """
    for resource, states in checked.resources.items():
        name = name_from_text(resource, caller)
        try:
            resolved = resolve(caller, name) if name is not None else None
        except (NotFoundError, AccessDeniedError):
            continue
        why = reason_not_deployable(resolved.action) if resolved is not None and resolved.has_code else None
        if why is not None:
            for state in states:
                yield str(Complaint(state, "Resource", f"the function {resource} cannot run here: {why}"))


def _callbacks(machine: dict[str, Any]) -> Iterator[str]:
    """Yield the states of a checked definition that wait for an answer to their token."""
    for name, state in machine["States"].items():
        if str(state.get("Resource", "")).endswith(CALLBACK):
            yield name
        inner = [*state.get("Branches", ()), *(state[key] for key in ("ItemProcessor", "Iterator") if key in state)]
        for branch in inner:
            yield from _callbacks(branch)
