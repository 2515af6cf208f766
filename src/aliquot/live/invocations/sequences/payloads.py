"""Payloads between components, as bytes. They are decoded only where keys must be merged."""

from functools import lru_cache

import msgspec
from msgspec import Raw, Struct

from aliquot.core.units import MIB
from aliquot.live.catalogue.names import MAX_NAME_LENGTH, is_name
from aliquot.live.store.records import Action, FullName

EMPTY = b"{}"
ABSENT = Raw(b"")
_MAX_SEGMENTS = 3
LARGE_PAYLOAD_BYTES = MIB  # keys of a larger payload are not decoded
_MAX_NAME_BYTES = 8192  # of JSON: three names, every character of them escaped
_SHOWN_BYTES = 1000
_object = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


class ConductorAnswer(Struct, frozen=True):
    """The answer of a conductor: the next action, its parameters, and state that the conductor gets back."""

    action: Raw = ABSENT
    params: Raw = ABSENT
    state: Raw = ABSENT


_answer = msgspec.json.Decoder(ConductorAnswer)


def error(text: str) -> bytes:
    return _encode({"error": text})


def defaults_of(action: Action) -> dict[str, Raw]:
    return {pair.key: Raw(_encode(pair.value)) for pair in action.parameters if not pair.init}


def with_defaults(action: Action, payload: bytes) -> bytes:
    """Return the payload with the action's own parameters beneath it. An array is returned as it is."""
    defaults = defaults_of(action)
    if not defaults:
        return payload
    if len(payload) > LARGE_PAYLOAD_BYTES:
        return _joined(_encode(defaults), payload) if payload.lstrip()[:1] == b"{" else payload
    try:
        return _encode({**defaults, **_object.decode(payload)})
    except msgspec.ValidationError:
        return payload


def with_state(payload: bytes, state: bytes) -> bytes:
    """Return a component's result with the conductor's state over it."""
    if len(payload) + len(state) > LARGE_PAYLOAD_BYTES:
        return _joined(payload, state)
    return _encode({**_object.decode(payload), **_object.decode(state)})


def _joined(below: bytes, above: bytes) -> bytes:
    """Join two objects as text. A key that both have appears twice, and every JSON reader here takes the last one.

    Large payloads are not decoded, because millions of keys would block the event loop and fill the memory.
    """
    below, above = below.strip(), above.strip()
    between = b"," if below[1:-1].strip() and above[1:-1].strip() else b""
    return b"".join((below[:-1], between, above[1:]))


def boxed(value: bytes | Raw, key: str = "value") -> bytes:
    """Return an object as it is, and anything else as the only value of an object."""
    text = bytes(value)
    return text if text.lstrip()[:1] == b"{" else b'{"%b":%b}' % (key.encode(), text)


def answer_of(result: bytes) -> ConductorAnswer:
    """Read a conductor's answer. An array asks for nothing."""
    try:
        return _answer.decode(result)
    except msgspec.ValidationError:
        return ConductorAnswer()


def shown(value: Raw) -> str:
    if len(bytes(value)) > _SHOWN_BYTES:
        return bytes(value)[:_SHOWN_BYTES].decode(errors="replace") + "…"
    return _encode(msgspec.json.decode(value)).decode()


def component_name(value: Raw, caller: str) -> FullName | None:
    """Return the action that a JSON value names, or None.

    Accepted are `/ns/[pkg/]a`, `ns/pkg/a`, and `[pkg/]a` in the caller's namespace.
    """
    text = msgspec.json.decode(value) if len(bytes(value)) <= _MAX_NAME_BYTES else None
    return name_from_text(text, caller) if isinstance(text, str) else None


@lru_cache(maxsize=1024)  # each task of a workflow names its action
def name_from_text(text: str, caller: str) -> FullName | None:
    """Return the action that a text names, or None."""
    segments = [segment for segment in text.strip().split("/") if segment]
    if not all(len(segment) <= MAX_NAME_LENGTH and is_name(segment) for segment in segments):
        return None
    if text.startswith("/") or len(segments) == _MAX_SEGMENTS:
        if not 1 < len(segments) <= _MAX_SEGMENTS:
            return None
        namespace, *rest = segments
    else:
        namespace, rest = caller, segments
        if not 0 < len(rest) < _MAX_SEGMENTS:
            return None
    return FullName(caller if namespace == "_" else namespace, "/".join(rest))
