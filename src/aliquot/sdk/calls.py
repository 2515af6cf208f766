"""Operations on functions: call, spawn, wait, cancel. They do no I/O: a driver carries them out."""

import time
from collections.abc import Mapping
from typing import Any

from aliquot.sdk import answers
from aliquot.sdk.errors import RemoteError, UsageError
from aliquot.sdk.portable import dump, load
from aliquot.sdk.sandbox import sandbox
from aliquot.sdk.tracebacks import deliver, name_local_file
from aliquot.sdk.units import read_ms
from aliquot.sdk.wire import PICKLE, DeferredPickle, HttpReply, HttpRequest, Operation, ask, pause

NAMESPACE = "/api/v1/namespaces/_"
# A refusal because of too many calls means that nothing was started, so it is retried.
_BUSY_TIMEOUT_S = 10.0
MAX_COST = 1e12
LATE = ("run", "drop")
PREFER = ("cost", "latency", "balanced")
_FIRST_POLL_S, _LAST_POLL_S = 0.005, 0.5


def entity_path(collection: str, name: str) -> str:
    """Return the path for `name`, `package/name` or `/namespace/[package/]name`."""
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


def call(
    app: str,
    action: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    session: str = "",
    limits: Mapping[str, str] | None = None,
) -> Operation[Any]:
    """Run a function and return its result, or raise what it raised. `limits` are headers (`limit_headers`)."""
    reply = yield from _post(app, action, args, kwargs, {"blocking": "true", **_session_query(session)}, limits)
    if reply.status == 202:  # noqa: PLR2004 - the platform stops waiting for long calls
        return (yield from wait(app, action, reply.json()["activationId"], None))
    return (yield from _outcome(app, action, reply, reply.headers.get(answers.ACTIVATION, "")))


def spawn(
    app: str,
    action: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    session: str = "",
    limits: Mapping[str, str] | None = None,
) -> Operation[str]:
    """Start a call and return its activation id. From then on a crash of the platform does not lose it."""
    reply = answers.check((yield from _post(app, action, args, kwargs, _session_query(session), limits)), action)
    return str(reply.json()["activationId"])


def wait(app: str, action: str, activation_id: str, timeout_s: float | None) -> Operation[Any]:
    """Wait until the activation has ended, and return its result or raise what it raised."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    delay = _FIRST_POLL_S
    while True:
        reply = yield from ask(
            HttpRequest("GET", f"{activation_path(activation_id)}/result", headers={"Accept": PICKLE}, timeout_s=30)
        )
        if reply.status != 404:  # noqa: PLR2004 - not found: it has not ended
            return (yield from _outcome(app, action, reply, activation_id))
        left = delay if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{action}: activation {activation_id} has not ended within {timeout_s:g} s")
        yield from pause(min(delay, left))
        delay = min(_LAST_POLL_S, delay * 1.5)


def cancel(action: str, activation_id: str) -> Operation[None]:
    """End a call that has not ended yet."""
    reply = yield from ask(HttpRequest("DELETE", activation_path(activation_id)))
    answers.check(reply, f"{action}: cancelling {activation_id}")


def limit_headers(deadline: object, cost: object, late: str | None = None, prefer: str | None = None) -> dict[str, str]:
    """Return the headers for the limits of a call and what follows from them, as far as they are given."""
    headers = {}
    for name, value, words in (("late", late, LATE), ("prefer", prefer, PREFER)):
        if value is not None:
            if value not in words:
                raise UsageError(f"{name}: {value!r} does not fit; it takes {' or '.join(map(repr, words))}")
            headers[f"x-aliquot-{name}"] = value
    if deadline is not None:
        headers["x-aliquot-deadline-ms"] = "none" if deadline == "none" else str(read_ms(deadline, "deadline"))
    if cost is not None:
        headers["x-aliquot-cost-limit"] = "none" if cost == "none" else repr(_read_cost(cost))
    return headers


def _read_cost(cost: object) -> float:
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost <= MAX_COST:
        raise UsageError(f"cost: {cost!r} does not fit; it takes a number from 0 to {MAX_COST:g}, or 'none'")
    return float(cost)


def _session_query(session: str) -> dict[str, str | int]:
    return {"session": session} if session else {}


def _post(
    app: str,
    action: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    query: dict[str, str | int],
    limits: Mapping[str, str] | None,
) -> Operation[HttpReply]:
    body = dump((args, kwargs), app) if sandbox.channel is None else DeferredPickle((args, kwargs), app)
    headers = {"Content-Type": PICKLE, "Accept": PICKLE, **(limits or {})}
    return (yield from post(HttpRequest("POST", action_path(action), query, headers, body)))


def post(request: HttpRequest) -> Operation[HttpReply]:
    """Send a call, and send it again for a while if the platform is busy."""
    give_up = time.monotonic() + _BUSY_TIMEOUT_S
    delay = _FIRST_POLL_S
    while True:
        reply = yield from ask(request)
        if reply.status not in {429, 503} or time.monotonic() + delay > give_up or b'"refused":' in reply.body:
            return reply  # a call that cannot meet its limits is not tried again: they would be others then
        yield from pause(delay)
        delay *= 2


def _outcome(app: str, action: str, reply: HttpReply, activation_id: str) -> Operation[Any]:
    """Return the value of a final reply, or raise the exception that it has."""
    if not answers.is_final(reply):
        answers.check(reply, action)
    if not answers.is_pickled(reply):
        raise answers.failure_of(reply, action, activation_id)
    raised = reply.headers.get(answers.STATUS, "0") == "1"
    try:
        value = load(reply.body, app, reply.memory)
    except Exception as error:
        text = (yield from _recorded_text(activation_id)) if raised else ""
        what = "what it raised" if raised else "its result"
        raise RemoteError(
            f"{action}: {what} cannot be loaded here: {type(error).__name__}: {error}{text}",
            activation_id=activation_id,
        ) from error
    if not raised:
        return value
    # An exception that ends a process or a generator would do so here, too.
    if not isinstance(value, Exception) or isinstance(value, StopIteration | StopAsyncIteration):
        raise RemoteError(f"{action}: it raised {value!r}", activation_id=activation_id)
    if activation_id:
        value.add_note(f"raised by {action} on the platform, activation {activation_id}")
    name_local_file(value, app)
    deliver(value)


def _recorded_text(activation_id: str) -> Operation[str]:
    """Return the text that the record has of an exception whose type is not here."""
    reply = yield from ask(HttpRequest("GET", f"{activation_path(activation_id)}/result"))
    result = (reply.json() or {}).get("result")
    text = result.get("error") if isinstance(result, dict) else None
    return f"; it said: {text}" if text else ""
