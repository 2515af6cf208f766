"""The operations on functions: call, spawn, wait, cancel. No I/O here; drivers carry them out."""

import time
from typing import Any

from aliquot.sdk import answers
from aliquot.sdk.errors import RemoteError, UsageError
from aliquot.sdk.inside import host
from aliquot.sdk.portable import dump, load
from aliquot.sdk.wire import PICKLE, Apart, Operation, Reply, Request, ask, pause

NAMESPACE = "/api/v1/namespaces/_"
# A refusal for being too many at once means that nothing was begun: it is worth a few more tries.
_BUSY_PATIENCE_S = 10.0
_FIRST_POLL_S, _LAST_POLL_S = 0.005, 0.5


def entity_path(collection: str, name: str) -> str:
    """Of `name`, `package/name` or `/namespace/[package/]name`."""
    from urllib.parse import quote

    parts = name[1:].split("/") if name.startswith("/") else ["_", *name.split("/")]
    if len(parts) < 2 or any(part in {"", ".", ".."} for part in parts):  # noqa: PLR2004 - a namespace and a name
        raise UsageError(f"{name!r} is not a name; it takes name, package/name or /namespace/[package/]name")
    namespace, *names = (quote(part, safe="") for part in parts)
    return f"/api/v1/namespaces/{namespace}/{collection}/{'/'.join(names)}"


def action_path(name: str) -> str:
    return entity_path("actions", name)


def activation_path(activation_id: str) -> str:
    return entity_path("activations", activation_id)


def call(app: str, action: str, args: tuple[Any, ...], kwargs: dict[str, Any], session: str = "") -> Operation[Any]:
    """Run it and bring its result, or raise what it raised."""
    reply = yield from _post(app, action, args, kwargs, {"blocking": "true", **_in(session)})
    if reply.status == 202:  # noqa: PLR2004 - it takes longer than the platform lets a caller wait
        return (yield from wait(app, action, reply.json()["activationId"], None))
    return (yield from _outcome(app, action, reply, reply.headers.get(answers.ACTIVATION, "")))


def spawn(app: str, action: str, args: tuple[Any, ...], kwargs: dict[str, Any], session: str = "") -> Operation[str]:
    """Have it run; the answer is the activation's id, and a crash of the platform does not lose it any more."""
    reply = answers.check((yield from _post(app, action, args, kwargs, _in(session))), action)
    return str(reply.json()["activationId"])


def wait(app: str, action: str, activation_id: str, timeout_s: float | None) -> Operation[Any]:
    """Until the activation has ended; then as `call`."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    delay = _FIRST_POLL_S
    while True:
        reply = yield from ask(
            Request("GET", f"{activation_path(activation_id)}/result", headers={"Accept": PICKLE}, patience_s=30)
        )
        if reply.status != 404:  # noqa: PLR2004 - not found: it has not ended
            return (yield from _outcome(app, action, reply, activation_id))
        left = delay if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{action}: activation {activation_id} has not ended within {timeout_s:g} s")
        yield from pause(min(delay, left))
        delay = min(_LAST_POLL_S, delay * 1.5)


def cancel(action: str, activation_id: str) -> Operation[None]:
    """End it if it has not ended."""
    reply = yield from ask(Request("DELETE", activation_path(activation_id)))
    answers.check(reply, f"{action}: cancelling {activation_id}")


def _in(session: str) -> dict[str, str | int]:
    return {"session": session} if session else {}


def _post(
    app: str, action: str, args: tuple[Any, ...], kwargs: dict[str, Any], query: dict[str, str | int]
) -> Operation[Reply]:
    body = dump((args, kwargs), app) if host.side is None else Apart((args, kwargs), app)
    headers = {"Content-Type": PICKLE, "Accept": PICKLE}
    request = Request("POST", action_path(action), query, headers, body)
    give_up = time.monotonic() + _BUSY_PATIENCE_S
    delay = _FIRST_POLL_S
    while True:
        reply = yield from ask(request)
        if reply.status not in {429, 503} or time.monotonic() + delay > give_up:
            return reply
        yield from pause(delay)
        delay *= 2


def _outcome(app: str, action: str, reply: Reply, activation_id: str) -> Operation[Any]:
    """The value of a final reply, or the exception that it is."""
    if not answers.is_final(reply):
        answers.check(reply, action)
    if not answers.is_pickled(reply):
        raise answers.failure_of(reply, action, activation_id)
    raised = reply.headers.get(answers.STATUS, "0") == "1"
    try:
        value = load(reply.body, app, reply.memory)
    except Exception as error:
        text = (yield from _told(activation_id)) if raised else ""
        what = "what it raised" if raised else "its result"
        raise RemoteError(
            f"{action}: {what} cannot be brought here: {type(error).__name__}: {error}{text}",
            activation_id=activation_id,
        ) from error
    if not raised:
        return value
    # One that ends a process, or a generator, would do so here.
    if not isinstance(value, Exception) or isinstance(value, StopIteration | StopAsyncIteration):
        raise RemoteError(f"{action}: it raised {value!r}", activation_id=activation_id)
    if activation_id:
        value.add_note(f"raised by {action} on the platform, activation {activation_id}")
    raise value


def _told(activation_id: str) -> Operation[str]:
    """What the record says of an exception whose type is not here."""
    reply = yield from ask(Request("GET", f"{activation_path(activation_id)}/result"))
    result = (reply.json() or {}).get("result")
    text = result.get("error") if isinstance(result, dict) else None
    return f"; it said: {text}" if text else ""
