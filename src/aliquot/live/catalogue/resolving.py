"""How a caller reaches an action: its own, one in its package or binding, or one that another namespace has published.

Whoever calls, pays: an action of someone else's runs in the caller's own sandboxes, in a flow of the caller's, so that
neither fair shares nor what a sandbox remembers are ever mixed between tenants.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from aliquot.live.catalogue.entities import Entities
from aliquot.live.store.errors import AccessDeniedError, NotFoundError, WrongCollectionError
from aliquot.live.store.records import SEQUENCE, Action, FullName, Package, Pair, is_truthy

E = TypeVar("E", Action, Package)


class ResolvedAction(Struct, frozen=True):
    """An action as one caller reaches it."""

    tenant: str  # the caller
    function: (
        str  # the flow's name: `name` or `package/name` of the caller's own, `/namespace/package/name` of another's
    )
    action: Action  # with the parameters that it inherits
    binding: FullName | None = None  # the package through which it was reached, if that is another's under a new name
    composite: bool = False  # a call of it is more than one run: a sequence or a conductor
    group: str = ""  # of functions that share its sandboxes; empty: it has its own

    def __post_init__(self) -> None:
        composite = self.is_sequence or is_truthy(self.action.annotation("conductor"))
        force_setattr(self, "composite", composite)  # worked out here, for it is asked at every call
        # One that is another's, or is reached through a binding, runs for its caller alone.
        own = self.tenant == self.action.namespace and self.function == self.action.name
        group = self.action.annotation("group") if own and not self.is_sequence else None
        force_setattr(self, "group", group if isinstance(group, str) else "")

    @staticmethod
    def own(action: Action) -> "ResolvedAction":
        """Nothing inherited."""
        return ResolvedAction(action.namespace, action.name, action)

    @property
    def is_sequence(self) -> bool:
        return self.action.exec.kind == SEQUENCE


def resolve_action(entities: Entities, caller: str, name: FullName) -> ResolvedAction:
    """Raises `NotFoundError` and `AccessDeniedError`."""
    function = name.name if name.namespace == caller else str(name)
    if not name.package:
        if name.namespace != caller:
            raise AccessDeniedError(_shown(name))
        return ResolvedAction(caller, function, _one(entities, Action, name))
    packages = readable_package(entities, caller, FullName(name.namespace, name.package), _shown(name))
    provider = packages[0]
    action = _one(entities, Action, FullName(provider.namespace, f"{provider.name}/{name.leaf}"))
    binding = FullName(name.namespace, name.package) if len(packages) > 1 else None
    return ResolvedAction(caller, function, inherit(action, packages), binding)


def readable_package(entities: Entities, caller: str, name: FullName, asked: str) -> list[Package]:
    """Return the package, preceded by the one it is bound to.

    Raises `NotFoundError` and `AccessDeniedError`, which name `asked`.
    """
    package = _readable(entities, caller, name, asked)
    if package.binding is None:
        return [package]
    provider = _readable(entities, caller, package.binding, asked)
    if provider.binding is not None:  # it was not, when the package was bound
        raise NotFoundError(f"package {package.binding}")
    return [provider, package]


def _readable(entities: Entities, caller: str, name: FullName, asked: str) -> Package:
    if name.namespace == caller:
        return _one(entities, Package, name)
    package = entities.one(Package, name.namespace, name.name)
    if package is None or not package.publish or package.binding is not None:  # a binding is its owner's alone
        raise AccessDeniedError(asked)
    return package


def inherit(action: Action, packages: list[Package]) -> Action:
    """Parameters of the package beneath those of the binding beneath the action's own."""
    if not any(package.parameters for package in packages):
        return action
    parameters = merged([*packages, action])
    # Of what is inherited only the environment is the sandbox's: with another one it is another sandbox.
    environment = [pair for pair in parameters if pair.init]
    revision = action.revision
    if environment != [pair for pair in action.parameters if pair.init]:
        revision += hashlib.blake2b(msgspec.json.encode(environment), digest_size=8).hexdigest()
    return replace(action, parameters=parameters, revision=revision)


def merged(entities: Sequence[Package | Action]) -> tuple[Pair, ...]:
    """Their parameters; those of later ones stand."""
    pairs: dict[str, Pair] = {}
    for entity in entities:
        pairs.update((pair.key, pair) for pair in entity.parameters)
    return tuple(pairs.values())


def full_name(caller: str, function: str) -> FullName:
    """The way back: what `ResolvedAction.function` stood for."""
    if not function.startswith("/"):
        return FullName(caller, function)
    namespace, _, name = function[1:].partition("/")
    return FullName(namespace, name)


def _one(entities: Entities, kind: type[E], name: FullName) -> E:
    found = entities.any(name.namespace, name.name)
    if found is None:
        raise NotFoundError(f"{kind.__name__.lower()} {name}")
    if not isinstance(found, kind):
        raise WrongCollectionError(f"{kind.__name__.lower()} {name}")
    return found


def _shown(name: FullName) -> str:
    return f"{name.namespace}/{name.name}"
