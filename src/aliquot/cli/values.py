"""Parse parameters and annotations: a value that is valid JSON is JSON, otherwise it is a text, as for `wsk`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from aliquot.config import parse_assignments
from aliquot.core.errors import InputError

Param: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--param",
        "-p",
        metavar="KEY VALUE",
        help="A parameter, also KEY=VALUE. Valid JSON is taken as JSON. Repeatable.",
    ),
]
ParamFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--param-file", "-P", metavar="FILE", help="A file with a JSON object of parameters. - is stdin."),
]
Annotation: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--annotation",
        "-a",
        metavar="KEY VALUE",
        help="An annotation, such as gpu-share 0.25, also KEY=VALUE. Repeatable.",
    ),
]
_PAIR_OPTIONS = {"--param", "-p", "--annotation", "-a"}


class TakesPairs(TyperCommand):
    """A command that takes pairs as two words, `-p KEY VALUE`, or as one, `-p KEY=VALUE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own type, which changes its module
        return super().parse_args(ctx, _join_pairs(args))


def _join_pairs(words: list[str]) -> list[str]:
    result: list[str] = []
    left = iter(words)
    for word in left:
        result.append(word)
        if word == "--":
            break
        if word not in _PAIR_OPTIONS:
            continue
        key = next(left, None)
        if key is None:
            break
        result.append(key)
        if "=" in key:
            continue
        value = next(left, None)
        if value is not None and _is_option(value):
            result.append(value)
        elif value is not None:
            result[-1] = f"{key}={value}"
    return [*result, *left]


def _is_option(word: str) -> bool:
    """Return whether a word is an option and not a value such as -1. KEY=VALUE avoids the question."""
    return len(word) > 1 and word.startswith("-") and not word[1].isdigit()


def read_pairs(texts: list[str], option: str) -> dict[str, Any]:
    return {name: read_value(value) for name, value in parse_assignments(texts, option, may_be_empty=True).items()}


def read_params(texts: list[str], file: str | None, file_option: str = "--param-file") -> dict[str, Any]:
    """Read parameters from the command line and a file. The command line wins."""
    return {**(read_object(file, file_option) if file is not None else {}), **read_pairs(texts, "--param")}


def as_list(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return values as a list of keys and values, as entities have them."""
    return [{"key": key, "value": value} for key, value in values.items()]


def read_value(value: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return json.loads(value)
    except ValueError:
        return value


def read_object(source: str, option: str) -> dict[str, Any]:
    """Read a JSON object from a file, or from stdin if the file is `-`."""
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
