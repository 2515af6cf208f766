"""A session: every remote call inside its `with` block names it, so that the platform keeps its sandboxes."""

from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self

from aliquot.sdk import answers
from aliquot.sdk.client import Client
from aliquot.sdk.dual import dual
from aliquot.sdk.errors import NotFoundError, UsageError
from aliquot.sdk.wire import JSON, HttpRequest, Operation, ask, to_json

if TYPE_CHECKING:
    from aliquot.sdk.app import App

SESSIONS = "/api/v1/sessions"
_current: ContextVar["Session | None"] = ContextVar("aliquot_session", default=None)


class Session:
    """A session, made by `app.session()`. It ends with its block, unless it existed before and was given by its id."""

    def __init__(self, app: "App", name: str, metadata: Mapping[str, Any], user: str, session_id: str) -> None:
        self.id = session_id  # empty until it has begun
        self._app = app
        self._name = name
        self._metadata = dict(metadata)
        self._user = user
        self._existed = bool(session_id)
        self._before: list[Token[Session | None]] = []  # one for each open block: the session outside it

    def __repr__(self) -> str:
        return f"<session {self.id or 'that has not begun'}>"

    def client(self) -> Client:
        return self._app.client()

    @dual
    def begin(self) -> Operation[None]:
        """Create the session on the platform. The `with` block does this."""
        if self.id:
            return
        body = to_json({"name": self._name, "metadata": self._metadata, "user": self._user})
        reply = yield from ask(HttpRequest("POST", SESSIONS, headers={"Content-Type": JSON}, body=body))
        self.id = str(answers.check(reply, "session").json()["sessionId"])

    @dual
    def end(self) -> Operation[None]:
        """End the session. The platform keeps no sandboxes for it any more, and running calls continue."""
        reply = yield from ask(HttpRequest("DELETE", f"{SESSIONS}/{self.id}"))
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
        if self._ends_here():
            self.end()

    async def __aenter__(self) -> Self:
        await self.begin.aio()
        self._before.append(_current.set(self))
        return self

    async def __aexit__(self, *_: object) -> None:
        _current.reset(self._before.pop())
        if self._ends_here():
            await self.end.aio()

    def _ends_here(self) -> bool:
        return not self._existed and not self._before


def current(client: Client) -> str:
    """Return the id of the current session if it is of that platform and namespace, otherwise an empty text."""
    session = _current.get()
    return session.id if session is not None and session.client() is client else ""


def in_session() -> bool:
    return _current.get() is not None


def make_session(app: "App", name: object, metadata: object, user: object, session_id: object) -> Session:
    """Check the arguments of `App.session` and make the session. Raises `UsageError`."""
    if not isinstance(name, str):
        raise UsageError(f"name: {name!r} is not a name; it takes a text")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise UsageError(f"metadata: {metadata!r} does not fit; it takes a dictionary of what JSON can hold")
    if not isinstance(user, str):
        raise UsageError(f"user: {user!r} is not a user; it takes a text, such as 'ann'")
    if session_id is not None and (not isinstance(session_id, str) or not session_id.isalnum()):
        raise UsageError(f"id: {session_id!r} is not a session's id")
    if session_id is not None and (name or metadata or user):
        raise UsageError("id: an existing session already has its name, metadata and user")
    return Session(app, name, metadata or {}, user, session_id or "")
