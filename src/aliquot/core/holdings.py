"""What living sessions hold: idle, warm sandboxes that are kept for the session they served last.

What is held is the last to give way when room is needed, and keep-alive passes over it; what keep-alive wanted
meanwhile is done when it is let go. All that is held together takes at most half of a device's memory, of its pool
slots and of the host's memory: beyond that the least recently used is let go, so that sessions cannot crowd others out.
"""

from aliquot.core.records import Device, Sandbox, Session

PART = 2  # one of so many


class Holdings:
    def __init__(self, slots: int | None) -> None:
        self.sessions: dict[tuple[str, str], Session] = {}  # those that live
        self.held: dict[int, Sandbox] = {}  # least recently used first
        self.host_bytes = 0  # claimed by those
        self.host_limit: int | None = None
        self._slots = slots

    def session(self, tenant: str, name: str) -> Session:
        """It lives from the first time it is named."""
        session = self.sessions.get((tenant, name))
        if session is None:
            session = self.sessions[tenant, name] = Session((tenant, name))
        return session

    def end(self, tenant: str, name: str) -> list[Sandbox]:
        """The session lives no longer; returns what it held, which is to be let go."""
        session = self.sessions.pop((tenant, name), None)
        if session is None:  # it never came to a call
            return []
        session.living = False
        return list(session.held.values())

    def add(self, sandbox: Sandbox, session: Session) -> None:
        sandbox.session = session
        sandbox.flow.held += 1
        self.host_bytes += sandbox.host_bytes
        self.held[sandbox.id] = session.held[sandbox.id] = sandbox
        for device in sandbox.devices:
            device.held_bytes += sandbox.bytes
            device.held[sandbox.id] = sandbox

    def remove(self, sandbox: Sandbox, session: Session) -> None:
        sandbox.session = None
        sandbox.flow.held -= 1
        self.host_bytes -= sandbox.host_bytes
        del self.held[sandbox.id], session.held[sandbox.id]
        for device in sandbox.devices:
            device.held_bytes -= sandbox.bytes
            del device.held[sandbox.id]

    def may_hold(self, sandbox: Sandbox) -> bool:
        """Whether it would be within what may be held if it were the only one."""
        if self.host_limit is not None and sandbox.host_bytes > self.host_limit // PART:
            return False
        bounds = [device.spec.memory_bytes for device in sandbox.devices]
        return all(
            bound is None or (sandbox.bytes <= bound // PART and (self._slots is None or self._slots >= PART))
            for bound in bounds
        )

    def surplus(self, device: Device) -> Sandbox | None:
        """Who is to be let go, because more is held than may be."""
        if self._crowds(device):
            return next(iter(device.held.values()))
        if self.host_limit is not None and self.host_bytes > self.host_limit // PART:
            return next(iter(self.held.values()))
        return None

    def _crowds(self, device: Device) -> bool:
        memory_bytes = device.spec.memory_bytes
        if memory_bytes is None:
            return False
        return device.held_bytes > memory_bytes // PART or (
            self._slots is not None and len(device.held) > self._slots // PART
        )
