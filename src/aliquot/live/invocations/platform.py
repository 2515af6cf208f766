"""The interface between the gateway and the platform.

The gateway gets a `Composer`, which runs compositions and passes calls of single actions to the `Service`. Tests of the
gateway use `aliquot.testing.platform.FakePlatform`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.ahead_of_demand import AheadOfDemand
from aliquot.live.invocations.call import Call, Follower
from aliquot.live.invocations.capacity import Capacity
from aliquot.live.invocations.sessions.live_sessions import LiveSessions
from aliquot.live.invocations.workflows.workflows import Workflows
from aliquot.live.store.records import Action, Activation, Namespace


class Platform(Protocol):
    """The operations that the gateway may request."""

    @property
    def sessions(self) -> LiveSessions:
        """The live sessions. The platform counts their running calls in them."""
        ...

    @property
    def workflows(self) -> Workflows:
        """The executions of workflows."""
        ...

    @property
    def capacity(self) -> Capacity:
        """Answers to questions about several functions and the devices."""
        ...

    @property
    def ahead(self) -> AheadOfDemand:
        """Calls that are known to come, moves, and the capacity that is wanted."""
        ...

    def begin_session(self, namespace: str, session_id: str) -> None:
        """Handle a new session: files that its calls will read may be prefetched."""
        ...

    def end_session(self, namespace: str, session_id: str) -> None:
        """Handle the end of a session: no sandbox is kept for it any more."""
        ...

    def submit(self, call: Call) -> None:
        """Take a call whose caller waits. `call.done(call)` is called once, with `outcome` and `activation` set.

        Raises `OverloadedError`.
        """
        ...

    async def accept(self, call: Call) -> None:
        """Take a call that is acknowledged before it runs. It is durable on return. Raises `OverloadedError`.

        `call.done(call)` is called once at its end, as for a submitted call: the gateway counts calls in flight.
        """
        ...

    async def accept_all(self, calls: Sequence[Call], record: Activation, event: bytes = b"") -> None:
        """Take the calls of one event. All of them and the event's record are durable on return, or none is.

        `event` is its body, which the calls that refer to it have in common.
        """
        ...

    async def detach(self, call: Call) -> None:
        """Make a submitted call durable, because its caller stops waiting and gets its id instead."""
        ...

    def cancel(self, owner: str, activation_id: str) -> bool:
        """Cancel a running or waiting call of this owner (`Namespace.owner`). Returns whether it exists."""
        ...

    def follow(self, owner: str, activation_id: str, follower: Follower) -> bool:
        """Send a call's log lines and its end to the follower. Returns whether the owner has such a call."""
        ...

    def is_open(self, owner: str, activation_id: str) -> bool:
        """Return whether the owner has a call with this id that has not ended."""
        ...

    async def activation(self, owner: str, activation_id: str) -> Activation | None: ...

    def deploy(self, resolved: ResolvedAction) -> None:
        """Deploy a function or a new revision. Calls run it from now on."""
        ...

    def remove(self, tenant: str, function: str) -> None: ...

    def reason_not_deployable(self, action: Action) -> str | None:
        """Return why the action could never run, or None: it may not use a dataset, or no device fits its needs."""
        ...

    def set_weight(self, namespace: Namespace) -> None: ...

    def status(self, *, with_processes: bool = True) -> dict[str, Any]:
        """Return devices, flows with virtual time, sandboxes and counts as plain JSON values, for `aliquot top`.

        Without the processes of sandboxes it reads no file, and takes a tenth of the time.
        """
        ...
