"""Recovery after a stop or a crash: every call that an earlier server accepted ends exactly once.

A call that had not begun runs now. A call that had begun ends as interrupted, because its effects must not happen
twice, unless its action is annotated `rerun`. A call during whose start the server has ended several times is ended,
because the start may be the cause.
"""

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.resolving import ResolvedAction, full_name
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.sequences.composer import Composer
from aliquot.live.store.base import Store
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import Accepted, Action, Exec, Namespace, name_of_owner

INTERRUPTED = (
    "interrupted: the server stopped while the action ran. It is not run again, because its effects could happen "
    "twice. An action that may run twice says so: rerun=True in Python, or the annotation `rerun`"
)
MAX_INTERRUPTED_STARTS = 3
NEVER_STARTED = (
    "the server stopped {} times while a sandbox for this call started, so it is not tried again; "
    "call it again if the action is not the cause"
)
DELETED = "the action was deleted before the call could run"


async def recover_calls(composer: Composer, store: Store, catalogue: Catalogue) -> int:
    """Enqueue or end every unfinished call. Returns their number."""
    unfinished = await store.unfinished()
    for accepted in unfinished:
        resolved = _resolve(catalogue, accepted)
        call = Call(
            accepted.id,
            catalogue.namespace_of(accepted.owner) or Namespace(name_of_owner(accepted.owner), owner=accepted.owner),
            resolved or ResolvedAction.own(_deleted_action(accepted)),
            accepted.payload,
            pickled=accepted.pickled,
            durable=True,
            cause=accepted.cause,
            session=accepted.session,
        )
        call.on_disk, call.event = not accepted.payload, accepted.event
        if resolved is not None and accepted.starts >= MAX_INTERRUPTED_STARTS:
            await composer.end_unstarted(call, NEVER_STARTED.format(accepted.starts))
            continue
        if resolved is not None and (accepted.started <= accepted.rerun):
            await composer.recover(call)
            continue
        await composer.end_unstarted(call, DELETED if resolved is None else INTERRUPTED)
    return len(unfinished)


def _resolve(catalogue: Catalogue, accepted: Accepted) -> ResolvedAction | None:
    namespace = catalogue.namespace_of(accepted.owner)
    if namespace is None:  # a later one of the same name must not run its calls
        return None
    try:
        return catalogue.resolve(namespace.name, full_name(namespace.name, accepted.name))
    except (NotFoundError, AccessDeniedError):
        return None


def _deleted_action(accepted: Accepted) -> Action:
    """Return a stand-in for an action that was deleted, with what its record needs."""
    name = full_name(name_of_owner(accepted.owner), accepted.name)
    return Action(name.namespace, name.name, "0.0.0", Exec("unknown"), revision=f"gone {accepted.id}")
