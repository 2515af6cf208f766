"""Sessions of the console: who has logged in, and with which key.

A session acts for the namespace whose key was given, or for the operator. It ends with that key, after hours without a
request, or when the user logs out. The store has only digests, so that nobody can take a session from it.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.store.base import Delete, Document, Put, Store
from aliquot.live.store.operator_token import OperatorToken

COLLECTION = "console sessions"
MAX_SESSIONS = 256
MAX_IDLE_MS = 12 * 3600 * 1000
_SAVE_EVERY_MS = 10 * 60 * 1000  # the time of the last request is written this often
CODE_MS = 60_000
_MAX_CODES = 64
OPERATOR = ""  # the namespace of the operator's sessions


class Credential(Struct, frozen=True):
    """A key or the operator's token, by what is stored of it."""

    namespace: str  # empty for the operator
    key_uuid: str
    digest: str


class ConsoleSession(Struct, frozen=True):
    """The session of a user who has logged in."""

    digest: str  # of its id, which only the browser has
    credential: Credential
    csrf: str
    seen_ms: int

    @property
    def namespace(self) -> str:
        return self.credential.namespace

    @property
    def is_operator(self) -> bool:
        return self.credential.namespace == OPERATOR


class OneTimeCode(Struct, frozen=True):
    """A code that `aliquot console` puts into the browser's address. It can be used once."""

    credential: Credential
    expires_ms: int


class ConsoleSessions:
    """All sessions, in memory and in the store."""

    def __init__(self, store: Store, catalogue: Catalogue, token: OperatorToken) -> None:
        self._store = store
        self._catalogue = catalogue
        self._token = token
        self._sessions: OrderedDict[str, ConsoleSession] = OrderedDict()  # by digest, least recently used first
        self._codes: OrderedDict[str, OneTimeCode] = OrderedDict()  # by digest

    async def load(self) -> None:
        """Load the sessions from the store. Called at start."""
        found = [msgspec.json.decode(each.body, type=ConsoleSession) for each in await self._store.scan(COLLECTION)]
        for session in sorted(found, key=lambda session: session.seen_ms):
            self._sessions[session.digest] = session

    def check_credentials(self, given: str) -> Credential | None:
        """Return the credential for a namespace's key, `uuid:secret`, or the operator's token. None if it is wrong."""
        key_uuid, colon, secret = given.strip().partition(":")
        if not colon:
            right = self._token.matches(given.strip().encode())
            return Credential(OPERATOR, "", _digest(self._token.text)) if right else None
        key = self._catalogue.key(key_uuid)
        digest = _digest(secret)
        right = hmac.compare_digest(digest, key[1] if key else _digest(""))
        return Credential(key[0], key_uuid, digest) if key and right else None

    async def begin(self, credential: Credential) -> tuple[str, ConsoleSession]:
        """Begin a session, and return its id, which is not kept, with the session."""
        text = secrets.token_urlsafe(32)
        session = ConsoleSession(_digest(text), credential, secrets.token_urlsafe(24), now_ms())
        self._sessions[session.digest] = session
        changes: list[Put | Delete] = [_put(session)]
        while len(self._sessions) > MAX_SESSIONS:
            oldest, _ = self._sessions.popitem(last=False)
            changes.append(Delete(COLLECTION, "", oldest))
        await self._store.apply(changes)
        return text, session

    async def find(self, text: str) -> ConsoleSession | None:
        """Return the session with this id, unless it has ended."""
        session = self._sessions.get(_digest(text))
        if session is None:
            return None
        now = now_ms()
        if now - session.seen_ms > MAX_IDLE_MS or not self._is_valid(session.credential):
            await self.end(session)
            return None
        self._sessions.move_to_end(session.digest)
        if now - session.seen_ms > _SAVE_EVERY_MS:
            session = self._sessions[session.digest] = replace(session, seen_ms=now)
            await self._store.apply([_put(session)])
        return session

    async def end(self, session: ConsoleSession) -> None:
        if self._sessions.pop(session.digest, None) is not None:
            await self._store.apply([Delete(COLLECTION, "", session.digest)])

    def is_open(self, session: ConsoleSession) -> bool:
        """Return whether the session has not ended, for responses that take long."""
        return session.digest in self._sessions and self._is_valid(session.credential)

    def issue_code(self, credential: Credential) -> str:
        """Return a code for one login within a minute."""
        text = secrets.token_urlsafe(24)
        self._codes[_digest(text)] = OneTimeCode(credential, now_ms() + CODE_MS)
        while len(self._codes) > _MAX_CODES:
            self._codes.popitem(last=False)
        return text

    def redeem(self, code: str) -> Credential | None:
        """Return the credential of a code, which cannot be used again."""
        found = self._codes.pop(_digest(code), None)
        valid = found is not None and now_ms() <= found.expires_ms and self._is_valid(found.credential)
        return found.credential if found is not None and valid else None

    def _is_valid(self, credential: Credential) -> bool:
        """Return whether the key or token has not been replaced or taken back."""
        if credential.namespace == OPERATOR:
            return hmac.compare_digest(credential.digest, _digest(self._token.text))
        return self._catalogue.key(credential.key_uuid) == (credential.namespace, credential.digest)


def _put(session: ConsoleSession) -> Put:
    return Put(COLLECTION, Document("", session.digest, msgspec.json.encode(session)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
