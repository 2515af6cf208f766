"""The catalogue: namespaces and their entities, in memory and in the store, and the two never differ for long.

A write is durable before it shows: when the store refuses it, memory is as it was. Writes to one namespace follow one
another; those to several do not wait for each other.
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
from aliquot.live.store.records import SYSTEM, Action, Entity, FullName, Namespace, Package, Quota, Rule, Trigger

NAMESPACES = "namespaces"

_log = structlog.get_logger(__name__)
E = TypeVar("E", Action, Package, Trigger, Rule)


class NameTakenError(Exception):
    """The name is in use."""


class FunctionHost(Protocol):
    """The part of the platform that runs functions. The catalogue tells it of every change."""

    def deploy(self, resolved: ResolvedAction) -> None:
        """Run this revision of the function from now on."""
        ...

    def remove(self, tenant: str, function: str) -> None:
        """Stop offering the function to the tenant."""
        ...

    def set_weight(self, namespace: Namespace) -> None:
        """Set the namespace's weight in the scheduler."""
        ...


class NamespaceCompanion(Protocol):
    """Keeps something else of the namespaces', which goes when they go."""

    def deletions(self, namespace: str) -> list[DocumentChange]: ...

    def forget(self, namespace: str) -> None:
        """They are done."""
        ...


class Catalogue:
    def __init__(self, store: Store, host: FunctionHost, ephemeral_keys: EphemeralKeys | None = None) -> None:
        self.generation = 0  # grows with every change: whoever remembers something looks at it
        self._store = store
        self._host = host
        self.entities = Entities()
        self._namespaces: dict[str, Namespace] = {}
        self._deployed: dict[tuple[str, str], ResolvedAction] = {}  # by tenant and function: what the platform can run
        self._keys: dict[str, tuple[str, str]] = {}  # by uuid: namespace and digest
        self.ephemeral_keys = ephemeral_keys or EphemeralKeys()
        self._locks: dict[str, asyncio.Lock] = {}
        self.companions: list[NamespaceCompanion] = []

    async def load(self) -> None:
        """Read everything and tell the platform; at start, before the first request."""
        for document in await self._store.scan(NAMESPACES):
            self._show_namespace(msgspec.json.decode(document.body, type=Namespace))
        for kind, collection in COLLECTIONS.items():
            for document in await self._store.scan(collection):
                self.entities.show(msgspec.json.decode(document.body, type=kind))
        for namespace in self._namespaces:
            for action in self.entities.all(Action, namespace):
                try:
                    self._settle(namespace, action.name)
                except InputError as error:  # what was fine when it was written must not keep others from starting
                    _log.warning("action cannot run", namespace=namespace, action=action.name, why=str(error))

    def install(self, entity: Entity) -> None:
        """One that comes with the platform: nobody's namespace, and made anew at every start."""
        self.entities.show(entity)
        self.generation += 1

    # --- reading ------------------------------------------------------------------------------------------

    def namespace(self, name: str) -> Namespace | None:
        return self._namespaces.get(name)

    def namespaces(self) -> list[Namespace]:
        return [self._namespaces[name] for name in sorted(self._namespaces)]

    def key(self, key_uuid: str) -> tuple[str, str] | None:
        """The namespace it opens, and the SHA-256 of its secret."""
        return self._keys.get(key_uuid) or self.ephemeral_keys.find(key_uuid)

    def resolve(self, caller: str, name: FullName) -> ResolvedAction:
        """The action as the caller reaches it; from now on the platform can run it. Raises as `resolve` does."""
        resolved = resolve_action(self.entities, caller, name)
        known = self._deployed.get((caller, resolved.function))
        if known is None and not resolved.is_sequence:
            self._settle(caller, resolved.function)
        return resolved

    def resolve_with_components(self, caller: str, name: FullName) -> ResolvedAction:
        """The same for a caller who asks for it by this name: a sequence only with all its components.

        One that is gone is not looked at here: what has run before it has run.
        """
        resolved = self.resolve(caller, name)
        for component in resolved.action.exec.components:
            with suppress(NotFoundError):
                self.resolve(caller, component)
        return resolved

    # --- entities -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def writing(self, namespace: str) -> AsyncIterator[None]:
        """Read, decide and write in here: nobody else writes to the namespace meanwhile."""
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            if namespace not in self._namespaces:
                raise NotFoundError(f"namespace {namespace}")
            yield

    async def put(self, entity: E) -> E:
        """Durable on return; an action comes back with its new revision. To be called within `writing`."""
        if isinstance(entity, Action):
            entity = msgspec.structs.replace(entity, revision=os.urandom(8).hex())
        document = Document(entity.namespace, entity.name, msgspec.json.encode(entity))

        def show() -> None:
            self.entities.show(entity)
            self._changed(entity)

        await self._write([Put(COLLECTIONS[type(entity)], document)], show)
        return entity

    async def delete(self, *entities: Entity) -> None:
        """All of them, or none. Durable on return. To be called within `writing`."""
        await self._write([_gone(entity) for entity in entities], lambda: self._hide(entities))

    def _hide(self, entities: Iterable[Entity]) -> None:
        for entity in entities:
            self.entities.hide(entity.namespace, entity.name)
        for entity in entities:
            self._changed(entity)

    def _changed(self, entity: Entity) -> None:
        """The platform hears of every action that is reached in another way than before, or not at all."""
        self.generation += 1
        namespace, name = entity.namespace, entity.name
        if isinstance(entity, Action):
            self._settle(namespace, name)
        elif not isinstance(entity, Package):
            return
        affected = [
            key
            for key, resolved in self._deployed.items()
            if (resolved.action.namespace == namespace or key[0] == namespace) and key != (namespace, name)
        ]
        for tenant, function in affected:
            self._settle(tenant, function)

    def _settle(self, tenant: str, function: str) -> None:
        key = (tenant, function)
        old = self._deployed.get(key)
        try:
            resolved = resolve_action(self.entities, tenant, full_name(tenant, function))
        except (NotFoundError, AccessDeniedError):
            resolved = None
        if resolved is None or resolved.is_sequence:
            if old is not None:
                del self._deployed[key]
                self._host.remove(tenant, function)
        elif old is None or old.action.revision != resolved.action.revision:
            self._deployed[key] = resolved
            self._host.deploy(resolved)

    # --- namespaces ---------------------------------------------------------------------------------------

    async def create_namespace(self, name: str, *, weight: float = 1, quota: Quota | None = None) -> str:
        """Its first key, `uuid:secret`, which nobody will see again."""
        if len(name) > MAX_NAME_LENGTH or not is_name(name) or name == "_":
            raise InputError(f"name: '{name}' cannot name a namespace; it takes letters, digits and @ . & - _")
        if name == SYSTEM:
            raise NameTakenError(f"namespace {name} is the platform's own")
        _check(weight, quota)
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name in self._namespaces:
                raise NameTakenError(f"namespace {name} exists already")
            text, key = make_key()
            await self._put_namespace(Namespace(name, (key,), weight, quota or Quota(), now_ms()))
        return text

    async def update_namespace(self, name: str, change: Callable[[Namespace], Namespace]) -> Namespace:
        """Its weight and quota; `change` sees what is there and says what shall be."""
        async with self.writing(name):
            new = change(self._namespaces[name])
            _check(new.weight, new.quota)
            await self._put_namespace(new)
        return new

    async def add_key(self, name: str, *, alone: bool) -> str:
        """A new key, returned this once; `alone`: those before it do not open any more."""
        async with self.writing(name):
            old = self._namespaces[name]
            text, key = make_key()
            await self._put_namespace(msgspec.structs.replace(old, keys=(key,) if alone else (*old.keys, key)))
        return text

    async def remove_key(self, name: str, key_uuid: str) -> None:
        async with self.writing(name):
            old = self._namespaces[name]
            keys = tuple(key for key in old.keys if key.uuid != key_uuid)
            if len(keys) == len(old.keys):
                raise NotFoundError(f"key {key_uuid} of namespace {name}")
            await self._put_namespace(msgspec.structs.replace(old, keys=keys))

    async def delete_namespace(self, name: str) -> None:
        """With all its entities and keys, and what companions keep for it."""
        async with self.writing(name):
            entities = self.entities.everything(name)
            more = [change for companion in self.companions for change in companion.deletions(name)]

            def show() -> None:
                self._hide(entities)
                for key in self._namespaces.pop(name).keys:
                    del self._keys[key.uuid]
                self.entities.forget(name)
                for tenant, function in [key for key in self._deployed if key[0] == name]:
                    del self._deployed[tenant, function]
                    self._host.remove(tenant, function)
                self.ephemeral_keys.forget_namespace(name)
                for companion in self.companions:
                    companion.forget(name)
                self.generation += 1

            await self._write([*map(_gone, entities), *more, Delete(NAMESPACES, name, name)], show)

    # --- inside -------------------------------------------------------------------------------------------

    async def _put_namespace(self, namespace: Namespace) -> None:
        document = Document(namespace.name, namespace.name, msgspec.json.encode(namespace))
        await self._write([Put(NAMESPACES, document)], lambda: self._show_namespace(namespace))

    async def _write(self, changes: list[DocumentChange], show: Callable[[], None]) -> None:
        """In the store first, then in memory; a caller that is cancelled in between must not leave them different."""

        async def write() -> None:
            await self._store.apply(changes)
            show()

        await asyncio.shield(write())

    def _show_namespace(self, namespace: Namespace) -> None:
        old = self._namespaces.get(namespace.name)
        for key in old.keys if old else ():
            del self._keys[key.uuid]
        self._namespaces[namespace.name] = namespace
        self._keys.update((key.uuid, (namespace.name, key.digest)) for key in namespace.keys)
        self.generation += 1
        self._host.set_weight(namespace)


def _gone(entity: Entity) -> DocumentChange:
    return Delete(COLLECTIONS[type(entity)], entity.namespace, entity.name)


def _check(weight: float, quota: Quota | None) -> None:
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise InputError(f"weight: it takes a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}, not {weight}")
    for field in quota.__struct_fields__ if quota else ():
        if (bound := getattr(quota, field)) is not None and bound < 0:
            raise InputError(f"quota.{field}: it takes a number from 0 on, not {bound}")
