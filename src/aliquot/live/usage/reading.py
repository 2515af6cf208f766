"""Reads the usage file of a server that runs, has ended or was killed."""

from pathlib import Path

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.live.store.data_directory import USAGE
from aliquot.live.usage.records import (
    HEAD_BYTES,
    RECORD_BYTES,
    LabelPart,
    UsageLabel,
    UsageSample,
    decode_label,
    read_head,
    unpack,
)
from aliquot.live.usage.ring import newest_first, offset_of


class SandboxSamples(Struct, frozen=True):
    """The samples of one sandbox, the oldest first. Each covers the time since the one before."""

    label: UsageLabel
    samples: list[UsageSample]


def read_usage(path: Path, last_s: float | None) -> list[SandboxSamples]:
    """Read a usage file, or that of a data directory, from `last_s` seconds before its newest sample on."""
    file = path / USAGE if path.is_dir() else path
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"--data: there is no usage in {path}; nothing has run on its accelerators yet") from error
    except OSError as error:
        raise InputError(f"--data: {file} cannot be read: {error.strerror}") from error
    capacity = read_head(data[:HEAD_BYTES])
    if capacity is None:
        raise InputError(f"--data: {file} is not a usage file of this version")
    written = min(capacity, (len(data) - HEAD_BYTES) // RECORD_BYTES)
    return _tracks(data, capacity, written, last_s)


def _tracks(data: bytes, capacity: int, written: int, last_s: float | None) -> list[SandboxSamples]:
    def fetch(place: int) -> bytes:
        offset = offset_of(place)
        return data[offset : offset + RECORD_BYTES]

    samples: dict[int, list[UsageSample]] = {}
    parts: dict[int, dict[int, LabelPart]] = {}
    labels: dict[int, UsageLabel] = {}
    since_us = float("-inf")
    for raw in newest_first(fetch, capacity, written):
        record = unpack(raw)
        if isinstance(record, LabelPart):
            # A label may be written again, with the same text.
            parts.setdefault(record.label, {})[record.index] = record
            if record.label not in labels and (meaning := decode_label(parts[record.label])) is not None:
                labels[record.label] = meaning
        elif isinstance(record, UsageSample):
            if not samples and last_s is not None:
                since_us = record.t_us - last_s * 1e6
            if record.t_us >= since_us:
                samples.setdefault(record.label, []).append(record)
            elif samples.keys() <= labels.keys():
                break
    unknown = UsageLabel("", "", 0, "")
    tracks = [SandboxSamples(labels.get(label, unknown), found[::-1]) for label, found in samples.items()]
    return sorted(tracks, key=lambda track: (track.label.tenant, track.label.function, track.samples[0].t_us))
