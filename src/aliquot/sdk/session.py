"""A session: within its `with` block every remote call names it, so that the platform keeps its sandboxes near."""

from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self

from aliquot.sdk import answers
from aliquot.sdk.client import Client
from aliquot.sdk.dual import dual
from aliquot.sdk.errors import NotFoundError, UsageError
from aliquot.sdk.wire import JSON, Operation, Request, ask, to_json

if TYPE_CHECKING:
    from aliquot.sdk.app import App

SESSIONS = "/api/v1/sessions"
_current: ContextVar["Session | None"] = ContextVar("aliquot_session", default=None)


class Session:
    """What `app.session()` makes. One that was begun here ends with its block; one that was taken up by id goes on."""

    def __init__(self, app: "App", name: str, metadata: Mapping[str, Any], user: str, session_id: str) -> None:
        self.id = session_id  # empty until it is begun
        self._app = app
        self._name = name
        self._metadata = dict(metadata)
        self._user = user
        self._taken_up = bool(session_id)
        self._before: list[Token[Session | None]] = []  # what was current outside of the blocks that are open

    def __repr__(self) -> str:
        return f"<session {self.id or 'that has not begun'}>"

    def client(self) -> Client:
        return self._app.client()

    @dual
    def begin(self) -> Operation[None]:
        """Have the platform make it; the `with` block does so."""
        if self.id:
            return
        body = to_json({"name": self._name, "metadata": self._metadata, "user": self._user})
        reply = yield from ask(Request("POST", SESSIONS, headers={"Content-Type": JSON}, body=body))
        self.id = str(answers.check(reply, "session").json()["sessionId"])

    @dual
    def end(self) -> Operation[None]:
        """The platform keeps nothing for it any more; what runs of it goes on. One that has ended stays ended."""
        reply = yield from ask(Request("DELETE", f"{SESSIONS}/{self.id}"))
        try:
            answers.check(reply, f"session {self.id}")
        except NotFoundError:
            return

    def __enter__(self) -> Self:
        self.begin()
        self._before.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._before.pop())
        if self._over():
            self.end()

    async def __aenter__(self) -> Self:
        await self.begin.aio()
        self._before.append(_current.set(self))
        return self

    async def __aexit__(self, *_: object) -> None:
        _current.reset(self._before.pop())
        if self._over():
            await self.end.aio()

    def _over(self) -> bool:
        return not self._taken_up and not self._before


def current(client: Client) -> str:
    """The id of the session within whose block one is, if it is of that platform and namespace; otherwise empty."""
    session = _current.get()
    return session.id if session is not None and session.client() is client else ""


def in_session() -> bool:
    return _current.get() is not None


def make(app: "App", name: object, metadata: object, user: object, session_id: object) -> Session:
    if not isinstance(name, str):
        raise UsageError(f"name: {name!r} is not a name; it takes a text")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise UsageError(f"metadata: {metadata!r} does not fit; it takes a dictionary of what JSON can hold")
    if not isinstance(user, str):
        raise UsageError(f"user: {user!r} is not a user; it takes a text, such as 'ann'")
    if session_id is not None and (not isinstance(session_id, str) or not session_id.isalnum()):
        raise UsageError(f"id: {session_id!r} is not a session's id")
    if session_id is not None and (name or metadata or user):
        raise UsageError("id: a session that is there has its name, metadata and user already")
    return Session(app, name, metadata or {}, user, session_id or "")
