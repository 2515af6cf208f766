"""Convert an origin's options from text to values, and find the secrets among them."""

from collections.abc import Mapping

import msgspec

from aliquot.core.errors import InputError

# Every other option counts as a secret.
_HARMLESS = ("host", "manifest", "port", "region", "region_name", "user", "username")
_WORDS = ("true", "false", "null")


def option_values(options: Mapping[str, str]) -> dict[str, object]:
    """Parse JSON objects, lists, true, false and null. Everything else stays text, including digits."""
    return {name: _value(name, text) for name, text in options.items()}


def _value(name: str, text: str) -> object:
    if text not in _WORDS and not text.startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"option {name}: begins like JSON, but is none: {error}") from error


def secret_texts(options: Mapping[str, str]) -> list[str]:
    """Return every secret text in the options, including those inside JSON."""
    found: list[str] = []
    for name, value in option_values(options).items():
        if name not in _HARMLESS:
            found += [options[name], *_texts(value)]
    return found


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for name, each in value.items() if name not in _HARMLESS for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []
