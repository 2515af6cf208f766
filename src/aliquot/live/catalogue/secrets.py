"""Secrets of namespaces: environment variables for the functions that name them, encrypted in memory and on disk."""

import asyncio
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from aliquot.clock import now_ms
from aliquot.core.errors import InputError
from aliquot.core.units import KIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.catalogue.secret_cipher import SecretCipher, UnreadableSecretError
from aliquot.live.catalogue.variables import VARIABLE_NAMES, is_variable, is_variable_value
from aliquot.live.store.base import Delete, Document, DocumentChange, Put, Store
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.records import Action

COLLECTION = "sealed secrets"  # "secrets" has the key of workflow tokens
MAX_SECRETS = 100  # of a namespace
MAX_SECRET_BYTES = 64 * KIB  # names and values of one secret; the kernel passes on 128 KiB in a variable


class TooManySecretsError(Exception):
    """The namespace has as many secrets as it may. The text says what is allowed."""


class SecretInUseError(Exception):
    """Functions name the secret, so it cannot be deleted. The text says which."""


class Secret(Struct, frozen=True):
    """A secret as it is kept: the names of its variables, and their values encrypted."""

    namespace: str
    name: str
    variables: tuple[str, ...]
    created: int  # epoch ms
    updated: int
    sealed: bytes

    def __repr__(self) -> str:
        return f"<secret {self.name} of {self.namespace}>"


class SecretRegistry:
    """The secrets of all namespaces. A change is durable before it counts.

    It implements the catalogue's `NamespaceData`.
    """

    def __init__(self, store: Store, cipher: SecretCipher, max_secrets: int = MAX_SECRETS) -> None:
        self._store = store
        self._cipher = cipher
        self._max_secrets = max_secrets
        self._by_name: dict[str, dict[str, Secret]] = {}  # by namespace

    async def load(self) -> None:
        """Load all secrets from the store. Called at start."""
        for document in await self._store.scan(COLLECTION):
            self._set(msgspec.json.decode(document.body, type=Secret))

    # --- reading ------------------------------------------------------------------------------------------

    def all(self, namespace: str) -> list[Secret]:
        found = self._by_name.get(namespace, {})
        return [found[name] for name in sorted(found)]

    def find(self, namespace: str, name: str) -> Secret:
        """Return a secret. Raises `NotFoundError`."""
        found = self._by_name.get(namespace, {}).get(name)
        if found is None:
            raise NotFoundError(f"secret {name}")
        return found

    def reason_unavailable(self, action: Action, tenant: str) -> str | None:
        """Return why a function does not get the secrets that it names when this tenant calls it, or None."""
        names = parse_needs(action).secrets
        if names and tenant != action.namespace:
            return (
                f"annotation secrets: /{action.namespace}/{action.name} gets its secrets only in its own namespace; "
                f"namespace {tenant} cannot call it"
            )
        known = self._by_name.get(action.namespace, {})
        for name in names:
            if name not in known:
                there = f"there are {', '.join(sorted(known))}" if known else "there are none"
                return (
                    f"annotation secrets: namespace {action.namespace} has no secret '{name}'; {there}; make it with: "
                    f"aliquot secret create {name} VARIABLE"
                )
            try:
                self._open(known[name])
            except UnreadableSecretError as error:
                return (
                    f"annotation secrets: secret '{name}' cannot be decrypted, because {error}; restore the file from "
                    f"a backup, or make the secret again: aliquot secret create {name} VARIABLE --overwrite"
                )
        return None

    def variables_of(self, resolved: ResolvedAction) -> dict[str, str]:
        """Return the variables of the secrets that a function names. Those that it may not have are left out."""
        action = resolved.action
        found: dict[str, str] = {}
        if resolved.tenant == action.namespace:
            for name in parse_needs(action).secrets:
                secret = self._by_name.get(action.namespace, {}).get(name)
                found |= self._open(secret) if secret is not None else {}
        return found

    def _open(self, secret: Secret) -> dict[str, str]:
        opened = self._cipher.open(secret.sealed, _context(secret.namespace, secret.name))
        return msgspec.json.decode(opened, type=dict[str, str])

    # --- writing ------------------------------------------------------------------------------------------

    async def put(self, namespace: str, name: str, values: dict[str, str]) -> Secret:
        """Create or replace a secret. Durable. Call within `Catalogue.writing`.

        Raises `InputError`, whose text has no value, and `TooManySecretsError`.
        """
        _check(values)
        known = self._by_name.get(namespace, {})
        if name not in known and len(known) >= self._max_secrets:
            counts = f"(count: {len(known)}, allowed: {self._max_secrets})"
            raise TooManySecretsError(f"Too many secrets in the namespace {counts}.")
        now = now_ms()
        created = known[name].created if name in known else now
        sealed = self._cipher.seal(msgspec.json.encode(values), _context(namespace, name))
        secret = Secret(namespace, name, tuple(values), created, now, sealed)
        await self._write([Put(COLLECTION, Document(namespace, name, msgspec.json.encode(secret)))], [secret])
        return secret

    async def delete(self, secret: Secret, users: Iterable[Action]) -> None:
        """Delete a secret. Durable. Call within `Catalogue.writing`. Raises `SecretInUseError` if it has users."""
        if names := ", ".join(action.name for action in users):
            raise SecretInUseError(
                f"secret '{secret.name}' is named by {names}; delete these functions or deploy them without it first"
            )
        await self._write([Delete(COLLECTION, secret.namespace, secret.name)], [], secret)

    async def _write(self, changes: list[DocumentChange], new: list[Secret], old: Secret | None = None) -> None:
        """Change the store, then memory. It is shielded, so that a cancelled caller cannot leave them different."""

        async def write() -> None:
            await self._store.apply(changes)
            for secret in new:
                self._set(secret)
            if old is not None:
                self._by_name[old.namespace].pop(old.name, None)

        await asyncio.shield(write())

    def _set(self, secret: Secret) -> None:
        self._by_name.setdefault(secret.namespace, {})[secret.name] = secret

    # --- NamespaceData ------------------------------------------------------------------------------------

    def deletions(self, namespace: str) -> list[DocumentChange]:
        """Return the changes that delete the namespace's secrets from the store."""
        return [Delete(COLLECTION, namespace, secret.name) for secret in self.all(namespace)]

    def forget(self, namespace: str) -> None:
        """Remove the namespace's secrets from memory."""
        self._by_name.pop(namespace, None)


def users_of(catalogue: Catalogue, namespace: str, name: str, need: str = "secrets") -> list[Action]:
    """Return the functions of a namespace that name a secret, or something else that they need, ordered by name."""
    actions = sorted(catalogue.entities.all(Action, namespace), key=lambda action: action.name)
    return [action for action in actions if name in _names_of(action, need)]


def _names_of(action: Action, need: str) -> tuple[str, ...]:
    try:
        names: tuple[str, ...] = getattr(parse_needs(action), need)
    except InputError:  # it was valid when an earlier version wrote it
        return ()
    return names


def _context(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _check(values: dict[str, str]) -> None:
    """Check the variables of a secret. The text of an error has no value."""
    if not values:
        raise InputError("variables: it takes at least one variable, such as {'HF_TOKEN': '…'}")
    for name, value in values.items():
        if not is_variable(name):
            raise InputError(f"variables: {name[:80]!r} is not a variable's name; it takes {VARIABLE_NAMES}")
        if not is_variable_value(value):
            raise InputError(f"variables: the value of {name} has a zero byte or is not Unicode; it takes text")
    size = sum(len(name) + len(value.encode()) for name, value in values.items())
    if size > MAX_SECRET_BYTES:
        raise InputError(f"variables: they have {size} bytes; a secret takes at most {MAX_SECRET_BYTES}")
