"""Sessions: create, read, list, change, end."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from aliquot.live.gateway.entities.common import PAGE
from aliquot.live.gateway.http.query import page_of
from aliquot.live.gateway.http.routing import Endpoint, Request, Response, json_response, read_json
from aliquot.live.invocations.sessions.live_sessions import LiveSession
from aliquot.live.invocations.sessions.registry import SessionRegistry

_ALL = "/api/v1/sessions"
_ONE = _ALL + "/{id}"
_SLACK = 4  # escapes make JSON longer than what it stands for


class SessionPatch(Struct, forbid_unknown_fields=True):
    """What is absent stays; metadata is replaced as a whole."""

    name: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


class SessionPost(SessionPatch, forbid_unknown_fields=True):
    """Whose a session is does not change: `user` is said at its beginning or never."""

    user: str = ""


class SessionItem(Struct, rename="camel"):
    """In a list: times are in milliseconds since the epoch."""

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
    def __init__(self, sessions: SessionRegistry) -> None:
        self._sessions = sessions

    def endpoints(self) -> list[Endpoint]:
        one = {200: SessionEntity}
        max_bytes = _SLACK * self._sessions.settings.metadata_bytes + _SLACK * 1024
        listed = list[SessionItem] | SessionCount
        return [
            Endpoint("POST", _ALL, self.create, "Begin a session", {201: SessionEntity},
                     statuses=(408, 413, 415, 429), body=SessionPost, max_bytes=max_bytes),
            Endpoint("GET", _ALL, self.list, "List the sessions that live", {200: listed}, query=PAGE),
            Endpoint("GET", _ONE, self.get, "Read a session", one, statuses=(404,)),
            Endpoint("PATCH", _ONE, self.update, "Change its name or metadata", one,
                     statuses=(404, 408, 413, 415), body=SessionPatch, max_bytes=max_bytes),
            Endpoint("DELETE", _ONE, self.end, "End a session; what runs of it goes on", one, statuses=(404,)),
        ]  # fmt: skip

    async def create(self, request: Request) -> Response:
        post: SessionPost = read_json(request.body or b"{}", SessionPost)
        name = "" if post.name is UNSET else post.name
        metadata = {} if post.metadata is UNSET else post.metadata
        living = await self._sessions.create(request.namespace, name, metadata, post.user)
        return json_response(self._shown(living), 201)

    async def get(self, request: Request) -> Response:
        return json_response(self._shown(self._sessions.find(request.namespace, request.names["id"])))

    async def list(self, request: Request) -> Response:
        page = page_of(request.fields, "sessions")
        found = self._sessions.all(request.namespace)
        if page.count:
            return json_response(SessionCount(max(0, len(found) - page.skip)))
        return json_response([self._item(living) for living in found[page.skip : page.skip + page.limit]])

    async def update(self, request: Request) -> Response:
        patch: SessionPatch = read_json(request.body or b"{}", SessionPatch)
        name = None if patch.name is UNSET else patch.name
        metadata = None if patch.metadata is UNSET else patch.metadata
        living = await self._sessions.update(request.namespace, request.names["id"], name=name, metadata=metadata)
        return json_response(self._shown(living))

    async def end(self, request: Request) -> Response:
        return json_response(self._shown(await self._sessions.end(request.namespace, request.names["id"])))

    def _item(self, living: LiveSession) -> SessionItem:
        session, expires = living.session, self._sessions.expires_ms(living)
        return SessionItem(
            session.id,
            session.namespace,
            session.name,
            session.created,
            living.used_ms,
            expires,
            living.invocations,
            session.user,
        )

    def _shown(self, living: LiveSession) -> SessionEntity:
        session, expires = living.session, self._sessions.expires_ms(living)
        return SessionEntity(
            session.id,
            session.namespace,
            session.name,
            session.created,
            living.used_ms,
            expires,
            living.invocations,
            session.user,
            session.metadata,
        )
