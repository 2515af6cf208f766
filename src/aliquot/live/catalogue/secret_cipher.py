"""Encryption of secrets with a key that is in a file of the data folder.

The database alone, or a copy of it, shows no secret. AES-256-GCM also authenticates the namespace and the name, so that
a sealed value cannot be moved to another namespace.
"""

import os
from base64 import b64decode, b64encode
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.live.store.data_directory import write_private

_KEY_BYTES = 32
_NONCE_BYTES = 12


class UnreadableSecretError(Exception):
    """A secret cannot be decrypted: the key file is missing, or belongs to another data folder."""


class SecretCipher:
    """Seals and opens values with the key of a data folder. The key is made when the first value is sealed."""

    def __init__(self, path: Path | None) -> None:
        """Read the key from a file, if it is there. Without a path the key is held in memory only."""
        self._path = path
        self._key: bytes | None = None
        if path is None or not path.exists():
            return
        try:
            self._key = b64decode(path.read_bytes().strip(), validate=True)
            path.chmod(0o600)
        except (OSError, ValueError) as error:
            raise InputError(f"--data: {path} cannot be read: {error}; restore it from a backup") from error
        if len(self._key) != _KEY_BYTES:
            raise InputError(f"--data: {path} holds no key of {_KEY_BYTES} bytes in base64; restore it from a backup")

    def seal(self, value: bytes, context: str) -> bytes:
        """Encrypt a value. It can be opened only with the same context. Raises `OSError` if the key cannot be kept."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - most servers need it never

        if self._key is None:
            self._key = self._make_key()
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key).encrypt(nonce, value, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """Decrypt a value. Raises `UnreadableSecretError`."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see above
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        if self._key is None:
            raise UnreadableSecretError("the key file is missing")
        try:
            return AESGCM(self._key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context.encode())
        except InvalidTag:
            raise UnreadableSecretError("it was encrypted with another key file") from None

    def _make_key(self) -> bytes:
        key = os.urandom(_KEY_BYTES)
        if self._path is not None:
            write_private(self._path, b64encode(key).decode() + "\n")
        return key
