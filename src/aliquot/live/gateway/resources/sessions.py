"""Endpoints for sessions: create, read, list, change, end."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from aliquot.live.gateway.entities.common import PAGE
from aliquot.live.gateway.http.query import page_of
from aliquot.live.gateway.http.routing import Endpoint, Request, Response, json_response, read_json
from aliquot.live.invocations.sessions.live_sessions import LiveSession
from aliquot.live.invocations.sessions.registry import SessionRegistry

_ALL = "/api/v1/sessions"
_ONE = _ALL + "/{id}"
_ESCAPE_FACTOR = 4  # JSON with escapes is longer than the decoded metadata


class SessionPatch(Struct, forbid_unknown_fields=True):
    """Changes to a session. Absent fields keep their value, and metadata is replaced as a whole."""

    name: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


class SessionPost(SessionPatch, forbid_unknown_fields=True):
    """A new session. Its `user` cannot be changed later."""

    user: str = ""


class SessionItem(Struct, rename="camel"):
    """A session in a list. Times are in milliseconds since the epoch."""

    session_id: str
    namespace: str
    name: str
    created: int
    used: int
    expires: int
    invocations: int
    user: str


class SessionEntity(SessionItem, rename="camel"):
    metadata: dict[str, Any]


class SessionCount(Struct):
    sessions: int


class SessionEndpoints:
    """Handles requests for sessions."""

    def __init__(self, sessions: SessionRegistry) -> None:
        self._sessions = sessions

    def endpoints(self) -> list[Endpoint]:
        one = {200: SessionEntity}
        max_bytes = _ESCAPE_FACTOR * (self._sessions.settings.metadata_bytes + 1024)
        listed = list[SessionItem] | SessionCount
        return [
            Endpoint("POST", _ALL, self.create, "Create a session", {201: SessionEntity},
                     statuses=(408, 413, 415, 429), body=SessionPost, max_bytes=max_bytes),
            Endpoint("GET", _ALL, self.list, "List active sessions", {200: listed}, query=PAGE),
            Endpoint("GET", _ONE, self.get, "Read a session", one, statuses=(404,)),
            Endpoint("PATCH", _ONE, self.update, "Change its name or metadata", one,
                     statuses=(404, 408, 413, 415), body=SessionPatch, max_bytes=max_bytes),
            Endpoint("DELETE", _ONE, self.end, "End a session; its running invocations continue", one, statuses=(404,)),
        ]  # fmt: skip

    async def create(self, request: Request) -> Response:
        post: SessionPost = read_json(request.body or b"{}", SessionPost)
        name = "" if post.name is UNSET else post.name
        metadata = {} if post.metadata is UNSET else post.metadata
        live = await self._sessions.create(request.namespace, name, metadata, post.user, request.owner)
        return json_response(self._entity(live), 201)

    async def get(self, request: Request) -> Response:
        return json_response(self._entity(self._sessions.find(request.namespace, request.names["id"])))

    async def list(self, request: Request) -> Response:
        page = page_of(request.fields, "sessions")
        found = self._sessions.all(request.namespace)
        if page.count:
            return json_response(SessionCount(max(0, len(found) - page.skip)))
        return json_response([self._item(live) for live in found[page.skip : page.skip + page.limit]])

    async def update(self, request: Request) -> Response:
        patch: SessionPatch = read_json(request.body or b"{}", SessionPatch)
        name = None if patch.name is UNSET else patch.name
        metadata = None if patch.metadata is UNSET else patch.metadata
        live = await self._sessions.update(request.namespace, request.names["id"], name=name, metadata=metadata)
        return json_response(self._entity(live))

    async def end(self, request: Request) -> Response:
        return json_response(self._entity(await self._sessions.end(request.namespace, request.names["id"])))

    def _item(self, live: LiveSession) -> SessionItem:
        session, expires = live.session, self._sessions.expires_ms(live)
        return SessionItem(
            session.id,
            session.namespace,
            session.name,
            session.created,
            live.used_ms,
            expires,
            live.invocations,
            session.user,
        )

    def _entity(self, live: LiveSession) -> SessionEntity:
        return SessionEntity(**asdict(self._item(live)), metadata=live.session.metadata)
