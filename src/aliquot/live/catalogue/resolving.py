"""Resolve a name to an action for one caller.

The action may be the caller's own, in one of its packages or bindings, or in a package that another namespace has
published. An action of another namespace runs in the caller's own flow and sandboxes. So it counts against the
caller's fair share, and tenants never share a sandbox.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from aliquot.live.catalogue.entities import Entities
from aliquot.live.store.errors import AccessDeniedError, NotFoundError, WrongCollectionError
from aliquot.live.store.records import SEQUENCE, WORKFLOW, Action, FullName, Package, Pair, is_truthy

E = TypeVar("E", Action, Package)


class ResolvedAction(Struct, frozen=True):
    """An action with the name and the parameters that one caller sees."""

    tenant: str  # the caller's namespace
    # The caller's name for it: `name` or `package/name` for its own, `/namespace/package/name` for others.
    function: str
    action: Action  # including inherited parameters
    binding: FullName | None = None  # the binding through which it was resolved, if any
    composite: bool = False  # a sequence or a conductor, whose calls run several actions
    workflow: bool = False  # its calls are executions
    group: str = ""  # group that shares sandboxes, or empty

    def __post_init__(self) -> None:
        composite = self.is_sequence or (self.has_code and is_truthy(self.action.annotation("conductor")))
        force_setattr(self, "composite", composite)  # computed once, because every call reads it
        force_setattr(self, "workflow", self.action.exec.kind == WORKFLOW)
        # An action of another namespace, or one behind a binding, is in no group.
        own = self.tenant == self.action.namespace and self.function == self.action.name
        group = self.action.annotation("group") if own and self.has_code else None
        force_setattr(self, "group", group if isinstance(group, str) else "")

    @staticmethod
    def own(action: Action) -> "ResolvedAction":
        """Return the action as its owner sees it, without inherited parameters."""
        return ResolvedAction(action.namespace, action.name, action)

    @property
    def is_sequence(self) -> bool:
        return self.action.exec.kind == SEQUENCE

    @property
    def has_code(self) -> bool:
        """True if a sandbox runs the action itself, and not only the actions that it names."""
        return self.action.exec.kind not in {SEQUENCE, WORKFLOW}


def resolve_action(entities: Entities, caller: str, name: FullName) -> ResolvedAction:
    """Return the action that a name means for the caller. Raises `NotFoundError` and `AccessDeniedError`."""
    function = name.name if name.namespace == caller else str(name)
    if not name.package:
        if name.namespace != caller:
            raise AccessDeniedError(_shown(name))
        return ResolvedAction(caller, function, _one(entities, Action, name))
    package = FullName(name.namespace, name.package)
    packages = readable_package(entities, caller, package, _shown(package))
    provider = packages[0]
    action = _one(entities, Action, FullName(provider.namespace, f"{provider.name}/{name.leaf}"))
    binding = FullName(name.namespace, name.package) if len(packages) > 1 else None
    return ResolvedAction(caller, function, inherit_parameters(action, packages), binding)


def readable_package(entities: Entities, caller: str, name: FullName, asked: str) -> list[Package]:
    """Return the package, preceded by the one it is bound to.

    Raises `NotFoundError` and `AccessDeniedError`, which name `asked`.
    """
    package = _readable(entities, caller, name, asked)
    if package.binding is None:
        return [package]
    provider = _readable(entities, caller, package.binding, asked)
    if provider.binding is not None:  # it became a binding after this package was bound to it
        raise NotFoundError(f"package {package.binding}")
    return [provider, package]


def _readable(entities: Entities, caller: str, name: FullName, asked: str) -> Package:
    if name.namespace == caller:
        return _one(entities, Package, name)
    package = entities.one(Package, name.namespace, name.name)
    if package is None or not package.publish or package.binding is not None:  # bindings are never shared
        raise AccessDeniedError(asked)
    return package


def inherit_parameters(action: Action, packages: list[Package]) -> Action:
    """Add the packages' parameters to an action. Later packages override earlier ones, and the action's own win."""
    if not any(package.parameters for package in packages):
        return action
    parameters = merge_parameters([*packages, action])
    # Inherited `init` parameters change the environment of the sandbox, so the action needs a revision of its own.
    environment = [pair for pair in parameters if pair.init]
    revision = action.revision
    if environment != [pair for pair in action.parameters if pair.init]:
        revision += hashlib.blake2b(msgspec.json.encode(environment), digest_size=8).hexdigest()
    return replace(action, parameters=parameters, revision=revision)


def merge_parameters(entities: Sequence[Package | Action]) -> tuple[Pair, ...]:
    """Return the parameters of all entities. Those of later entities win."""
    pairs: dict[str, Pair] = {}
    for entity in entities:
        pairs.update((pair.key, pair) for pair in entity.parameters)
    return tuple(pairs.values())


def full_name(caller: str, function: str) -> FullName:
    """Return the full name that `ResolvedAction.function` stands for."""
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
