"""Fire triggers: invoke the action of each active rule, and record the outcome of every rule.

The invocations and the trigger's record are written in one transaction before the caller gets an answer.
"""

from collections.abc import Mapping

import msgspec

from aliquot.clock import now_ms
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.invocations.activations import fired_record
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.errors import CallRefusedError
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.objective import CallObjective, declared_limits
from aliquot.live.invocations.parameters import EMPTY_OBJECT, ParameterMerger, is_absent, read_object
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.rate_limits import RateLimiter, RateLimiters
from aliquot.live.invocations.trace_context import TraceContext, begin_trace, span_of
from aliquot.live.node.base import Status
from aliquot.live.store.base import SMALL_PAYLOAD_BYTES
from aliquot.live.store.errors import ACCESS_DENIED, NOT_FOUND, AccessDeniedError, NotFoundError
from aliquot.live.store.ids import Ids
from aliquot.live.store.records import Namespace, Rule, Trigger
from aliquot.live.triggers.alarms.alarm import Alarm

HEADERS = "__ow_headers"
INACTIVE = "Rule '{}' is inactive, action '{}' was not activated."
_encode = msgspec.json.encode


class FiredEvent:
    """The payload of a fired trigger, and its fields."""

    __slots__ = ("body", "fields")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.fields = read_object(body)


class TriggerDispatcher:
    """Turns the firing of a trigger into calls of its rules' actions."""

    def __init__(self, platform: Platform, catalogue: Catalogue, rate_limiters: RateLimiters, metrics: Metrics) -> None:
        self._platform = platform
        self._catalogue = catalogue
        self._rate_limiters = rate_limiters
        self._metrics = metrics
        self._ids = Ids()

    async def fire(
        self,
        namespace: Namespace,
        trigger: Trigger,
        payload: bytes,
        transaction: str,
        headers: Mapping[str, str] | None = None,
        trace: TraceContext | None = None,
    ) -> str | None:
        """Fire a trigger and return the id of its record, or None if it has no active rule. Durable.

        `headers` are those of the HTTP request, if there was one. `trace` is the one that the request belongs to.
        Raises `PayloadError`, `RateLimitError` and `OverloadedError`.
        """
        limiter = self._rate_limiters.limiter(namespace)
        limiter.check_fire()
        payload = EMPTY_OBJECT if is_absent(payload) else payload
        given = read_object(payload)
        # Rules of an earlier trigger of the same name do not count.
        rules = [rule for rule in self._catalogue.entities.rules_of(trigger) if rule.tied == trigger.identity]
        if not any(rule.active for rule in rules):
            return None
        about = {} if headers is None else {HEADERS: headers}
        event = FiredEvent(_encode({**{pair.key: pair.value for pair in trigger.parameters}, **about, **given}))
        activation_id = self._ids()
        inner = begin_trace(activation_id) if trace is None else trace._replace(parent=span_of(activation_id))
        logs: list[str] = []
        calls: list[Call] = []
        for rule in rules:
            outcome = self._call(namespace, rule, event, activation_id, limiter)
            if isinstance(outcome, Call):
                outcome.transaction, outcome.trace = transaction, inner
                calls.append(outcome)
            logs.append(_log_line(rule, outcome))
        record = fired_record(activation_id, namespace.owner, trigger, payload, logs, now_ms(), trace)
        try:
            await self._platform.accept_all(calls, record, event.body)
        except BaseException:
            for _ in calls:
                limiter.end()
            raise
        self._metrics.count_fire(namespace.name, trigger.name)
        return activation_id

    def expect(self, alarm: Alarm, trigger: Trigger, in_s: float) -> None:
        """Tell the platform which functions an alarm will call in so many seconds."""
        ahead = self._platform.ahead
        for rule in self._catalogue.entities.rules_of(trigger) if ahead.is_on else ():
            if not rule.active or rule.tied != trigger.identity:
                continue
            try:
                resolved = self._catalogue.resolve(alarm.namespace, rule.action)
            except (NotFoundError, AccessDeniedError):
                continue
            if not resolved.composite and not resolved.workflow:
                ahead.expect(resolved.tenant, resolved.function, in_s, f"alarm {alarm.trigger}")

    def _call(
        self, namespace: Namespace, rule: Rule, event: "FiredEvent", cause: str, limiter: RateLimiter
    ) -> Call | str:
        """Make the call of a rule's action, as if the rule's owner had invoked it. Return a text if it cannot run.

        A large payload is not made now. The call refers to the event, which is stored once for all of them.
        """
        if not rule.active:
            return INACTIVE.format(f"{rule.namespace}/{rule.name}", str(rule.action)[1:])
        try:
            limiter.check()
            resolved = self._catalogue.resolve_with_components(namespace.name, rule.action)
            merger = ParameterMerger(resolved)
            merger.check(event.fields)
        except CallRefusedError as error:
            return str(error)
        except NotFoundError:
            return NOT_FOUND
        except AccessDeniedError as error:
            return ACCESS_DENIED.format(error)

        def done(call: Call) -> None:
            call.done = None
            limiter.end()
            self._metrics.count(call)

        refers = merger.merged_bytes(event.body) > SMALL_PAYLOAD_BYTES
        # Compositions and workflows begin at once, and need their payload.
        on_disk = refers and not resolved.composite and not resolved.workflow
        payload = b"" if on_disk else merger.merge_event(event.body)
        call = Call(self._ids(), namespace, resolved, payload, durable=True, cause=cause, done=done)
        call.event, call.on_disk = cause if refers else "", on_disk
        limits = None if resolved.composite or resolved.workflow else declared_limits(resolved)
        if limits is not None:  # a refusal becomes the call's record
            call.objective = CallObjective(limits, declared=True)
        try:
            limiter.begin(call)
        except CallRefusedError as error:
            return str(error)
        return call


def _log_line(rule: Rule, outcome: Call | str) -> str:
    """Return a rule's line in the logs of the trigger's record."""
    refused = isinstance(outcome, str)
    status = Status.APPLICATION_ERROR if refused else Status.SUCCESS
    line: dict[str, object] = {
        "rule": f"{rule.namespace}/{rule.name}",
        "action": str(rule.action)[1:],
        "statusCode": int(status),
        "success": not refused,
    }
    if isinstance(outcome, str):
        line["error"] = outcome
    else:
        line["activationId"] = outcome.id
    return _encode(line).decode()
