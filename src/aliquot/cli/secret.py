"""`aliquot secret`: values that functions get as environment variables, and that are shown nowhere."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import say
from aliquot.cli.entities import Yes, confirm
from aliquot.cli.gateway import AsJson, Data, connect
from aliquot.cli.results import clock, print_json, show, table
from aliquot.core.errors import InputError
from aliquot.sdk.calls import NAMESPACE, entity_path

app = typer.Typer(
    help="Manage secrets: variables for functions that name them, kept encrypted and shown nowhere.",
    no_args_is_help=True,
)
SECRETS = "secrets"
Name = Annotated[str, typer.Argument(help="The name of the secret, which functions name: secrets=['NAME'].")]


@app.command()
def create(
    name: Name,
    variables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VARIABLE]...", help="Environment variables. Their values are asked for."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="A file with the value of the one variable, such as a certificate.")
    ] = None,
    env_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file with lines VARIABLE=VALUE. - is stdin.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the secret if it exists.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a secret. Values are asked for, or read from stdin or a file, and never shown.

    Functions get the variables if they name the secret: [bold]@app.function(secrets=["hf"])[/]

    For example: [bold]aliquot secret create hf HF_TOKEN[/]
    or [bold]aliquot secret create hf HF_TOKEN < token.txt[/]
    """
    values = _read_values(variables or [], file, env_file)
    query = {"overwrite": "true"} if overwrite else {}
    path = entity_path(SECRETS, name)
    written = connect(data).send("PUT", path, f"secret {name}", query=query, body={"variables": values})
    if as_json:
        print_json(written)
    else:
        say(f"secret {name}: {', '.join(written['variables'])}")


@app.command("list")
def list_(data: Data = None, as_json: AsJson = False) -> None:
    """List your secrets: their variables, and the functions that get them. Values are not shown."""
    secrets = connect(data).send("GET", f"{NAMESPACE}/{SECRETS}", "the list of secrets", query={"limit": 200})
    if as_json:
        print_json(secrets)
    elif not secrets:
        say("there are no secrets yet; make one with: aliquot secret create NAME VARIABLE")
    else:
        rows = table("", "secret", "variables", "functions", "updated")
        for one in secrets:
            names = (", ".join(one["variables"]), ", ".join(one["functions"]))
            rows.add_row(str(one["name"]), *names, clock(one["updated"]))
        show(rows)


@app.command()
def delete(name: Name, yes: Yes = False, data: Data = None, as_json: AsJson = False) -> None:
    """Delete a secret that no function names."""
    gateway = connect(data)
    path = entity_path(SECRETS, name)
    gateway.send("GET", path, f"secret {name}")  # fails before the question if there is none
    confirm(f"delete secret {name}?", yes=yes, as_json=as_json)
    deleted = gateway.send("DELETE", path, f"secret {name}")
    if as_json:
        print_json(deleted)
    else:
        say(f"deleted secret {name}")


def _read_values(variables: list[str], file: Path | None, env_file: str | None) -> dict[str, str]:
    """Return the values of the variables. No error shows one."""
    if any("=" in variable for variable in variables):
        raise InputError(
            "VARIABLE: it takes the name alone: a value on the command line is seen in the shell's history and by "
            "others on this machine; it is asked for, or give it by stdin, --file or --env-file"
        )
    if env_file is not None:
        if variables or file is not None:
            raise InputError("--env-file: it has the names and values; leave out VARIABLE and --file")
        return _parse_lines(_read(env_file, "--env-file"), env_file)
    if not variables:
        raise InputError("VARIABLE: it takes the name of at least one environment variable, such as HF_TOKEN")
    if file is None and sys.stdin.isatty():
        return {variable: typer.prompt(variable, hide_input=True) for variable in variables}
    if len(variables) > 1:
        raise InputError("VARIABLE: stdin and --file have one value; give several with --env-file")
    text = _read("-" if file is None else str(file), "stdin" if file is None else "--file")
    return {variables[0]: text.removesuffix("\n")}


def _read(source: str, option: str) -> str:
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return content.decode()
    except OSError as error:
        raise InputError(f"{option}: {source} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{option}: it is not text in UTF-8; encode it, for example with base64") from error


def _parse_lines(text: str, source: str) -> dict[str, str]:
    """Parse lines VARIABLE=VALUE. Empty lines and comments are left out, and quotes around a value are removed."""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals:
            raise InputError(f"--env-file: {source}, line {number}: it takes VARIABLE=VALUE")
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        values[name.strip()] = value[1:-1] if is_quoted else value
    return values
