"""Try a kernel graph out when it is deployed, and answer calls that do not fit their graph."""

from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.kernel_trials import KernelTrials
from aliquot.live.store.records import Action, Pair

TRIAL = "trial"  # annotation with what came of a trial that did not end


async def try_out(action: Action, old: Action | None, trials: KernelTrials) -> Action:
    """Return the action after a trial of its graph, which is left out if the code is the same. Raises a 400."""
    if old is not None and old.exec == action.exec:
        return action
    try:
        note = await trials.check(action)
    except InputError as error:
        raise Refusal(400, str(error)) from error
    annotations = [pair for pair in action.annotations if pair.key != TRIAL]
    annotations += [] if note is None else [Pair(TRIAL, note)]
    return replace(action, annotations=tuple(annotations))
