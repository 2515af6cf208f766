"""Parameters of a call: merge the payload with the parameters that the action defines.

Only the keys of a payload are read. Its values pass through as they came.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from aliquot.live.bodies.json_check import OBJECT_EXPECTED, TOO_DEEP
from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.bodies.large import put_before
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.errors import NOT_ALLOWED_PARAMETERS, PayloadError, malformed_payload
from aliquot.live.invocations.sequences.payloads import defaults_of
from aliquot.live.store.records import is_truthy

EMPTY_OBJECT = b"{}"
_MAX_NULL_LENGTH = 16  # `null` with blanks around it
_object = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


class ParameterMerger:
    """Merges payloads with the parameters of one action. It is built once per action and caller."""

    __slots__ = ("defaults", "final")

    def __init__(self, resolved: ResolvedAction) -> None:
        action = resolved.action
        # The parameters of a sequence are not those of its components.
        self.defaults = (None if resolved.is_sequence else defaults_of(action)) or None
        defined = [pair.key for pair in action.parameters if pair.value is not None]
        self.final = frozenset(defined if is_truthy(action.annotation("final")) else ())

    def merge(self, body: bytes) -> bytes:
        """Return the payload with the action's parameters beneath it. Raises `PayloadError`."""
        if is_absent(body):
            return EMPTY_OBJECT if self.defaults is None else _encode(self.defaults)
        given = read_object(body)
        self.check(given)
        return body if self.defaults is None else _encode({**self.defaults, **given})

    def check(self, given: Mapping[str, Raw]) -> None:
        """Raise `PayloadError` if the payload sets a parameter that it may not set."""
        if self.final and not self.final.isdisjoint(given):
            raise PayloadError(NOT_ALLOWED_PARAMETERS)

    def merge_event(self, event: bytes) -> bytes:
        """Return the payload for the event of a fired trigger. It was checked when the trigger fired."""
        return event if self.defaults is None else _encode({**self.defaults, **read_object(event)})

    def merged_bytes(self, body: bytes) -> int:
        """Return an upper bound of the size of the merged payload."""
        return len(body) + (0 if self.defaults is None else len(_encode(self.defaults)))

    async def merge_large(self, body: memoryview, json_checker: JsonChecker, tenant: str) -> memoryview:
        """Merge a large payload without copying it. Another process checks its JSON. Raises `PayloadError`."""
        defaults = self.defaults or {}
        names = tuple({**defaults, **dict.fromkeys(self.final)})
        checked = await json_checker.check(body, tenant, is_object=True, names=names)
        if checked.why is not None:
            raise malformed_payload(checked.why)
        if not self.final.isdisjoint(checked.names):
            raise PayloadError(NOT_ALLOWED_PARAMETERS)
        missing = {name: value for name, value in defaults.items() if name not in checked.names}
        if not missing:
            return body
        return put_before(_encode(missing)[:-1] + (b"" if checked.is_empty else b","), body, checked.inside)


def is_absent(body: bytes) -> bool:
    """Return whether the body is empty or `null`, which `wsk` sends for no parameters."""
    return not body or (len(body) < _MAX_NULL_LENGTH and body.strip() == b"null")


def read_object(body: bytes) -> dict[str, Raw]:
    """Read a JSON object, with its values undecoded. Raises `PayloadError`."""
    try:
        if not body.isascii():
            body.decode()  # the decoder skips values without checking their UTF-8
        return _object.decode(body)
    except msgspec.ValidationError as error:
        raise malformed_payload(OBJECT_EXPECTED) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed_payload(str(error)) from error
    except RecursionError as error:
        raise malformed_payload(TOO_DEEP) from error
