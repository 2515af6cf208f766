"""`--param name=value` and its like: values are JSON where they can be, texts otherwise, as `wsk` reads them."""

import json
import sys
from pathlib import Path
from typing import Any

from aliquot.config import parse_assignments
from aliquot.core.errors import InputError


def read_pairs(texts: list[str], option: str) -> dict[str, Any]:
    return {name: read_value(value) for name, value in parse_assignments(texts, option).items()}


def read_value(value: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return json.loads(value)
    except ValueError:
        return value


def read_object(source: str, option: str) -> dict[str, Any]:
    """A JSON object from a file, or from stdin when it is `-`."""
    where = "stdin" if source == "-" else source
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        value = json.loads(content)
    except OSError as error:
        raise InputError(f"{option}: {where} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{option}: {where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{option}: {where} holds {type(value).__name__}; it takes a JSON object")
    return value
