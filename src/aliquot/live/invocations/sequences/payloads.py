"""What goes from one component to the next, as bytes: values are looked into only where keys must be merged."""

import msgspec
from msgspec import Raw, Struct

from aliquot.core.units import MIB
from aliquot.live.catalogue.names import MAX_NAME_LENGTH, is_name
from aliquot.live.store.records import Action, FullName

EMPTY = b"{}"
ABSENT = Raw(b"")
_MOST_SEGMENTS = 3
LARGE = MIB  # beyond that keys are not looked at
_LONGEST_NAME_BYTES = 8192  # of JSON: three names, every character of them escaped
_SHOWN_BYTES = 1000
_object = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


class Answer(Struct, frozen=True):
    """What a conductor says: what runs next, on what, and what it wants to be told afterwards."""

    action: Raw = ABSENT
    params: Raw = ABSENT
    state: Raw = ABSENT


_answer = msgspec.json.Decoder(Answer)


def error(text: str) -> bytes:
    return _encode({"error": text})


def defaults_of(action: Action) -> dict[str, Raw]:
    return {pair.key: Raw(_encode(pair.value)) for pair in action.parameters if not pair.init}


def with_defaults(action: Action, payload: bytes) -> bytes:
    """The payload above the action's own parameters; an array goes as it is."""
    defaults = defaults_of(action)
    if not defaults:
        return payload
    if len(payload) > LARGE:
        return _joined(_encode(defaults), payload) if payload.lstrip()[:1] == b"{" else payload
    try:
        return _encode({**defaults, **_object.decode(payload)})
    except msgspec.ValidationError:
        return payload


def with_state(payload: bytes, state: bytes) -> bytes:
    """What a conductor is told: a component's result, and over it what the conductor asked to remember."""
    if len(payload) + len(state) > LARGE:
        return _joined(payload, state)
    return _encode({**_object.decode(payload), **_object.decode(state)})


def _joined(below: bytes, above: bytes) -> bytes:
    """Two objects as one. A key that both have is there twice, and the last counts, for all who read JSON here.

    What is large is not taken apart: millions of keys would hold up the event loop, and fill the server's memory.
    """
    below, above = below.strip(), above.strip()
    between = b"," if below[1:-1].strip() and above[1:-1].strip() else b""
    return b"".join((below[:-1], between, above[1:]))


def boxed(value: bytes | Raw, key: str = "value") -> bytes:
    """An object as it is, anything else as an object's only value."""
    text = bytes(value)
    return text if text.lstrip()[:1] == b"{" else b'{"%b":%b}' % (key.encode(), text)


def answer_of(result: bytes) -> Answer:
    """An array asks for nothing."""
    try:
        return _answer.decode(result)
    except msgspec.ValidationError:
        return Answer()


def shown(value: Raw) -> str:
    if len(bytes(value)) > _SHOWN_BYTES:
        return bytes(value)[:_SHOWN_BYTES].decode(errors="replace") + "…"
    return _encode(msgspec.json.decode(value)).decode()


def component_name(value: Raw, caller: str) -> FullName | None:
    """The action that a JSON value names: `/ns/[pkg/]a`, `ns/pkg/a`, or the caller's own `[pkg/]a`; None: none."""
    text = msgspec.json.decode(value) if len(bytes(value)) <= _LONGEST_NAME_BYTES else None
    if not isinstance(text, str):
        return None
    segments = [segment for segment in text.strip().split("/") if segment]
    if not all(len(segment) <= MAX_NAME_LENGTH and is_name(segment) for segment in segments):
        return None
    if text.startswith("/") or len(segments) == _MOST_SEGMENTS:
        if not 1 < len(segments) <= _MOST_SEGMENTS:
            return None
        namespace, *rest = segments
    else:
        namespace, rest = caller, segments
        if not 0 < len(rest) < _MOST_SEGMENTS:
            return None
    return FullName(caller if namespace == "_" else namespace, "/".join(rest))
