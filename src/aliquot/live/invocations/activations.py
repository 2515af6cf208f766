"""Activation records in OpenWhisk's format. Values of our own are annotations.

The JSON is assembled by hand, because a record is made for every call. Most of it is the same for all calls of an
action, and the result is JSON already.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from aliquot.core.places import place_text
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.sequences.machine import CloseFrame
from aliquot.live.invocations.trace_context import TraceContext, trace_within
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.records import SEQUENCE, Action, Activation, Trigger

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
_RESULT = b'"result":'
_NO_LOGS = b"[]"
_ENDED_BY_OTHERS = ("cancelled", "interrupted")
_encode = msgspec.json.encode


class ActivationRecorder:
    """Makes the records of single actions, with a cached template for each action revision."""

    def __init__(self, policy: str) -> None:
        self._policy = _encode(policy).decode()
        self._templates: dict[str, str] = {}  # by action revision

    def forget(self, action: Action) -> None:
        self._templates.pop(action.revision, None)

    def record(self, call: Call, outcome: Outcome, *, start_ms: int, duration_ms: int) -> Activation:
        action, run, notes = call.action, call.run, call.notes
        template = self._templates.get(action.revision) or self._make_template(action)
        if call.resolved.binding is not None:
            notes = _binding(call.resolved) + notes
        if call.session:
            notes = note("session", call.session) + notes
        if call.trace is not None:
            notes = note("traceparent", call.trace.header) + notes
        end = start_ms + duration_ms
        summary = template % (
            "true" if outcome.timed_out else "false",
            run.wait_ms,
            f'{{"key":"initTime","value":{run.init_s * 1000:.0f}}},' if run.init_s is not None else "",
            outcome.run_s * 1000,
            place_text(run.place),
            run.start or "none",
            _encode(call.reason).decode(),
            notes,
            call.namespace.name,
            f'"cause":"{call.cause}",' if call.cause else "",
            call.id,
            start_ms,
            end,
            duration_ms,
            outcome.status,
        )
        logs = _encode(outcome.logs) if outcome.logs else _NO_LOGS
        response, large = response_of(outcome.status, outcome.result)
        return Activation(
            call.id,
            call.namespace.owner,
            action.name,
            start_ms,
            end,
            summary.encode(),
            response,
            logs,
            _kept(call, outcome),
            call.session or None,
            large,
        )

    def _make_template(self, action: Action) -> str:
        """Return the record with places for the values that differ between the calls of an action."""
        limits = _encode(action.limits).decode()
        path = _encode(f"{action.namespace}/{action.name}").decode()
        head = (
            f'{{"annotations":[{{"key":"path","value":{path}}},{{"key":"kind","value":"{action.exec.kind}"}},'
            f'{{"key":"limits","value":{limits}}},{{"key":"timeout","value":'
        )
        policy = f'{{"key":"policy","value":{self._policy}}}'
        name = _encode(action.name.rpartition("/")[2]).decode()
        tail = f',"name":{name},"version":"{action.version}","publish":false}}'
        head, policy, tail = (text.replace("%", "%%") for text in (head, policy, tail))
        template = self._templates[action.revision] = (
            f'{head}%s}},{{"key":"waitTime","value":%d}},%s{{"key":"deviceTime","value":%.3f}},'
            f'{{"key":"device","value":"%s"}},{{"key":"start","value":"%s"}},{policy},{{"key":"reason","value":%s}}%s],'
            f'"namespace":"%s",%s"activationId":"%s","start":%d,"end":%d,"duration":%d,"statusCode":%d{tail}'
        )
        return template


def composition_record(
    call: Call, close: CloseFrame, end_ms: int, notes: Mapping[str, object] | None = None
) -> Activation:
    """Return the record of a sequence or a conductor: the call itself, or a composition inside it.

    `notes` are further annotations.
    """
    frame, action = close.frame, close.frame.resolved.action
    topmost = frame.id == call.id
    annotations: dict[str, object] = {"topmost": topmost, "path": str(action.full_name)[1:], "kind": SEQUENCE}
    if not frame.resolved.is_sequence:
        annotations["conductor"] = True
    if not topmost:
        annotations["causedBy"] = SEQUENCE
    annotations["waitTime"] = frame.wait_ms
    if frame.resolved.binding is not None:
        annotations["binding"] = str(frame.resolved.binding)[1:]
    if call.session:
        annotations["session"] = call.session
    if frame.memory_mb is not None:
        annotations["limits"] = replace(action.limits, memory=frame.memory_mb)
    trace = call.trace if topmost else trace_within(call, frame.cause)
    if trace is not None:
        annotations["traceparent"] = trace.header
    annotations |= notes or {}
    summary = {
        "annotations": [{"key": key, "value": value} for key, value in annotations.items()],
        "namespace": call.namespace.name,
        **({"cause": frame.cause} if frame.cause else {}),
        "activationId": frame.id,
        "start": frame.start_ms,
        "end": end_ms,
        "duration": frame.duration_ms,  # the sum of its components' durations
        "statusCode": int(close.status),
        "name": action.full_name.leaf,
        "version": action.version,
        "publish": False,
    }
    response, large = response_of(close.status, close.result)
    return Activation(
        frame.id, call.namespace.owner, action.name, frame.start_ms, end_ms, _encode(summary),
        response, _encode(frame.components), session=call.session or None, large=large,
    )  # fmt: skip


def fired_record(
    activation_id: str,
    owner: str,
    trigger: Trigger,
    payload: bytes,
    logs: list[str],
    start_ms: int,
    trace: TraceContext | None = None,
) -> Activation:
    """Return the record of a fired trigger. It has no end, since each call that it caused has its own record."""
    summary = {
        "annotations": [] if trace is None else [{"key": "traceparent", "value": trace.header}],
        "namespace": trigger.namespace,
        "activationId": activation_id,
        "start": start_ms,
        "statusCode": int(Status.SUCCESS),
        "name": trigger.name,
        "version": trigger.version,
        "publish": False,
    }
    response, large = response_of(Status.SUCCESS, payload)
    return Activation(
        activation_id, owner, trigger.name, start_ms, start_ms, _encode(summary),
        response, _encode(logs), large=large,
    )  # fmt: skip


def response_of(status: Status, result: bytes | memoryview) -> tuple[bytes, memoryview | None]:
    """Return the response object. For a large result it ends before the result, which is returned uncopied."""
    if isinstance(result, memoryview):
        return b'%s"size":%d,"result":' % (_RESPONSE_HEAD[status][: -len(_RESULT)], len(result)), result
    return b'%s%s,"size":%d}' % (_RESPONSE_HEAD[status], result, len(result)), None


def _kept(call: Call, outcome: Outcome) -> bytes | memoryview | None:
    """Return the pickled result to store. A result in shared memory is stored only if the caller asks for it later."""
    if call.task is not None:  # its execution keeps the objects of its result
        return None
    if outcome.shared_buffer is None or outcome.pickled is None:
        return outcome.pickled
    return outcome.shared_buffer.inlined(outcome.pickled) if call.durable else None


def _binding(resolved: ResolvedAction) -> str:
    return note("binding", str(resolved.binding)[1:])


def note(key: str, value: object) -> str:
    """Return one annotation as JSON, in the form of `Call.notes`."""
    return f',{{"key":{_encode(key).decode()},"value":{_encode(value).decode()}}}'


def error(text: str) -> bytes:
    return _encode({"error": text})


def failure(status: Status, text: str, *, run_s: float = 0) -> Outcome:
    """Return the outcome of a call that failed with this text. Its first word may be one for lists of calls."""
    word = text.partition(":")[0]
    return Outcome(status, error(text), run_s, failure=word if word in _ENDED_BY_OTHERS else "")
