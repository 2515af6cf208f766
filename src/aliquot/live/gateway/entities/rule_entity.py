"""A rule from what was put, and as it is shown: its status is the trigger's to say."""

from aliquot.live.catalogue.entities import Entities
from aliquot.live.catalogue.resolving import resolve_action
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import common, shown_common
from aliquot.live.gateway.http.names import read_full_name
from aliquot.live.gateway.http.refusal import Refusal, forbidden
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.records import FullName, Rule, Trigger


def build(name: FullName, put: wire.RulePut, old: Rule | None, entities: Entities, settings: GatewaySettings) -> Rule:
    """Return the rule after the PUT. A new rule is active, an updated one keeps its status.

    Raises a `Refusal`, or `AccessDeniedError`.
    """
    caller = name.namespace
    trigger = _named(put.trigger, caller) or (old.trigger if old else None)
    action = _named(put.action, caller) or (old.action if old else None)
    if trigger is None or action is None:
        raise Refusal(400, "rule requires a valid trigger and a valid action")
    if trigger.namespace != caller:
        raise forbidden(f"{trigger.namespace}/{trigger.name}")
    found = entities.one(Trigger, trigger.namespace, trigger.name)
    if found is None:
        raise Refusal(400, f"trigger {trigger} does not exist")
    try:
        resolve_action(entities, caller, action)
    except NotFoundError as error:
        raise Refusal(400, f"action {action} does not exist") from error
    return Rule(
        namespace=caller,
        name=name.name,
        trigger=trigger,
        action=action,
        active=old is None or entities.is_active(old),
        tied=found.identity,
        **common(put, old, settings),
    )


def _named(given: str | wire.PathPut | None, caller: str) -> FullName | None:
    if given is None:
        return None
    return read_full_name(given if isinstance(given, str) else f"{given.path}/{given.name}", caller)


# --- as shown ------------------------------------------------------------------------------------------------


def shown(rule: Rule, status: wire.RuleStatus) -> wire.RuleView:
    return wire.RuleView(
        **shown_common(rule), trigger=path_of(rule.trigger), action=path_of(rule.action), status=status
    )


def shown_in_list(rule: Rule) -> wire.RuleItem:
    return wire.RuleItem(**shown_common(rule), trigger=path_of(rule.trigger), action=path_of(rule.action))


def path_of(name: FullName) -> wire.PathView:
    return wire.PathView(name.path, name.leaf)


def status_of(entities: Entities, rule: Rule) -> wire.RuleStatus:
    return "active" if entities.is_active(rule) else "inactive"
