"""Idle, warm sandboxes that are kept for the session they served last.

Kept sandboxes are the last to be evicted, and keep-alive does not apply to them. A keep-alive action that falls due in
the meantime is carried out when the sandbox is no longer kept. All kept sandboxes together take at most half of a
device's memory, of its pool slots and of its node's memory. Above that the least recently used is no longer kept, so
sessions cannot crowd others out.
"""

from aliquot.core.device import Device
from aliquot.core.records import Sandbox, SessionState

KEPT_DIVISOR = 2  # sessions may keep 1/2 of each resource


class SessionSandboxes:
    """The live sessions and the sandboxes kept for them, within their limits."""

    def __init__(self, slots: int | None) -> None:
        self.sessions: dict[tuple[str, str], SessionState] = {}  # those that are alive
        self._slots = slots

    def session(self, tenant: str, name: str) -> SessionState:
        """Return the session, and create it when it is named for the first time."""
        session = self.sessions.get((tenant, name))
        if session is None:
            session = self.sessions[tenant, name] = SessionState((tenant, name))
        return session

    def end(self, tenant: str, name: str) -> list[Sandbox]:
        """End the session, and return the sandboxes that were kept for it."""
        session = self.sessions.pop((tenant, name), None)
        if session is None:  # no call has named it
            return []
        session.alive = False
        return list(session.kept.values())

    def add(self, sandbox: Sandbox, session: SessionState) -> None:
        """Keep the sandbox for the session."""
        sandbox.session = session
        sandbox.flow.kept += 1
        host = sandbox.host
        host.kept_bytes += sandbox.host_bytes
        host.kept[sandbox.id] = session.kept[sandbox.id] = sandbox
        for device in sandbox.devices:
            device.kept_bytes += sandbox.bytes
            device.kept[sandbox.id] = sandbox

    def remove(self, sandbox: Sandbox, session: SessionState) -> None:
        """Stop keeping the sandbox for the session."""
        sandbox.session = None
        sandbox.flow.kept -= 1
        host = sandbox.host
        host.kept_bytes -= sandbox.host_bytes
        del host.kept[sandbox.id], session.kept[sandbox.id]
        for device in sandbox.devices:
            device.kept_bytes -= sandbox.bytes
            del device.kept[sandbox.id]

    def may_keep(self, sandbox: Sandbox) -> bool:
        """Return whether the sandbox would be within the limits if no other were kept."""
        limit = sandbox.host.limit
        if limit is not None and sandbox.host_bytes > limit // KEPT_DIVISOR:
            return False
        sizes = [device.spec.memory_bytes for device in sandbox.devices]
        return all(
            size is None
            or (sandbox.bytes <= size // KEPT_DIVISOR and (self._slots is None or self._slots >= KEPT_DIVISOR))
            for size in sizes
        )

    def surplus(self, device: Device) -> Sandbox | None:
        """Return a sandbox that can no longer be kept because a limit of the device or the host is exceeded."""
        if self._exceeds_limit(device):
            return next(iter(device.kept.values()))
        host = device.host
        if host.limit is not None and host.kept_bytes > host.limit // KEPT_DIVISOR:
            return next(iter(host.kept.values()))
        return None

    def _exceeds_limit(self, device: Device) -> bool:
        memory_bytes = device.spec.memory_bytes
        if memory_bytes is None:
            return False
        return device.kept_bytes > memory_bytes // KEPT_DIVISOR or (
            self._slots is not None and len(device.kept) > self._slots // KEPT_DIVISOR
        )
