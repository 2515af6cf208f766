"""The records of a usage file, which all have one size, a number and a checksum.

A sample holds what a sandbox has used since its sample before. A label holds the sandbox's tenant, function and device
as text in one or more records. The number of its first record identifies the label.
"""

import struct
import zlib

import msgspec
from msgspec import Struct

RECORD_BYTES = 32
VERSION = 1
HEAD_BYTES = 64
MAGIC = b"ALIQUSE\n"
SHARE_UNIT = 10_000  # shares are stored in hundredths of a percent
_HEAD = struct.Struct("<8sHHI")  # magic, version, bytes of a record, number of records
_SAMPLE = struct.Struct("<IIBBHQIHH")  # number, label, kind, 0, ceiling, t_us, memory_kib, share, request
_PART = struct.Struct("<IIBBH16s")  # number, label, kind, which part, size of the whole, text
_SAMPLE_KIND, _PART_KIND = 1, 2
_PART_BYTES = 16
_MAX_UINT16, _MAX_UINT32 = 2**16 - 1, 2**32 - 1


class UsageSample(Struct, frozen=True, gc=False):
    label: int
    t_us: int  # epoch
    share: float  # of the device's compute since the sample before
    request: float
    ceiling: float
    memory_bytes: int


class LabelPart(Struct, frozen=True, gc=False):
    """A piece of a label's text, in one record."""

    label: int
    index: int
    size: int
    text: bytes


class UsageLabel(Struct, frozen=True, array_like=True):
    tenant: str
    function: str
    sandbox: int
    device: str
    enforced: bool = True  # whether its slice was enforced


def pack_head(capacity: int) -> bytes:
    return _HEAD.pack(MAGIC, VERSION, RECORD_BYTES, capacity).ljust(HEAD_BYTES, b"\0")


def read_head(head: bytes) -> int | None:
    """Return the file's capacity in records, or None if it is not a usage file of this version."""
    if len(head) < HEAD_BYTES:
        return None
    magic, version, width, capacity = _HEAD.unpack_from(head)
    return int(capacity) if (magic, version, width) == (MAGIC, VERSION, RECORD_BYTES) and capacity else None


def pack_sample(number: int, sample: UsageSample) -> bytes:
    ceiling, share, request = (
        min(_MAX_UINT16, int(part * SHARE_UNIT + 0.5)) for part in (sample.ceiling, sample.share, sample.request)
    )
    memory = min(_MAX_UINT32, sample.memory_bytes >> 10)
    return _with_checksum(
        _SAMPLE.pack(number, sample.label, _SAMPLE_KIND, 0, ceiling, sample.t_us, memory, share, request)
    )


def pack_label(number: int, cycle: int, label: int, meaning: UsageLabel) -> list[bytes]:
    """Return the records of a label, which are numbered from `number` on."""
    text = msgspec.json.encode(meaning)
    return [
        _with_checksum(
            _PART.pack(
                (number + index) % cycle,
                label,
                _PART_KIND,
                index,
                len(text),
                text[index * _PART_BYTES : (index + 1) * _PART_BYTES],
            )
        )
        for index in range(-(-len(text) // _PART_BYTES))
    ]


def number_of(record: bytes) -> int | None:
    """Return a record's number, or None if the record is torn or missing."""
    if len(record) < RECORD_BYTES or zlib.crc32(record[4:]) != int.from_bytes(record[:4], "little"):
        return None
    return int.from_bytes(record[4:8], "little")


def unpack(record: bytes) -> UsageSample | LabelPart | None:
    """Decode a record whose checksum is right."""
    body = record[4:]
    kind = body[8]
    if kind == _SAMPLE_KIND:
        _, label, _, _, ceiling, t_us, memory, share, request = _SAMPLE.unpack(body)
        return UsageSample(label, t_us, share / SHARE_UNIT, request / SHARE_UNIT, ceiling / SHARE_UNIT, memory << 10)
    if kind == _PART_KIND:
        _, label, _, index, size, text = _PART.unpack(body)
        return LabelPart(label, index, size, text)
    return None


def decode_label(parts: dict[int, LabelPart]) -> UsageLabel | None:
    """Return the label, or None while parts of it are missing."""
    size = next(iter(parts.values())).size
    text = b"".join(parts[index].text for index in range(-(-size // _PART_BYTES)) if index in parts)[:size]
    if len(text) < size:
        return None
    try:
        return msgspec.json.decode(text, type=UsageLabel)
    except msgspec.MsgspecError:
        return None


def _with_checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4, "little") + body
