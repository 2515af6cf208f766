"""Options of an origin as they are given, all text, and as drivers take them."""

from collections.abc import Mapping

import msgspec

from aliquot.core.errors import InputError

_WORDS = ("true", "false", "null")


def option_values(options: Mapping[str, str]) -> dict[str, object]:
    """What begins like a JSON object or list, or is true, false or null, is that; all else is text, digits too."""
    return {name: _value(name, text) for name, text in options.items()}


def _value(name: str, text: str) -> object:
    if text not in _WORDS and not text.startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"option {name}: begins like JSON, but is none: {error}") from error
