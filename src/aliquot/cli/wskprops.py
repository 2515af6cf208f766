"""`aliquot wskprops`: the settings of OpenWhisk's own tools for this platform."""

import os
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import errors, say
from aliquot.cli.gateway import AsJson, Data, connect
from aliquot.cli.results import print_json
from aliquot.core.errors import InputError

_PRIVATE = 0o600


def wskprops(
    write: Annotated[
        bool, typer.Option("--write", help="Write the settings to the file, which only you can read.")
    ] = False,
    file: Annotated[Path, typer.Option(envvar="WSK_CONFIG_FILE", help="The file to write.")] = Path("~/.wskprops"),
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Print the settings that wsk and Serverless read from ~/.wskprops, or write them there.

    For example: [bold]aliquot wskprops --write[/]. Other lines of the file stay. On this machine the key is valid while
    the server runs. [bold]aliquot namespace rotate-key[/] makes a permanent one, for ALIQUOT_KEY.
    """
    server = connect(data).client.server
    properties = {"APIHOST": server.url, "AUTH": server.key, "NAMESPACE": "_"}
    if not write:
        if as_json:
            print_json(properties)
        else:
            for name, value in properties.items():
                say(f"{name}={value}")
        return
    path = file.expanduser()
    _write(path, [*_other_lines(path, properties), *(f"{name}={value}" for name, value in properties.items())])
    if as_json:
        print_json({"written": str(path)})
    else:
        errors.print(f"wrote {errors.escape(str(path))}", highlight=False, soft_wrap=True)


def _other_lines(path: Path, properties: dict[str, str]) -> list[str]:
    """Return the lines of the file that set other properties."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--file: {path} cannot be read: {error}") from error
    return [line for line in lines if line.partition("=")[0].strip() not in properties]


def _write(path: Path, lines: list[str]) -> None:
    """Write the whole file or nothing. It is never readable by other users."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _PRIVATE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            os.fchmod(descriptor, _PRIVATE)
            output.write("\n".join(lines) + "\n")
        beside.replace(path)
    except OSError as error:
        raise InputError(f"--file: {path} cannot be written: {error.strerror}") from error
