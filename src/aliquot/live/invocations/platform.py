"""What the gateway may ask of the service. The service implements it; tests of the gateway may too."""

from collections.abc import Sequence
from typing import Any, Protocol

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call, Follower
from aliquot.live.invocations.sessions.live_sessions import LiveSessions
from aliquot.live.store.records import Action, Activation, Namespace


class Platform(Protocol):
    @property
    def sessions(self) -> LiveSessions:
        """Those that live; the platform tells them when a call of theirs begins and ends."""
        ...

    def begin_session(self, namespace: str, session_id: str) -> None:
        """A user is here: what its calls will read may be brought before they come."""
        ...

    def end_session(self, namespace: str, session_id: str) -> None:
        """It does not live any more: nothing is kept near for it."""
        ...

    def submit(self, call: Call) -> None:
        """Take a call whose answer is awaited. `call.done(call)` comes once, with `outcome` and `activation` set.

        Raises `OverloadedError`.
        """
        ...

    async def accept(self, call: Call) -> None:
        """Take a call that is acknowledged before it runs: durable on return. Raises `OverloadedError`.

        `call.done(call)` comes once at its end, as for one that was submitted: the gateway counts what is in flight.
        """
        ...

    async def accept_all(self, calls: Sequence[Call], record: Activation) -> None:
        """The same for calls that one event sets off: all of them and the event's record are durable, or none is."""
        ...

    async def detach(self, call: Call) -> None:
        """The caller of a submitted call will not wait any longer and gets its id instead: durable on return."""
        ...

    def cancel(self, namespace: str, activation_id: str) -> bool:
        """End it, if that namespace has it under way; whether it had."""
        ...

    def follow(self, namespace: str, activation_id: str, follower: Follower) -> bool:
        """Tell it what a call under way has printed and prints, and of its end; whether that namespace has the call."""
        ...

    async def activation(self, namespace: str, activation_id: str) -> Activation | None: ...

    def deploy(self, resolved: ResolvedAction) -> None:
        """A new function of the tenant, or a new revision: from now on calls run this one."""
        ...

    def remove(self, tenant: str, function: str) -> None: ...

    def misfit(self, action: Action) -> str | None:
        """Why no device could ever run the action; None when one can."""
        ...

    def set_weight(self, namespace: Namespace) -> None: ...

    def status(self) -> dict[str, Any]:
        """Devices, flows with their virtual time, sandboxes, counts: what `aliquot top` shows. Plain JSON values."""
        ...
