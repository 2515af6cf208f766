"""The book of sessions: made, changed and ended durably; used without a write for every use.

A write is durable before it shows. When a session was last used is written behind, within a minute: after a crash its
idle time counts from the last use that was written.
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

from aliquot.core.errors import InputError
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.sessions.live_sessions import LiveSession
from aliquot.live.invocations.sessions.records import SESSIONS, USES, Session, SessionSettings, SessionUse
from aliquot.live.store.base import Document, Store, StoreError
from aliquot.live.store.clock import now_ms
from aliquot.live.store.records import Namespace

MAX_NAME_LENGTH = 256  # also of a user
_LEAST_LOOK_S, _MOST_LOOK_S = 0.05, 5.0  # how often to look for those that have been idle too long
_AT_ONCE = 256  # writes of uses
_SHOWN = 64  # characters of what is no id

log = structlog.get_logger("aliquot.sessions")
T = TypeVar("T")


class SessionNotFoundError(Exception):
    """It never was, is another's, or has ended: the text names it."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"There is no session '{session_id[:_SHOWN]}', or it has ended.")


class TooManySessionsError(Exception):
    """The namespace has as many as it may."""


class SessionTooLargeError(Exception):
    """The metadata is larger than it may be."""


class SessionRegistry:
    def __init__(self, store: Store, platform: Platform, settings: SessionSettings | None = None) -> None:
        self.settings = settings or SessionSettings()
        self._store = store
        self._platform = platform
        self._living = platform.sessions
        self._making: dict[str, int] = {}  # by namespace: on their way to the disk

    # --- life ---------------------------------------------------------------------------------------------

    async def load(self, namespace: Callable[[str], Namespace | None]) -> None:
        """Read what an earlier server has left; at start. What belonged to a namespace that is gone is forgotten."""
        uses = {document.name: document for document in await self._store.scan(USES)}
        now_s, at_ms = time.monotonic(), now_ms()
        found = []
        for document in await self._store.scan(SESSIONS):
            session = msgspec.json.decode(document.body, type=Session)
            use = SessionUse(session.created)
            if (written := uses.pop(session.id, None)) is not None:
                use = msgspec.json.decode(written.body, type=SessionUse)
            owner = namespace(session.namespace)
            if owner is None or session.created < owner.created:
                await self._delete(session)
            else:
                found.append(LiveSession(session, use, now_s - max(0, at_ms - use.used) / 1000))
        self._living.add_all(found)
        for document in uses.values():
            await self._store.delete(USES, document.namespace, document.name)

    async def keep(self) -> None:
        """End what has been idle too long and write what was used, until cancelled."""
        idle_s = self.settings.idle_s
        look_s = min(_MOST_LOOK_S, max(_LEAST_LOOK_S, idle_s / 20))
        write_s = min(self.settings.write_s, max(look_s, idle_s / 4))
        written_s = time.monotonic()
        while True:
            await asyncio.sleep(look_s)
            try:
                await self.end_idle()
                if time.monotonic() - written_s >= write_s:
                    written_s = time.monotonic()
                    await self.write_uses()
            except StoreError as error:
                log.warning("sessions cannot be written", error=str(error))

    async def close(self) -> None:
        """The last uses are written, as far as the store can."""
        with suppress(StoreError):
            await self.write_uses()

    async def end_idle(self) -> None:
        for living in self._living.idle_since(time.monotonic() - self.settings.idle_s):
            await self._end(living, if_idle=True)

    async def write_uses(self) -> None:
        """Durable on return: when each session was last used."""
        touched = self._living.take_touched()
        try:
            for begin in range(0, len(touched), _AT_ONCE):
                await asyncio.gather(*map(self._write_use, touched[begin : begin + _AT_ONCE]))
        except StoreError:
            for living in touched:
                living.touched = True
            raise

    # --- what people ask for ------------------------------------------------------------------------------

    async def create(self, namespace: str, name: str, metadata: Mapping[str, Any], user: str = "") -> LiveSession:
        """Raises `TooManySessionsError` and `SessionTooLargeError`."""
        self._check(name, metadata, user)
        making = self._making.get(namespace, 0)
        if (count := self._living.count(namespace) + making) >= self.settings.most:
            raise TooManySessionsError(
                f"Too many sessions (count: {count}, allowed: {self.settings.most}); "
                f"they end when they are deleted, or idle for {self.settings.idle_s:g} s."
            )
        session = Session(secrets.token_hex(16), namespace, name, dict(metadata), now_ms(), user)
        self._making[namespace] = making + 1
        try:
            return await _whole(self._make(session))
        finally:
            self._making[namespace] -= 1
            if not self._making[namespace]:
                del self._making[namespace]

    def find(self, namespace: str, session_id: str) -> LiveSession:
        """Raises `SessionNotFoundError`."""
        living = self._living.find(namespace, session_id)
        if living is None or living.ending or self._is_over(living):
            raise SessionNotFoundError(session_id)
        return living

    def all(self, namespace: str) -> list[LiveSession]:
        """The newest first."""
        return [living for living in reversed(self._living.all(namespace)) if not self._is_over(living)]

    async def update(
        self, namespace: str, session_id: str, *, name: str | None, metadata: Mapping[str, Any] | None
    ) -> LiveSession:
        """What is None stays. Raises `SessionNotFoundError` and `SessionTooLargeError`."""
        return await _whole(self._update(namespace, session_id, name, metadata))

    async def end(self, namespace: str, session_id: str) -> LiveSession:
        """What runs of it goes on. Raises `SessionNotFoundError`."""
        living = self.find(namespace, session_id)
        await _whole(self._end(living))
        return living

    async def end_all(self, namespace: str) -> None:
        """The namespace is gone; whoever makes one of its name must not see them, whatever the store says."""
        ended = self._living.all(namespace)
        for living in ended:
            living.ending = True
            self._living.remove(living)
            self._platform.end_session(namespace, living.session.id)
        try:
            for living in ended:
                await self._delete(living.session)
        except StoreError as error:  # the next server finds that their namespace is gone
            log.warning("sessions cannot be deleted", error=str(error))

    def expires_ms(self, living: LiveSession) -> int:
        """If nothing more is asked of it; while something runs, that is from now."""
        used_ms = now_ms() if living.busy else living.used_ms
        return used_ms + round(self.settings.idle_s * 1000)

    # --- inside -------------------------------------------------------------------------------------------

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
        living = LiveSession(session, SessionUse(session.created), time.monotonic())
        self._living.add(living)
        self._platform.begin_session(session.namespace, session.id)
        return living

    async def _update(
        self, namespace: str, session_id: str, name: str | None, metadata: Mapping[str, Any] | None
    ) -> LiveSession:
        self._check(name, metadata)
        living = self.find(namespace, session_id)
        async with living.writing:
            session = self.find(namespace, session_id).session  # it may have ended meanwhile
            session = session if name is None else replace(session, name=name)
            session = session if metadata is None else replace(session, metadata=dict(metadata))
            await self._put(session)
            living.session = session
        return living

    async def _end(self, living: LiveSession, *, if_idle: bool = False) -> None:
        session = living.session
        async with living.writing:
            ended = self._living.find(session.namespace, session.id) is not living
            if ended or (if_idle and not self._is_over(living)):
                return
            living.ending = True
            try:
                await self._delete(session)
            except StoreError:
                living.ending = False
                raise
            self._living.remove(living)
            self._platform.end_session(session.namespace, session.id)

    async def _put(self, session: Session) -> None:
        await self._store.put(SESSIONS, Document(session.namespace, session.id, msgspec.json.encode(session)))

    async def _write_use(self, living: LiveSession) -> None:
        if not living.ending:
            session = living.session
            document = Document(session.namespace, session.id, msgspec.json.encode(living.use()))
            await self._store.put(USES, document)

    async def _delete(self, session: Session) -> None:
        await self._store.delete(SESSIONS, session.namespace, session.id)
        await self._store.delete(USES, session.namespace, session.id)

    def _is_over(self, living: LiveSession) -> bool:
        """Idle too long, though perhaps nobody has looked yet."""
        return not living.busy and time.monotonic() - living.used_s >= self.settings.idle_s


async def _whole(write: Awaitable[T]) -> T:
    """A caller that is cancelled between the store and memory would leave them different."""
    return await asyncio.shield(write)
