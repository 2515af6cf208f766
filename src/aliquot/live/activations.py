"""The record of an invocation: OpenWhisk's, with what else happened as annotations.

The bytes are put together by hand: a record is made for every call, most of it is the same for all calls of an action,
and the result is JSON already.
"""

import msgspec

from aliquot.core.commands import Start
from aliquot.live.call import Call
from aliquot.live.node.base import Outcome, Status
from aliquot.live.records import Action, Activation

STATUS = {
    Status.SUCCESS: "success",
    Status.APPLICATION_ERROR: "application error",
    Status.DEVELOPER_ERROR: "action developer error",
    Status.INTERNAL_ERROR: "whisk internal error",
}
_RESPONSE_HEAD = {
    status: f'{{"status":"{text}","success":{"true" if status is Status.SUCCESS else "false"},"result":'.encode()
    for status, text in STATUS.items()
}
_NO_LOGS = b"[]"
_encode = msgspec.json.encode


class Recorder:
    """Makes records; keeps what is the same for all of one action."""

    def __init__(self, policy: str) -> None:
        self._policy = _encode(policy).decode()
        self._templates: dict[str, tuple[str, str]] = {}  # by action revision

    def forget(self, action: Action) -> None:
        self._templates.pop(action.revision, None)

    def record(self, call: Call, outcome: Outcome, *, start_ms: int, duration_ms: int) -> Activation:
        action = call.action
        head, tail = self._templates.get(action.revision) or self._make_template(action)
        init = f'{{"key":"initTime","value":{call.init_s * 1000:.0f}}},' if call.init_s is not None else ""
        session = note("session", call.session) if call.session else ""
        cause = f'"cause":"{call.cause}",' if call.cause else ""
        end = start_ms + duration_ms
        summary = (
            f'{head}{"true" if outcome.timed_out else "false"}}},{{"key":"waitTime","value":{call.wait_ms}}},{init}'
            f'{{"key":"deviceTime","value":{outcome.run_s * 1000:.3f}}},{{"key":"device","value":"{call.device}"}},'
            f'{{"key":"start","value":"{call.start or "none"}"}},{{"key":"policy","value":{self._policy}}},'
            f'{{"key":"reason","value":{_encode(call.reason).decode()}}}{session}{call.notes}],'
            f'"namespace":"{call.namespace.name}",{cause}"activationId":"{call.id}","start":{start_ms},"end":{end},"duration":{duration_ms},'
            f'"statusCode":{outcome.status:d}{tail}'
        )
        size = len(outcome.result)
        response = b'%s%s,"size":%d}' % (_RESPONSE_HEAD[outcome.status], outcome.result, size)
        logs = _encode(outcome.logs) if outcome.logs else _NO_LOGS
        return Activation(
            call.id,
            call.namespace.name,
            action.name,
            start_ms,
            end,
            summary.encode(),
            response,
            logs,
            outcome.pickled,
            call.session or None,
        )

    def _make_template(self, action: Action) -> tuple[str, str]:
        limits = _encode(action.limits).decode()
        path = _encode(f"{action.namespace}/{action.name}").decode()
        head = (
            f'{{"annotations":[{{"key":"path","value":{path}}},{{"key":"kind","value":"{action.exec.kind}"}},'
            f'{{"key":"limits","value":{limits}}},{{"key":"timeout","value":'
        )
        name = _encode(action.name.rpartition("/")[2]).decode()
        tail = f',"name":{name},"version":"{action.version}","publish":false}}'
        self._templates[action.revision] = (head, tail)
        return head, tail


def note(key: str, value: object) -> str:
    """One annotation, as `Call.notes` takes it."""
    return f',{{"key":{_encode(key).decode()},"value":{_encode(value).decode()}}}'


def error(text: str) -> bytes:
    return _encode({"error": text})


def failure(status: Status, text: str, *, run_s: float = 0) -> Outcome:
    return Outcome(status, error(text), run_s)


def was_cold(call: Call) -> bool:
    return call.start is Start.COLD
