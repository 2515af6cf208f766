"""A trigger is fired: each active rule's action is invoked, and the trigger gets a record that says what came of it.

All of it is on disk before the caller hears of it, in one transaction.
"""

import time
from collections.abc import Mapping

import msgspec

from aliquot.live.activations import fired_record
from aliquot.live.call import Call
from aliquot.live.catalogue import Catalogue
from aliquot.live.gateway.ids import Ids
from aliquot.live.gateway.metrics import Metrics
from aliquot.live.gateway.refusal import Refusal, forbidden, not_found
from aliquot.live.gateway.target import EMPTY, Target, is_absent, read_object
from aliquot.live.gateway.throttle import Gate, Gates
from aliquot.live.node.base import Status
from aliquot.live.platform import Platform
from aliquot.live.records import Namespace, Rule, Trigger
from aliquot.live.resolving import Missing, NotEntitled

HEADERS = "__ow_headers"
INACTIVE = "Rule '{}' is inactive, action '{}' was not activated."
_encode = msgspec.json.encode


class Firing:
    def __init__(self, platform: Platform, catalogue: Catalogue, gates: Gates, metrics: Metrics) -> None:
        self._platform = platform
        self._catalogue = catalogue
        self._gates = gates
        self._metrics = metrics
        self._ids = Ids()

    async def fire(
        self,
        namespace: Namespace,
        trigger: Trigger,
        payload: bytes,
        transaction: str,
        headers: Mapping[str, str] | None = None,
    ) -> str | None:
        """The id of the trigger's record, durable as all that it sets off; None: it has no active rule.

        `headers` are those of the request that it came by, if it did. Raises a `Refusal` for what is no object or too
        many fires, and `Overloaded`.
        """
        gate = self._gates.gate(namespace)
        gate.check_fire()
        payload = EMPTY if is_absent(payload) else payload
        given = read_object(payload)
        # One that was tied to an earlier trigger of this name is not this one's.
        rules = [rule for rule in self._catalogue.entities.rules_of(trigger) if rule.tied == trigger.identity]
        if not any(rule.active for rule in rules):
            return None
        about = {} if headers is None else {HEADERS: headers}
        event = _encode({**{pair.key: pair.value for pair in trigger.parameters}, **about, **given})
        activation_id = self._ids()
        logs: list[str] = []
        calls: list[Call] = []
        for rule in rules:
            outcome = self._call(namespace, rule, event, gate)
            if isinstance(outcome, Call):
                outcome.cause, outcome.transaction = activation_id, transaction
                calls.append(outcome)
            logs.append(_told(rule, outcome))
        record = fired_record(activation_id, trigger, payload, logs, time.time_ns() // 1_000_000)
        try:
            await self._platform.accept_all(calls, record)
        except BaseException:
            gate.running -= len(calls)
            raise
        self._metrics.count_fire(namespace.name, trigger.name)
        return activation_id

    def _call(self, namespace: Namespace, rule: Rule, event: bytes, gate: Gate) -> Call | Refusal:
        """As if the caller had invoked the rule's action; or why that cannot be."""
        if not rule.active:
            return Refusal(400, INACTIVE.format(f"{rule.namespace}/{rule.name}", str(rule.action)[1:]))
        try:
            gate.check()
            reached = self._catalogue.reach_whole(namespace.name, rule.action)
            payload = Target(reached, self._metrics.tally(namespace.name, reached.function)).payload(event)
        except Refusal as refusal:
            return refusal
        except Missing:
            return not_found()
        except NotEntitled as error:
            return forbidden(str(error))

        gate.running += 1

        def done(call: Call) -> None:
            call.done = None
            gate.running -= 1
            self._metrics.count(call)

        return Call(self._ids(), namespace, reached, payload, durable=True, done=done)


def _told(rule: Rule, outcome: Call | Refusal) -> str:
    """One line of the record's logs."""
    refused = isinstance(outcome, Refusal)
    status = Status.APPLICATION_ERROR if refused else Status.SUCCESS
    line: dict[str, object] = {
        "rule": f"{rule.namespace}/{rule.name}",
        "action": str(rule.action)[1:],
        "statusCode": int(status),
        "success": not refused,
    }
    if isinstance(outcome, Refusal):
        line["error"] = outcome.text
    else:
        line["activationId"] = outcome.id
    return _encode(line).decode()
