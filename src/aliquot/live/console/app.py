"""The console's ASGI application: its page, logins, and requests that are passed on to the gateway's own table.

There is no other interface than the gateway's. A session's requests are passed on with a key of its namespace, which
ends with the server, or with the operator's token.
"""

import asyncio
import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

from aliquot.core.units import KIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.console.assets import Assets
from aliquot.live.console.guard import CSRF, READING, SECURITY, RequestGuard, has_token, session_ids
from aliquot.live.console.sessions import MAX_IDLE_MS, ConsoleSession, ConsoleSessions, Credential
from aliquot.live.gateway.app import Gateway
from aliquot.live.gateway.http.asgi import Message, Receive, Scope, Send
from aliquot.live.gateway.http.responses import JSON, Headers
from aliquot.live.invocations.errors import RateLimitError
from aliquot.live.invocations.rate_limits import MinuteCounter, steady_clock
from aliquot.live.store.operator_token import OperatorToken

PREFIX = "/console"
MAX_WRONG_KEYS_PER_MINUTE = 10
_AS = "/as/"  # and a namespace: for whom the operator asks
_MAX_LOGIN_BYTES = 4 * KIB
_LOGIN_TIMEOUT_S = 10.0
_OBSERVE = "/api/v1/observe/"
_PASSED_ON = ("/api/v1/namespaces/", "/api/v1/datasets", _OBSERVE)
_OPERATOR = "/operator/v1/"
_PAGE: Headers = ((b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"))
_FOREVER = (b"cache-control", b"public, max-age=31536000, immutable")
_NOT_STORED = (b"cache-control", b"no-store")
# Headers of the browser that the gateway must not see, and of the gateway that the browser must not see.
_WITHHELD = frozenset([b"authorization", b"cookie", b"host", b"origin"])
_REMOVED = (b"access-control-", b"set-cookie", b"www-authenticate")


class ConsoleApp:
    """Serves the console on its own port."""

    def __init__(
        self,
        gateway: Gateway,
        catalogue: Catalogue,
        token: OperatorToken,
        sessions: ConsoleSessions,
        guard: RequestGuard,
        *,
        may_log_in: bool,
    ) -> None:
        """Put the parts together. Without HTTPS beyond this machine nobody may log in."""
        self._gateway = gateway
        self._catalogue = catalogue
        self._token = token
        self._sessions = sessions
        self._guard = guard
        self._may_log_in = may_log_in
        self._wrong_keys = MinuteCounter(steady_clock())
        self._keys: dict[str, str] = {}  # by namespace: the key that its sessions' requests are passed on with

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        path: str = scope["path"]
        if not self._guard.has_own_name(headers):
            await _answer(send, 403, {"error": "the console has another name; aliquot up prints its address"})
        elif path in {"/", PREFIX}:
            await _send(send, 307, ((b"location", f"{PREFIX}/".encode()),), b"")
        elif path == f"{PREFIX}/" and scope["method"] in READING:
            page = self._assets.page_for(linked=self._guard.is_linked(headers))
            await _send(send, 200, _PAGE, page)
        elif path.startswith(f"{PREFIX}/assets/") and scope["method"] in READING:
            await self._send_asset(send, path.removeprefix(f"{PREFIX}/assets/"))
        elif path == f"{PREFIX}/codes" and scope["method"] == "POST":
            await self._issue_code(headers, send)
        elif not self._guard.is_own_page(scope["method"], headers):
            await _answer(send, 403, {"error": "the request comes from another page"})
        elif path == f"{PREFIX}/session":
            await self._serve_session(scope["method"], headers, receive, send)
        else:
            await self._pass_on(scope, headers, receive, send)

    @cached_property
    def _assets(self) -> Assets:
        return Assets()

    async def _send_asset(self, send: Send, path: str) -> None:
        asset = self._assets.find(path)
        if asset is None:
            await _answer(send, 404, {"error": "there is no such file"})
        else:
            await _send(send, 200, ((b"content-type", asset.media_type), _FOREVER), asset.content)

    # --- logins -----------------------------------------------------------------------------------------

    async def _serve_session(self, method: str, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        if method == "POST":
            await self._log_in(headers, receive, send)
            return
        session = await self._session(headers, method)
        if session is None:
            await _answer(send, 401, {"error": "log in first", "mayLogIn": self._may_log_in})
        elif method in READING:
            await _answer(send, 200, self._described(session))
        elif method == "DELETE" and has_token(headers, session.csrf):
            await self._sessions.end(session)
            await _answer(send, 200, {}, (self._guard.cookie("", 0),))
        else:
            await _answer(send, 403, {"error": "the session's token is missing"})

    async def _log_in(self, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        if not self._may_log_in:
            why = (
                "beyond this machine the console needs HTTPS: give aliquot up a certificate, or --console-url https://…"
            )
            await _answer(send, 403, {"error": why})
            return
        given = _fields(await _body(receive))
        code, key = given.get("code"), given.get("key")
        credential = None
        if isinstance(code, str):
            credential = self._sessions.redeem(code)
        elif isinstance(key, str):
            credential = self._sessions.check_credentials(key)
        if credential is None:
            wrong = "the code has been used or is too old" if isinstance(code, str) else "this key is not known"
            await self._refuse_key(send, wrong)
            return
        before = await self._session(headers, "POST")
        if before is not None:
            await self._sessions.end(before)
        text, session = await self._sessions.begin(credential)
        await _answer(send, 200, self._described(session), (self._guard.cookie(text, MAX_IDLE_MS // 1000),))

    async def _issue_code(self, headers: dict[bytes, bytes], send: Send) -> None:
        """Issue a code for `aliquot console`, which has a key or the operator's token."""
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        credential: Credential | None = None
        if scheme.lower() == b"bearer":
            credential = self._sessions.check_credentials(given.decode("latin-1"))
        if credential is None or not self._may_log_in:
            await self._refuse_key(send, "it takes a key or the operator's token")
        else:
            await _answer(send, 201, {"code": self._sessions.issue_code(credential)})

    async def _refuse_key(self, send: Send, why: str) -> None:
        try:
            self._wrong_keys.count(MAX_WRONG_KEYS_PER_MINUTE)
        except RateLimitError:
            await _answer(send, 429, {"error": "too many wrong keys; wait a minute"})
        else:
            await _answer(send, 401, {"error": why, "mayLogIn": self._may_log_in})

    async def _session(self, headers: dict[bytes, bytes], method: str = "GET") -> ConsoleSession | None:
        """Return the session of a request: the one with its token, or the only one if it has none."""
        found = [session for text in session_ids(headers) if (session := await self._sessions.find(text)) is not None]
        if CSRF in headers:
            named = [session for session in found if has_token(headers, session.csrf)]
            if named or method in READING:
                return named[0] if named else None
        return found[0] if len(found) == 1 else None

    def _described(self, session: ConsoleSession) -> dict[str, Any]:
        namespaces = [each.name for each in self._catalogue.namespaces()] if session.is_operator else []
        return {
            "operator": session.is_operator,
            "namespace": session.namespace or None,
            "namespaces": namespaces,
            "csrf": session.csrf,
        }

    # --- requests for the gateway -----------------------------------------------------------------------

    async def _pass_on(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        asked = _AskedPath(scope)
        if not asked.path.startswith((_OPERATOR, *_PASSED_ON)):
            await _answer(send, 404, {"error": "there is no such page"})
            return
        session = await self._session(headers, scope["method"])
        if session is None:
            await _answer(send, 401, {"error": "log in first", "mayLogIn": self._may_log_in})
            return
        if scope["method"] not in READING and not has_token(headers, session.csrf):
            await _answer(send, 403, {"error": "the session's token is missing"})
            return
        authorization = self._authorization(session, asked)
        if authorization is None:
            await _answer(send, 403, {"error": "this session may not ask for that"})
            return
        kept = [(name, value) for name, value in scope["headers"] if name not in _WITHHELD]
        passed = {
            **scope,
            "path": asked.path,
            "raw_path": asked.raw_path,
            "headers": [*kept, (b"host", b"console"), (b"authorization", authorization)],
        }
        await self._gateway(passed, receive, _PassedResponse(send, lambda: self._sessions.is_open(session)))

    def _authorization(self, session: ConsoleSession, asked: "_AskedPath") -> bytes | None:
        """Return the credentials that the request is passed on with, or None if the session has no right to it."""
        if asked.path.startswith(_OPERATOR):
            return f"Bearer {self._token.text}".encode() if session.is_operator and not asked.namespace else None
        if session.is_operator and not asked.namespace and asked.path.startswith(_OBSERVE):
            return f"Bearer {self._token.text}".encode()
        namespace = session.namespace or asked.namespace
        if asked.namespace not in {"", namespace} or self._catalogue.namespace(namespace) is None:
            return None
        return f"Bearer {self._key(namespace)}".encode()

    def _key(self, namespace: str) -> str:
        keys = self._catalogue.ephemeral_keys
        known = self._keys.get(namespace)
        if known is None or known.partition(":")[0] not in keys:
            known = self._keys[namespace] = keys.issue(namespace)
        return known


class _AskedPath:
    """The gateway's path in a path of the console, `/console/api/…` or `/console/as/NAMESPACE/api/…`."""

    def __init__(self, scope: Scope) -> None:
        path: str = scope["path"]
        raw: bytes = scope.get("raw_path") or path.encode()
        prefix = PREFIX
        self.namespace = ""
        if path.startswith(f"{PREFIX}{_AS}"):
            self.namespace = path.removeprefix(f"{PREFIX}{_AS}").partition("/")[0]
            prefix = f"{PREFIX}{_AS}{self.namespace}"
        # A path that is written in another way, such as with %2f, names nothing.
        is_plain = path.startswith(f"{prefix}/") and raw.startswith(f"{prefix}/".encode())
        self.path = path.removeprefix(prefix) if is_plain else ""
        self.raw_path = raw.removeprefix(prefix.encode())


class _PassedResponse:
    """Passes on a response of the gateway with the console's headers. It ends early when the session ends."""

    def __init__(self, send: Send, is_open: Callable[[], bool]) -> None:
        self._send = send
        self._is_open = is_open
        self._ended = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message["headers"] if not name.lower().startswith(_REMOVED)]
            known = {name.lower() for name, _ in kept}  # a picture has a stricter policy of its own
            added = [(name, value) for name, value in (_NOT_STORED, *SECURITY) if name not in known]
            message = {**message, "headers": [*kept, *added]}
        elif self._ended:
            return
        elif message.get("more_body", False) and not self._is_open():
            self._ended = True
            message = {**message, "body": b"", "more_body": False}
        await self._send(message)


async def _body(receive: Receive) -> bytes:
    """Return the body of a login, or nothing if it is too large or too slow."""
    try:
        async with asyncio.timeout(_LOGIN_TIMEOUT_S):
            return await _short_body(receive)
    except TimeoutError:
        return b""


async def _short_body(receive: Receive) -> bytes:
    parts, size = [], 0
    while size <= _MAX_LOGIN_BYTES:
        message = await receive()
        part: bytes = message.get("body", b"")
        size += len(part)
        parts.append(part)
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(parts) if size <= _MAX_LOGIN_BYTES else b""
    return b""


def _fields(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _answer(send: Send, status: int, value: dict[str, Any], headers: Headers = ()) -> None:
    await _send(send, status, (JSON, _NOT_STORED, *headers), json.dumps(value).encode())


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length, *SECURITY]})
    await send({"type": "http.response.body", "body": body})
