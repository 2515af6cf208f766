"""Read the wire format of Protocol Buffers: the fields of one message, without a description of it."""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_FIELDS = 1_000_000  # read in about a second
MAX_TEXT_BYTES = 1024
MAX_NUMBERS = 64  # of one packed field
_MAX_VARINT_BYTES = 10

Value = int | memoryview


class WireError(ValueError):
    """Bytes that are no message."""


class MessageReader:
    """Reads the messages of one file, and at most so many fields in all of them: the file is of a user."""

    def __init__(self, max_fields: int = MAX_FIELDS) -> None:
        self._max_fields = self._left = max_fields

    def fields(self, data: memoryview) -> Iterator[tuple[int, Value]]:
        """Yield the number and the value of each field. Texts, messages and packed numbers are bytes."""
        at = 0
        while at < len(data):
            self._left -= 1
            if self._left < 0:
                raise WireError(f"it has more than {self._max_fields} fields")
            key, at = _varint(data, at)
            kind = key & 7
            if kind == VARINT:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            if kind == BYTES:
                size, at = _varint(data, at)
            elif kind in (FIXED64, FIXED32):
                size = 8 if kind == FIXED64 else 4
            else:
                raise WireError(f"a field has the unknown wire type {kind}")
            if at + size > len(data):
                raise WireError(f"a field of {size} bytes goes beyond the end")
            yield key >> 3, data[at : at + size]
            at += size


def message(value: Value) -> memoryview:
    """Return the bytes of a field that is a message."""
    if isinstance(value, int):
        raise WireError("a number stands where a message is expected")
    return value


def text(value: Value) -> str:
    if len(message(value)) > MAX_TEXT_BYTES:
        raise WireError(f"a name has more than {MAX_TEXT_BYTES} bytes")
    try:
        return str(message(value), "utf-8")
    except UnicodeDecodeError as error:
        raise WireError("a name is not UTF-8") from error


def number(value: Value) -> int:
    """Return a field that is a number of 64 bits with a sign."""
    if not isinstance(value, int):
        raise WireError("bytes stand where a number is expected")
    return value - (1 << 64) if value >> 63 else value


def numbers(value: Value) -> list[int]:
    """Return the numbers of a repeated field, which are packed or come one by one."""
    if isinstance(value, int):
        return [number(value)]
    found: list[int] = []
    at = 0
    while at < len(value):
        if len(found) == MAX_NUMBERS:
            raise WireError(f"a list has more than {MAX_NUMBERS} numbers")
        one, at = _varint(value, at)
        found.append(number(one))
    return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if at >= len(data):
            raise WireError("a number goes beyond the end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that more bytes follow
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise WireError("a number has more than 10 bytes")
