"""Element types of buffers, arrays as nested lists and as bytes, and headers of the safetensors format.

A safetensors file is eight bytes with the length of the header, the header as JSON, and the arrays one after another.
It holds no code. That is why calls may carry such files, and never pickles.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from math import isnan, prod
from typing import NamedTuple

from aliquot.runtime.units import MIB

MAX_HEADER_BYTES = MIB
MAX_DIMENSIONS = 8
MAX_SIZE_BYTES = 2**46  # of one array; far above any device, and far below where offsets overflow

_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"


class Dtype(NamedTuple):
    """An element type: its size, its code in `struct`, and its name in safetensors files."""

    item_bytes: int
    code: str
    safetensors: str
    minimum: int | None = None  # None for types that are no integers
    maximum: int | None = None


DTYPES: dict[str, Dtype] = {
    "bool": Dtype(1, "?", "BOOL"),
    "i1": Dtype(1, "b", "I8", -(2**7), 2**7 - 1),
    "i2": Dtype(2, "h", "I16", -(2**15), 2**15 - 1),
    "i4": Dtype(4, "i", "I32", -(2**31), 2**31 - 1),
    "i8": Dtype(8, "q", "I64", -(2**63), 2**63 - 1),
    "u1": Dtype(1, "B", "U8", 0, 2**8 - 1),
    "u2": Dtype(2, "H", "U16", 0, 2**16 - 1),
    "u4": Dtype(4, "I", "U32", 0, 2**32 - 1),
    "u8": Dtype(8, "Q", "U64", 0, 2**64 - 1),
    "f2": Dtype(2, "e", "F16"),
    "f4": Dtype(4, "f", "F32"),
    "f8": Dtype(8, "d", "F64"),
    "bf16": Dtype(2, "H", "BF16"),
}
DTYPES_BY_SAFETENSORS = {dtype.safetensors: name for name, dtype in DTYPES.items()}

Nested = bool | int | float | Sequence["Nested"]


class TensorError(ValueError):
    """Values or bytes that are not the array that they should be."""


class TensorEntry(NamedTuple):
    """An array in a safetensors file. Offsets count from the first byte of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class TensorFile(NamedTuple):
    """The header of a safetensors file."""

    entries: dict[str, TensorEntry]
    metadata: dict[str, str]
    size_bytes: int


def scalar_problem(dtype: str, value: object) -> str | None:
    """Return why the value cannot be an element of this type, or None if it can."""
    kind = DTYPES[dtype]
    if dtype == "bool":
        return None if isinstance(value, bool) else f"{value!r} is not true or false"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{value!r} is not a number"
    if kind.minimum is None or kind.maximum is None:
        return None
    if not isinstance(value, int):
        return f"{value!r} is not a whole number"
    if not kind.minimum <= value <= kind.maximum:
        return f"{value} is not between {kind.minimum} and {kind.maximum}"
    return None


def pack_scalar(dtype: str, value: bool | float) -> bytes:
    """Return the bytes of one element, little-endian. Numbers too large for a float type become infinite."""
    if dtype == "bf16":
        (bits,) = struct.unpack("<I", pack_scalar("f4", value))
        rounded = bits if isnan(value) else bits + 0x7FFF + (bits >> 16 & 1)  # to the nearest, ties to even
        return struct.pack("<H", rounded >> 16)
    try:
        return struct.pack("<" + DTYPES[dtype].code, value)
    except OverflowError:
        return struct.pack("<" + DTYPES[dtype].code, float("inf") if value > 0 else float("-inf"))


def to_bytes(dtype: str, shape: Sequence[int], values: object) -> bytes:
    """Return the bytes of an array given as nested lists, row by row."""
    parts: list[bytes] = []
    _pack(dtype, tuple(shape), values, (), parts)
    return b"".join(parts)


def _pack(dtype: str, shape: tuple[int, ...], values: object, at: tuple[int, ...], parts: list[bytes]) -> None:
    if not shape:
        if problem := scalar_problem(dtype, values):
            raise TensorError(f"element {list(at)}: {problem}")
        parts.append(pack_scalar(dtype, values))  # type: ignore[arg-type]  # checked right above
        return
    if not isinstance(values, list | tuple) or len(values) != shape[0]:
        found = f"a list of {len(values)}" if isinstance(values, list | tuple) else repr(values)[:40]
        where = f"element {list(at)}" if at else "the value"
        raise TensorError(f"{where} is {found}; expected a list of {shape[0]}")
    for number, value in enumerate(values):
        _pack(dtype, shape[1:], value, (*at, number), parts)


def from_bytes(dtype: str, shape: Sequence[int], data: bytes) -> Nested:
    """Return the array as nested lists."""
    size = prod(shape)
    if len(data) != size * DTYPES[dtype].item_bytes:
        raise TensorError(f"{len(data)} bytes; expected {size * DTYPES[dtype].item_bytes}")
    if dtype == "bf16":
        raw = struct.unpack(f"<{size}H", data)
        flat: Sequence[Nested] = struct.unpack(f"<{size}f", b"".join(struct.pack("<I", bits << 16) for bits in raw))
    else:
        flat = struct.unpack(f"<{size}{DTYPES[dtype].code}", data)
    for length in reversed(shape[1:]):
        rows = len(flat) // length if length else prod(shape[: len(shape) - 1])
        flat = [list(flat[row * length : (row + 1) * length]) for row in range(rows)]
    return list(flat) if shape else flat[0]


def header_length(start: bytes) -> int:
    """Return the length of the header, from the first eight bytes of a file."""
    if len(start) < _LENGTH.size:
        raise TensorError(f"a safetensors file begins with 8 bytes of length; there are {len(start)}")
    (length,) = _LENGTH.unpack_from(start)
    if length > MAX_HEADER_BYTES:
        raise TensorError(f"the header has {length} bytes; at most {MAX_HEADER_BYTES} are read")
    return int(length)


def read_header(data: bytes) -> TensorFile:
    """Return the entries of a file, given at least its header. The arrays must follow each other without a gap."""
    length = header_length(data)
    first = _LENGTH.size + length
    if len(data) < first:
        raise TensorError(f"the header has {length} bytes, and the file ends after {len(data)}")
    try:
        header = json.loads(data[_LENGTH.size : first])
    except (ValueError, RecursionError) as error:
        raise TensorError("the header is not JSON") from error
    if not isinstance(header, dict):
        raise TensorError("the header is not a JSON object")
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise TensorError(f"{_METADATA} must be an object of texts")
    entries = {name: _entry(name, fields, first) for name, fields in header.items()}
    end = first
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != end:
            raise TensorError(f"array {name!r} begins at byte {entry.start - first}; expected {end - first}")
        end = entry.end
    return TensorFile(entries, metadata, end)


def _entry(name: str, fields: object, first: int) -> TensorEntry:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise TensorError(f"array {name!r}: expected dtype, shape and data_offsets")
    dtype = DTYPES_BY_SAFETENSORS.get(fields["dtype"]) if isinstance(fields["dtype"], str) else None
    if dtype is None:
        raise TensorError(f"array {name!r}: dtype is {fields['dtype']!r}; known are {', '.join(DTYPES_BY_SAFETENSORS)}")
    shape, offsets = fields["shape"], fields["data_offsets"]
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise TensorError(f"array {name!r}: shape must be a list of at most {MAX_DIMENSIONS} sizes")
    if not _are_sizes(offsets) or len(offsets) != 2:  # noqa: PLR2004  # where it begins and where it ends
        raise TensorError(f"array {name!r}: data_offsets must be two numbers of bytes")
    size_bytes = prod(shape) * DTYPES[dtype].item_bytes
    if offsets[1] - offsets[0] != size_bytes:
        raise TensorError(f"array {name!r}: {offsets[1] - offsets[0]} bytes; its dtype and shape take {size_bytes}")
    return TensorEntry(dtype, tuple(shape), first + offsets[0], first + offsets[1])


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= MAX_SIZE_BYTES for item in value
    )


def make_header(arrays: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes before the arrays of a file, for arrays that follow in this order."""
    header: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name, (dtype, shape) in arrays.items():
        start, end = end, end + prod(shape) * DTYPES[dtype].item_bytes
        header[name] = {"dtype": DTYPES[dtype].safetensors, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at a multiple of eight bytes
    return _LENGTH.pack(len(text)) + text
