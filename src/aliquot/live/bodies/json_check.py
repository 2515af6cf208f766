"""Whether a body is JSON, and which of some names are among its keys: the look itself, without a copy of the body."""

import codecs
import re

import msgspec
from msgspec import Raw, Struct

from aliquot.core.units import MIB

OBJECT_EXPECTED = "Object expected"
TOO_DEEP = "JSON is nested too deeply"
TOO_MANY = "JSON has too many keys"

_STRETCH = MIB
_BLANKS = re.compile(rb"[ \t\r\n]*")
_value = msgspec.json.Decoder(Raw)
_object = msgspec.json.Decoder(dict[str, Raw])


class CheckRequest(Struct, frozen=True):
    begin: int  # of the body in its mapping
    end: int
    is_object: bool = False  # it must be one, and its keys matter
    names: tuple[str, ...] = ()


class CheckResult(Struct, frozen=True):
    why: str | None  # what is wrong with it
    names: tuple[str, ...] = ()  # those that are keys
    inside: int = 0  # where an object's first key begins, blanks aside
    is_empty: bool = False


def check_json(body: memoryview, question: CheckRequest) -> CheckResult:
    try:
        _check_text(body)
        if not question.is_object:
            _value.decode(body)
            return CheckResult(None)
        given = _object.decode(body)
    except msgspec.ValidationError:
        return CheckResult(OBJECT_EXPECTED)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return CheckResult(str(error))
    except RecursionError:
        return CheckResult(TOO_DEEP)
    except MemoryError:  # millions of them; what they lead to is not looked at
        return CheckResult(TOO_MANY)
    blanks = _BLANKS.match(body)
    inside = (blanks.end() if blanks is not None else 0) + 1
    return CheckResult(None, tuple(name for name in question.names if name in given), inside, is_empty=not given)


def _check_text(body: memoryview) -> None:
    """What JSON's reader skips over is not looked at for UTF-8. Raises `UnicodeDecodeError`."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending = False
    for begin in range(0, len(body), _STRETCH):
        stretch = bytes(body[begin : begin + _STRETCH])
        if pending or not stretch.isascii():
            decoder.decode(stretch)
            pending = bool(decoder.getstate()[0])
    decoder.decode(b"", final=True)
