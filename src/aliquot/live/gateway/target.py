"""What an invocation's path leads to, prepared once: the action and how a payload becomes its parameters."""

import msgspec
from msgspec import Raw

from aliquot.live.compose.payloads import defaults_of
from aliquot.live.gateway.metrics import Tally
from aliquot.live.gateway.refusal import NOT_ALLOWED_PARAMETERS, Refusal, malformed
from aliquot.live.judging.judge import Judge
from aliquot.live.judging.judgement import OBJECT_EXPECTED, TOO_DEEP
from aliquot.live.large import put_before
from aliquot.live.records import is_truthy
from aliquot.live.resolving import Reached

EMPTY = b"{}"
_LONGEST_NULL = 16  # with the blanks around it
_object = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


class Target:
    __slots__ = ("defaults", "final", "reached", "sdk", "tally")

    def __init__(self, reached: Reached, tally: Tally) -> None:
        action = reached.action
        self.reached = reached
        self.tally = tally
        self.sdk = action.annotation("sdk") is True and not reached.composite
        # A sequence's parameters are not its components'.
        self.defaults = (None if reached.is_sequence else defaults_of(action)) or None
        defined = [pair.key for pair in action.parameters if pair.value is not None]
        self.final = frozenset(defined if is_truthy(action.annotation("final")) else ())

    def payload(self, body: bytes) -> bytes | memoryview:
        """The body with the action's parameters beneath it. Only the keys are looked at; values stay as they came."""
        if is_absent(body):
            return EMPTY if self.defaults is None else _encode(self.defaults)
        given = read_object(body)
        if self.final and not self.final.isdisjoint(given):
            raise Refusal(400, NOT_ALLOWED_PARAMETERS)
        if self.defaults is None:
            return body
        return _encode({**self.defaults, **given})

    async def large_payload(self, body: memoryview, judge: Judge) -> memoryview:
        """The same for one that is not to be copied, nor looked over here."""
        defaults = self.defaults or {}
        names = tuple({**defaults, **dict.fromkeys(self.final)})
        verdict = await judge.verdict(body, is_object=True, names=names)
        if verdict.why is not None:
            raise malformed(verdict.why)
        if not self.final.isdisjoint(verdict.names):
            raise Refusal(400, NOT_ALLOWED_PARAMETERS)
        missing = {name: value for name, value in defaults.items() if name not in verdict.names}
        if not missing:
            return body
        return put_before(_encode(missing)[:-1] + (b"" if verdict.is_empty else b","), body, verdict.inside)


def is_absent(body: bytes) -> bool:
    """Whether nothing was said; `wsk` says null then."""
    return not body or (len(body) < _LONGEST_NULL and body.strip() == b"null")


def read_object(body: bytes) -> dict[str, Raw]:
    """A JSON object, or a 400."""
    try:
        if not body.isascii():
            body.decode()  # what is skipped over is not looked at for UTF-8
        return _object.decode(body)
    except msgspec.ValidationError as error:
        raise malformed(OBJECT_EXPECTED) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(str(error)) from error
    except RecursionError as error:
        raise malformed(TOO_DEEP) from error
