"""The registry of sessions: creates, changes and ends them durably.

A change is durable before it is visible. The time of the last use is written within a minute, not at every use. After
a crash the idle time counts from the last use that was written.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.core.errors import InputError
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.sessions.live_sessions import LiveSession
from aliquot.live.invocations.sessions.records import SESSIONS, USES, Session, SessionSettings, SessionUse
from aliquot.live.store.base import Document, Store, StoreError
from aliquot.live.store.records import Namespace

MAX_NAME_LENGTH = 256  # of a session's name and of its user
_MIN_CHECK_S, _MAX_CHECK_S = 0.05, 5.0  # interval of checks for idle sessions
_MAX_WRITES_AT_ONCE = 256  # of usage
_MAX_SHOWN = 64  # characters of an unknown id in an error

log = structlog.get_logger("aliquot.sessions")
T = TypeVar("T")


class SessionNotFoundError(Exception):
    """The session never existed, belongs to another namespace, or has ended."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"There is no session '{session_id[:_MAX_SHOWN]}', or it has ended.")


class TooManySessionsError(Exception):
    """The namespace has as many sessions as it may."""


class SessionTooLargeError(Exception):
    """The metadata is larger than it may be."""


class SessionRegistry:
    """Manages the sessions of all namespaces, in memory and in the store."""

    def __init__(self, store: Store, platform: Platform, settings: SessionSettings | None = None) -> None:
        self.settings = settings or SessionSettings()
        self._store = store
        self._platform = platform
        self._live_sessions = platform.sessions
        self._making: dict[str, int] = {}  # by namespace: sessions whose first write is running

    # --- start and stop ---------------------------------------------------------------------------------------------

    async def load(self, namespace: Callable[[str], Namespace | None]) -> None:
        """Read the sessions of an earlier server. Sessions of deleted namespaces are deleted, too."""
        uses = {document.name: document for document in await self._store.scan(USES)}
        now_s, at_ms = time.monotonic(), now_ms()
        found = []
        for document in await self._store.scan(SESSIONS):
            session = msgspec.json.decode(document.body, type=Session)
            use = SessionUse(session.created)
            if (written := uses.pop(session.id, None)) is not None:
                use = msgspec.json.decode(written.body, type=SessionUse)
            owner = namespace(session.namespace)
            if owner is None or not _belongs_to(session, owner):
                await self._delete(session)
            else:
                found.append(LiveSession(session, use, now_s - max(0, at_ms - use.used) / 1000))
        self._live_sessions.add_all(found)
        for document in uses.values():
            await self._store.delete(USES, document.namespace, document.name)

    async def keep(self) -> None:
        """End idle sessions and write usage, until cancelled."""
        idle_s = self.settings.idle_s
        check_s = min(_MAX_CHECK_S, max(_MIN_CHECK_S, idle_s / 20))
        write_s = min(self.settings.write_s, max(check_s, idle_s / 4))
        written_s = time.monotonic()
        while True:
            await asyncio.sleep(check_s)
            try:
                await self.end_idle()
                if time.monotonic() - written_s >= write_s:
                    written_s = time.monotonic()
                    await self.write_uses()
            except StoreError as error:
                log.warning("sessions cannot be written", error=str(error))

    async def close(self) -> None:
        """Write the last usage, if the store can."""
        with suppress(StoreError):
            await self.write_uses()

    async def end_idle(self) -> None:
        """End the sessions that have been idle too long."""
        for live in self._live_sessions.idle_since(time.monotonic() - self.settings.idle_s):
            await self._end(live, if_idle=True)

    async def write_uses(self) -> None:
        """Write the usage of all sessions used since the last write. It is durable on return."""
        touched = self._live_sessions.take_touched()
        try:
            for begin in range(0, len(touched), _MAX_WRITES_AT_ONCE):
                await asyncio.gather(*map(self._write_use, touched[begin : begin + _MAX_WRITES_AT_ONCE]))
        except StoreError:
            for live in touched:
                live.touched = True
            raise

    # --- requests ------------------------------------------------------------------------------

    async def create(
        self, namespace: str, name: str, metadata: Mapping[str, Any], user: str = "", owner: str = ""
    ) -> LiveSession:
        """Create a session. Raises `TooManySessionsError` and `SessionTooLargeError`."""
        self._check(name, metadata, user)
        making = self._making.get(namespace, 0)
        if (count := self._live_sessions.count(namespace) + making) >= self.settings.max_live:
            raise TooManySessionsError(
                f"Too many sessions (count: {count}, allowed: {self.settings.max_live}); "
                f"they end when they are deleted, or idle for {self.settings.idle_s:g} s."
            )
        session = Session(secrets.token_hex(16), namespace, name, dict(metadata), now_ms(), user, owner)
        self._making[namespace] = making + 1
        try:
            return await _shielded(self._make(session))
        finally:
            self._making[namespace] -= 1
            if not self._making[namespace]:
                del self._making[namespace]

    def find(self, namespace: str, session_id: str) -> LiveSession:
        """Return a live session. Raises `SessionNotFoundError`."""
        live = self._live_sessions.find(namespace, session_id)
        if live is None or live.ending or self._is_over(live):
            raise SessionNotFoundError(session_id)
        return live

    def all(self, namespace: str) -> list[LiveSession]:
        """Return the namespace's sessions, newest first."""
        return [live for live in reversed(self._live_sessions.all(namespace)) if not self._is_over(live)]

    async def update(
        self, namespace: str, session_id: str, *, name: str | None, metadata: Mapping[str, Any] | None
    ) -> LiveSession:
        """Change name or metadata. None keeps a value. Raises `SessionNotFoundError` and `SessionTooLargeError`."""
        return await _shielded(self._update(namespace, session_id, name, metadata))

    async def end(self, namespace: str, session_id: str) -> LiveSession:
        """End a session. Its running invocations continue. Raises `SessionNotFoundError`."""
        live = self.find(namespace, session_id)
        await _shielded(self._end(live))
        return live

    async def end_all(self, namespace: str) -> None:
        """End all sessions of a deleted namespace. A new one of its name must not see them, even if the store fails."""
        ended = self._live_sessions.all(namespace)
        for live in ended:
            live.ending = True
            self._live_sessions.remove(live)
            self._platform.end_session(namespace, live.session.id)
        try:
            for live in ended:
                await self._delete(live.session)
        except StoreError as error:  # the next server deletes them, because their namespace no longer exists
            log.warning("sessions cannot be deleted", error=str(error))

    def expires_ms(self, live: LiveSession) -> int:
        """Return when the session expires if it is not used again."""
        used_ms = now_ms() if live.busy else live.used_ms
        return used_ms + round(self.settings.idle_s * 1000)

    # --- internals -------------------------------------------------------------------------------------------

    def _check(self, name: str | None, metadata: Mapping[str, Any] | None, user: str = "") -> None:
        for field, text in (("name", name or ""), ("user", user)):
            if len(text) > MAX_NAME_LENGTH:
                raise InputError(f"{field}: it takes at most {MAX_NAME_LENGTH} characters, not {len(text)}")
        size = len(msgspec.json.encode(metadata)) if metadata is not None else 0
        if size > self.settings.metadata_bytes:
            raise SessionTooLargeError(
                f"Session metadata larger than allowed: {size} > {self.settings.metadata_bytes} bytes."
            )

    async def _make(self, session: Session) -> LiveSession:
        await self._put(session)
        live = LiveSession(session, SessionUse(session.created), time.monotonic())
        self._live_sessions.add(live)
        self._platform.begin_session(session.namespace, session.id)
        return live

    async def _update(
        self, namespace: str, session_id: str, name: str | None, metadata: Mapping[str, Any] | None
    ) -> LiveSession:
        self._check(name, metadata)
        live = self.find(namespace, session_id)
        async with live.writing:
            session = self.find(namespace, session_id).session  # the session may have ended meanwhile
            session = session if name is None else replace(session, name=name)
            session = session if metadata is None else replace(session, metadata=dict(metadata))
            await self._put(session)
            live.session = session
        return live

    async def _end(self, live: LiveSession, *, if_idle: bool = False) -> None:
        session = live.session
        async with live.writing:
            ended = self._live_sessions.find(session.namespace, session.id) is not live
            if ended or (if_idle and not self._is_over(live)):
                return
            live.ending = True
            try:
                await self._delete(session)
            except StoreError:
                live.ending = False
                raise
            self._live_sessions.remove(live)
            self._platform.end_session(session.namespace, session.id)

    async def _put(self, session: Session) -> None:
        await self._store.put(SESSIONS, Document(session.namespace, session.id, msgspec.json.encode(session)))

    async def _write_use(self, live: LiveSession) -> None:
        if not live.ending:
            session = live.session
            document = Document(session.namespace, session.id, msgspec.json.encode(live.use()))
            await self._store.put(USES, document)

    async def _delete(self, session: Session) -> None:
        await self._store.delete(SESSIONS, session.namespace, session.id)
        await self._store.delete(USES, session.namespace, session.id)

    def _is_over(self, live: LiveSession) -> bool:
        """Return whether the session has been idle too long, even if it has not been ended yet."""
        return not live.busy and time.monotonic() - live.used_s >= self.settings.idle_s


def _belongs_to(session: Session, namespace: Namespace) -> bool:
    """Return false for a session of an earlier namespace of the same name."""
    return session.owner == namespace.owner if session.owner else session.created >= namespace.created


async def _shielded(write: Awaitable[T]) -> T:
    """Complete a write even if its caller is cancelled, so that store and memory agree."""
    return await asyncio.shield(write)
