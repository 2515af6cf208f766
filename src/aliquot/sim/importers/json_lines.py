"""Reading files with one JSON object a line, with errors that name file and line."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from aliquot.core.errors import InputError
from aliquot.sim.text_input import UNREADABLE, cannot_be_read, text_lines

T = TypeVar("T", bound=Struct)


def read_json_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """The lines of a file, `.gz` or plain, as a stream of `kind`; empty lines are passed over."""
    decoder = Decoder(kind)
    line = 0
    try:
        for line, text in enumerate(text_lines(path), start=1):
            if text.strip():
                yield _decode(decoder, text, f"{path}:{line}")
    except UNREADABLE as error:
        raise cannot_be_read(path, line + 1, error) from error


def _decode(decoder: Decoder[T], text: str, place: str) -> T:
    try:
        return decoder.decode(text)
    except DecodeError as error:
        fields = ", ".join(decoder.type.__struct_fields__)
        raise InputError(f"{place}: {error}; it takes a JSON object with {fields}") from error
