"""An index of all entities in memory: by namespace and name, and rules also by trigger."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from aliquot.live.store.records import Action, Entity, FullName, Package, Rule, Trigger

COLLECTIONS: dict[type[Entity], str] = {Action: "actions", Package: "packages", Trigger: "triggers", Rule: "rules"}

_NONE: Mapping[str, Entity] = MappingProxyType({})
E = TypeVar("E", Action, Package, Trigger, Rule)


class Entities:
    """Actions, packages, triggers and rules. A name is unique within its namespace."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, Entity]] = {}
        self._rules: dict[FullName, dict[str, Rule]] = {}  # by trigger

    def any(self, namespace: str, name: str) -> Entity | None:
        """Return the entity of this name, of whatever kind."""
        return self._by_name.get(namespace, _NONE).get(name)

    def one(self, kind: type[E], namespace: str, name: str) -> E | None:
        """Return the entity of this name if it has this kind."""
        found = self.any(namespace, name)
        return found if isinstance(found, kind) else None

    def all(self, kind: type[E], namespace: str) -> list[E]:
        return [entity for entity in self._by_name.get(namespace, _NONE).values() if isinstance(entity, kind)]

    def everything(self, namespace: str) -> list[Entity]:
        return list(self._by_name.get(namespace, _NONE).values())

    def contents(self, namespace: str, package: str) -> list[Action]:
        """Return the actions in a package."""
        prefix = f"{package}/"
        return [action for action in self.all(Action, namespace) if action.name.startswith(prefix)]

    def rules_of(self, trigger: Trigger) -> list[Rule]:
        """Return the rules that name the trigger, sorted by name. Not all need be active."""
        rules = self._rules.get(FullName(trigger.namespace, trigger.name), {})
        return [rules[name] for name in sorted(rules)]

    def count_rules(self, trigger: FullName) -> int:
        """Return the number of rules that name the trigger."""
        return len(self._rules.get(trigger, ()))

    def is_active(self, rule: Rule) -> bool:
        """Return True if the rule is active and its own trigger exists, not a later one of the same name."""
        trigger = self.one(Trigger, rule.trigger.namespace, rule.trigger.name)
        return rule.active and trigger is not None and trigger.identity == rule.tied

    def add(self, entity: Entity) -> None:
        """Add an entity, or replace the one of the same name."""
        self.remove(entity.namespace, entity.name)
        self._by_name.setdefault(entity.namespace, {})[entity.name] = entity
        if isinstance(entity, Rule):
            self._rules.setdefault(entity.trigger, {})[entity.name] = entity

    def remove(self, namespace: str, name: str) -> None:
        """Remove an entity, if it exists."""
        entity = self._by_name.get(namespace, {}).pop(name, None)
        if isinstance(entity, Rule):
            rules = self._rules[entity.trigger]
            del rules[name]
            if not rules:
                del self._rules[entity.trigger]

    def remove_namespace(self, namespace: str) -> None:
        """Remove all entities of a namespace."""
        for name in list(self._by_name.get(namespace, ())):
            self.remove(namespace, name)
        self._by_name.pop(namespace, None)
