"""The catalogue: namespaces and their entities, in memory and in the store.

A change is made in the store first. If the store refuses it, memory stays as it was. Changes of one namespace are made
one after another. Different namespaces do not wait for each other.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeVar

import msgspec
import structlog

from aliquot.clock import now_ms
from aliquot.config import MAX_WEIGHT, MIN_WEIGHT
from aliquot.core.errors import InputError
from aliquot.live.catalogue.entities import COLLECTIONS, Entities
from aliquot.live.catalogue.keys import EphemeralKeys, make_key
from aliquot.live.catalogue.names import MAX_NAME_LENGTH, is_name
from aliquot.live.catalogue.resolving import ResolvedAction, full_name, resolve_action
from aliquot.live.store.base import Delete, Document, DocumentChange, Put, Store
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import (
    SYSTEM,
    Action,
    Entity,
    FullName,
    Namespace,
    Package,
    Quota,
    Rule,
    Trigger,
    name_of_owner,
)

NAMESPACES = "namespaces"
MAX_ENTITIES = 10_000
MAX_RESOLVED = 10_000  # names whose actions are kept until the next change

_log = structlog.get_logger(__name__)
E = TypeVar("E", Action, Package, Trigger, Rule)


class NameTakenError(Exception):
    """The name is already in use."""


class TooManyEntitiesError(Exception):
    """The namespace has as many entities as it may. The text says what is allowed."""


class FunctionHost(Protocol):
    """The part of the platform that runs functions. The catalogue tells it of every change."""

    def deploy(self, resolved: ResolvedAction) -> None:
        """Run this revision of the function from now on."""
        ...

    def prepare(self, resolved: ResolvedAction) -> None:
        """Make the first call of a deployed function faster: one is likely soon."""
        ...

    def remove(self, tenant: str, function: str) -> None:
        """Stop offering the function to the tenant."""
        ...

    def set_weight(self, namespace: Namespace) -> None:
        """Set the namespace's weight in the scheduler."""
        ...


class NamespaceData(Protocol):
    """Data that another component keeps for namespaces. It is deleted in the same transaction as the namespace."""

    def deletions(self, namespace: str) -> list[DocumentChange]:
        """Return the changes that delete the namespace's data from the store."""
        ...

    def forget(self, namespace: str) -> None:
        """Remove the namespace's data from memory, after it was deleted from the store."""
        ...


class Catalogue:
    """Reads and changes namespaces, keys and entities, and tells the host which functions can run."""

    def __init__(
        self,
        store: Store,
        host: FunctionHost,
        ephemeral_keys: EphemeralKeys | None = None,
        max_entities: int = MAX_ENTITIES,
    ) -> None:
        self._max_entities = max_entities  # actions, packages, triggers and rules of one namespace together
        self.generation = 0  # grows with every change, so that caches can tell when they are stale
        self._store = store
        self._host = host
        self.entities = Entities()
        self._namespaces: dict[str, Namespace] = {}
        self._deployed: dict[tuple[str, str], ResolvedAction] = {}  # by tenant and function; known to the host
        self._resolved: dict[tuple[str, FullName], ResolvedAction] = {}  # by caller and name, of one generation
        self._resolved_generation = 0
        self._keys: dict[str, tuple[str, str]] = {}  # by uuid: namespace and digest
        self.ephemeral_keys = ephemeral_keys or EphemeralKeys()
        self._locks: dict[str, asyncio.Lock] = {}
        self._namespace_data: list[NamespaceData] = []

    async def load(self) -> None:
        """Load everything from the store and deploy the actions. Called at start, before the first request."""
        for document in await self._store.scan(NAMESPACES):
            self._set_namespace(msgspec.json.decode(document.body, type=Namespace))
        for kind, collection in COLLECTIONS.items():
            for document in await self._store.scan(collection):
                self.entities.add(msgspec.json.decode(document.body, type=kind))
        for namespace in self._namespaces:
            for action in self.entities.all(Action, namespace):
                try:
                    self._update_deployment(namespace, action.name, prepare=False)
                except InputError as error:  # an action that was valid when it was written must not stop the start
                    _log.warning("action cannot run", namespace=namespace, action=action.name, why=str(error))

    def install(self, entity: Entity) -> None:
        """Add an entity that comes with the platform. It is not stored, and made again at every start."""
        self.entities.add(entity)
        self.generation += 1

    def add_namespace_data(self, data: NamespaceData) -> None:
        """Delete this component's data together with a namespace from now on."""
        self._namespace_data.append(data)

    # --- reading ------------------------------------------------------------------------------------------

    def namespace(self, name: str) -> Namespace | None:
        return self._namespaces.get(name)

    def namespace_of(self, owner: str) -> Namespace | None:
        """Return the namespace with this owner of records. A later namespace of the same name is another one."""
        found = self._namespaces.get(name_of_owner(owner))
        return found if found is not None and found.owner == owner else None

    def namespaces(self) -> list[Namespace]:
        return [self._namespaces[name] for name in sorted(self._namespaces)]

    def key(self, key_uuid: str) -> tuple[str, str] | None:
        """Return the key's namespace and the SHA-256 digest of its secret."""
        return self._keys.get(key_uuid) or self.ephemeral_keys.find(key_uuid)

    def resolve(self, caller: str, name: FullName) -> ResolvedAction:
        """Resolve a name for a caller, and deploy the action if it is new. Raises as `resolve_action` does."""
        if self._resolved_generation != self.generation or len(self._resolved) >= MAX_RESOLVED:
            self._resolved.clear()
            self._resolved_generation = self.generation
        known = self._resolved.get((caller, name))
        if known is not None:
            return known
        resolved = resolve_action(self.entities, caller, name)
        if resolved.has_code and (caller, resolved.function) not in self._deployed:
            self._update_deployment(caller, resolved.function)
        self._resolved[caller, name] = resolved
        return resolved

    def resolve_with_components(self, caller: str, name: FullName) -> ResolvedAction:
        """Resolve a name that a caller invokes. The caller must also have access to the components of a sequence.

        A component that does not exist is no error here. The sequence runs up to it.
        """
        resolved = self.resolve(caller, name)
        for component in resolved.action.exec.components:
            with suppress(NotFoundError):
                self.resolve(caller, component)
        return resolved

    # --- entities -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def writing(self, namespace: str) -> AsyncIterator[None]:
        """Lock a namespace for reading, deciding and writing. Raises `NotFoundError`."""
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            if namespace not in self._namespaces:
                raise NotFoundError(f"namespace {namespace}")
            yield

    async def put(self, entity: E) -> E:
        """Create or replace an entity and return it. An action gets a new revision. Durable. Call within `writing`.

        Raises `TooManyEntitiesError`.
        """
        self._check_number(entity)
        if isinstance(entity, Action):
            entity = msgspec.structs.replace(entity, revision=os.urandom(8).hex())
        document = Document(entity.namespace, entity.name, msgspec.json.encode(entity))

        def update_memory() -> None:
            self.entities.add(entity)
            self._update_deployments(entity)

        await self._write([Put(COLLECTIONS[type(entity)], document)], update_memory)
        return entity

    def _check_number(self, entity: Entity) -> None:
        """Refuse a further entity of a namespace that has as many as it may. The store limits their bytes."""
        if self.entities.any(entity.namespace, entity.name) is not None:
            return
        count = len(self.entities.everything(entity.namespace))
        if count >= self._max_entities:
            counts = f"(count: {count}, allowed: {self._max_entities})"
            raise TooManyEntitiesError(f"Too many entities in the namespace {counts}.")

    async def delete(self, *entities: Entity) -> None:
        """Delete entities in one transaction. Durable. Call within `writing`."""
        await self._write([_deletion(entity) for entity in entities], lambda: self._remove_entities(entities))

    def _remove_entities(self, entities: Iterable[Entity]) -> None:
        for entity in entities:
            self.entities.remove(entity.namespace, entity.name)
        for entity in entities:
            self._update_deployments(entity)

    def _update_deployments(self, entity: Entity) -> None:
        """Tell the host of every action that resolves differently after a change of this entity."""
        self.generation += 1
        namespace, name = entity.namespace, entity.name
        if isinstance(entity, Action):
            self._update_deployment(namespace, name)
        elif not isinstance(entity, Package):
            return
        affected = [
            key
            for key, resolved in self._deployed.items()
            if (resolved.action.namespace == namespace or key[0] == namespace) and key != (namespace, name)
        ]
        for tenant, function in affected:
            self._update_deployment(tenant, function)

    def _update_deployment(self, tenant: str, function: str, *, prepare: bool = True) -> None:
        key = (tenant, function)
        old = self._deployed.get(key)
        try:
            resolved = resolve_action(self.entities, tenant, full_name(tenant, function))
        except (NotFoundError, AccessDeniedError):
            resolved = None
        if resolved is None or not resolved.has_code:
            if old is not None:
                del self._deployed[key]
                self._host.remove(tenant, function)
        elif old is None or old.action.revision != resolved.action.revision:
            self._deployed[key] = resolved
            self._host.deploy(resolved)
            if prepare:
                self._host.prepare(resolved)

    # --- namespaces ---------------------------------------------------------------------------------------

    async def create_namespace(self, name: str, *, weight: float = 1, quota: Quota | None = None) -> str:
        """Create a namespace and return its first key, `uuid:secret`. The secret is not stored."""
        if len(name) > MAX_NAME_LENGTH or not is_name(name) or name == "_":
            raise InputError(f"name: '{name}' cannot name a namespace; it takes letters, digits and @ . & - _")
        if name == SYSTEM:
            raise NameTakenError(f"namespace {name} is the platform's own")
        _check_limits(weight, quota)
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name in self._namespaces:
                raise NameTakenError(f"namespace {name} exists already")
            text, key = make_key()
            owner = f"{name}:{os.urandom(8).hex()}"
            await self._put_namespace(Namespace(name, (key,), weight, quota or Quota(), now_ms(), owner))
        return text

    async def update_namespace(self, name: str, change: Callable[[Namespace], Namespace]) -> Namespace:
        """Change the weight or quota. `change` gets the present record and returns the new one."""
        async with self.writing(name):
            new = change(self._namespaces[name])
            _check_limits(new.weight, new.quota)
            await self._put_namespace(new)
        return new

    async def add_key(self, name: str, *, revoke_others: bool) -> str:
        """Return a new key. The secret is not stored. With `revoke_others` it replaces all earlier keys."""
        async with self.writing(name):
            old = self._namespaces[name]
            text, key = make_key()
            await self._put_namespace(msgspec.structs.replace(old, keys=(key,) if revoke_others else (*old.keys, key)))
        return text

    async def remove_key(self, name: str, key_uuid: str) -> None:
        """Revoke a key. Raises `NotFoundError`."""
        async with self.writing(name):
            old = self._namespaces[name]
            keys = tuple(key for key in old.keys if key.uuid != key_uuid)
            if len(keys) == len(old.keys):
                raise NotFoundError(f"key {key_uuid} of namespace {name}")
            await self._put_namespace(msgspec.structs.replace(old, keys=keys))

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace with its entities, its keys and the data that other components keep for it."""
        async with self.writing(name):
            entities = self.entities.everything(name)
            more = [change for data in self._namespace_data for change in data.deletions(name)]

            def update_memory() -> None:
                self._remove_entities(entities)
                for key in self._namespaces.pop(name).keys:
                    del self._keys[key.uuid]
                self.entities.remove_namespace(name)
                for tenant, function in [key for key in self._deployed if key[0] == name]:
                    del self._deployed[tenant, function]
                    self._host.remove(tenant, function)
                self.ephemeral_keys.forget_namespace(name)
                for data in self._namespace_data:
                    data.forget(name)
                self.generation += 1

            await self._write([*map(_deletion, entities), *more, Delete(NAMESPACES, name, name)], update_memory)

    # --- inside -------------------------------------------------------------------------------------------

    async def _put_namespace(self, namespace: Namespace) -> None:
        document = Document(namespace.name, namespace.name, msgspec.json.encode(namespace))
        await self._write([Put(NAMESPACES, document)], lambda: self._set_namespace(namespace))

    async def _write(self, changes: list[DocumentChange], update_memory: Callable[[], None]) -> None:
        """Change the store, then memory. It is shielded, so that a cancelled caller cannot leave them different."""

        async def write() -> None:
            await self._store.apply(changes)
            update_memory()

        await asyncio.shield(write())

    def _set_namespace(self, namespace: Namespace) -> None:
        old = self._namespaces.get(namespace.name)
        for key in old.keys if old else ():
            del self._keys[key.uuid]
        self._namespaces[namespace.name] = namespace
        self._keys.update((key.uuid, (namespace.name, key.digest)) for key in namespace.keys)
        self.generation += 1
        self._host.set_weight(namespace)
        self._store.limit_kept_bytes(namespace.name, namespace.quota.kept_bytes)


def _deletion(entity: Entity) -> DocumentChange:
    return Delete(COLLECTIONS[type(entity)], entity.namespace, entity.name)


def _check_limits(weight: float, quota: Quota | None) -> None:
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise InputError(f"weight: it takes a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}, not {weight}")
    for field in quota.__struct_fields__ if quota else ():
        if (bound := getattr(quota, field)) is not None and bound < 0:
            raise InputError(f"quota.{field}: it takes a number from 0 on, not {bound}")
