"""Keys: how they are made, and the ephemeral ones that are never stored."""

import hashlib
import secrets
import uuid
from collections.abc import Callable

from aliquot.live.store.records import Key


def make_key() -> tuple[str, Key]:
    """Return a new key as text, `uuid:secret`, and the record that is stored of it."""
    key_uuid, secret = str(uuid.uuid4()), secrets.token_hex(32)
    return f"{key_uuid}:{secret}", Key(key_uuid, digest_of(secret))


def digest_of(secret: str) -> str:
    """Return the digest that is stored instead of the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class EphemeralKeys:
    """Keys for code that runs on a namespace's behalf. They are held in memory and end with this process."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[str, str]] = {}  # by uuid: namespace and digest
        self._listeners: list[Callable[[str], None]] = []

    def __contains__(self, key_uuid: str) -> bool:
        return key_uuid in self._keys

    def issue(self, namespace: str) -> str:
        """Return a new key of the namespace."""
        text, key = make_key()
        self._keys[key.uuid] = (namespace, key.digest)
        return text

    def find(self, key_uuid: str) -> tuple[str, str] | None:
        """Return the key's namespace and the digest of its secret."""
        return self._keys.get(key_uuid)

    def on_forgotten(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the uuid of every key that is forgotten."""
        self._listeners.append(listener)

    def forget(self, text: str) -> None:
        """Revoke a key."""
        key_uuid = text.partition(":")[0]
        if self._keys.pop(key_uuid, None):
            for listener in self._listeners:
                listener(key_uuid)

    def forget_namespace(self, namespace: str) -> None:
        """Revoke all keys of a namespace that was deleted."""
        self._keys = {key_uuid: found for key_uuid, found in self._keys.items() if found[0] != namespace}
