"""Check the definition of a workflow when it is deployed."""

from collections.abc import Iterator
from typing import Any

import msgspec

from aliquot.live.expressions.messages import CheckedDefinition
from aliquot.live.expressions.workers import ExpressionWorkers
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.workflows.definitions import MAX_DEFINITION_BYTES
from aliquot.live.store.records import Action
from aliquot.workflow.language import Complaint
from aliquot.workflow.language.resources import CALLBACK

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


async def check_workflow(action: Action, expressions: ExpressionWorkers) -> None:
    """Raise a 400 with all mistakes of a definition."""
    durable = action.annotation("durable")
    if durable is not None and not isinstance(durable, bool):
        raise Refusal(400, f"annotation durable: it takes true or false, not {durable!r}")
    text = action.exec.code.encode()
    checked = await check_text(text, action.namespace, expressions)
    mistakes = [str(complaint) for complaint in checked.complaints if not complaint.warning]
    if not mistakes and durable is False:
        names = _callbacks(msgspec.json.decode(text))
        mistakes = [str(Complaint(name, "Resource", CALLBACK_IN_EXPRESS)) for name in names]
    if mistakes:
        more = [f"and {len(mistakes) - MAX_SHOWN} more"] if len(mistakes) > MAX_SHOWN else []
        raise Refusal(400, "The definition of the workflow has mistakes:\n" + "\n".join(mistakes[:MAX_SHOWN] + more))


def _callbacks(machine: dict[str, Any]) -> Iterator[str]:
    """Yield the states of a checked definition that wait for an answer to their token."""
    for name, state in machine["States"].items():
        if str(state.get("Resource", "")).endswith(CALLBACK):
            yield name
        inner = [*state.get("Branches", ()), *(state[key] for key in ("ItemProcessor", "Iterator") if key in state)]
        for branch in inner:
            yield from _callbacks(branch)
