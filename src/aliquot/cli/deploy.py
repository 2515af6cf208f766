"""`aliquot deploy`: an SDK app, or one file as an OpenWhisk action."""

from pathlib import Path
from typing import Annotated, Any

import typer

from aliquot.cli.console import say
from aliquot.cli.gateway import AsJson, Data, connect
from aliquot.cli.loading import is_app_file, load_app, split_target
from aliquot.cli.results import print_json
from aliquot.cli.values import read_pairs
from aliquot.core.errors import InputError

_KINDS = {".py": "python:3.11", ".js": "nodejs:20", ".cjs": "nodejs:20", ".mjs": "nodejs:20"}


def deploy(
    target: Annotated[str, typer.Argument(metavar="FILE[:APP]", help="A file; :APP when it defines several apps.")],
    name: Annotated[str | None, typer.Option(help="The action's name.", show_default="the file's")] = None,
    kind: Annotated[
        str | None, typer.Option(help="python:3.11 or nodejs:20.", show_default="by the file's ending")
    ] = None,
    main: Annotated[str | None, typer.Option(help="The function to call.", show_default="main")] = None,
    param: Annotated[list[str], typer.Option("--param", "-p", help="A default parameter: name=value.")] = [],  # noqa: B006 - typer copies it
    annotation: Annotated[
        list[str], typer.Option("--annotation", "-a", help="name=value, such as gpu-share=0.25.")
    ] = [],  # noqa: B006 - typer copies it
    memory: Annotated[str | None, typer.Option(help="Of the host, such as 512MiB.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Of a run, such as 30s.")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Bring functions to the platform, or up to date there.

    A Python file that imports aliquot is an app: each of its functions becomes APP.FUNCTION, with what its decorator
    says. Any other .py, .js or .zip file becomes one OpenWhisk action, with what the options say.
    """
    path, app_name = split_target(target)
    options = {"--name": name, "--kind": kind, "--main": main, "--memory": memory, "--timeout": timeout}
    given = [option for option, value in options.items() if value is not None]
    given += [option for option, value in (("--param", param), ("--annotation", annotation)) if value]
    if app_name is not None or (not given and is_app_file(path)):
        if given:
            raise InputError(f"{given[0]}: {target} is an app; what its functions need stands in its file")
        _deploy_app(path, app_name, data, as_json=as_json)
        return
    body = _body(path, kind, main, memory, timeout)
    body["parameters"] = [{"key": key, "value": value} for key, value in read_pairs(param, "--param").items()]
    pairs = read_pairs(annotation, "--annotation")
    body["annotations"] = [{"key": key, "value": value} for key, value in pairs.items()]
    _deploy_action(name or path.stem, body, data, as_json=as_json)


def _deploy_app(path: Path, app_name: str | None, data: Path | None, *, as_json: bool) -> None:
    app = load_app(path, app_name)
    gateway = connect(data)
    deployed = [gateway.client.run(function.update()) for function in app.functions.values()]
    if not deployed:
        raise InputError(f"{path}: the app {app.name} has no functions; put @app.function over one")
    if as_json:
        print_json([one._asdict() for one in deployed])
        return
    for one in deployed:
        say(f"{one.name} {one.version}" + ("" if one.changed else " (unchanged)"))
    say(f"try: aliquot invoke {deployed[0].name}")


def _deploy_action(name: str, body: dict[str, Any], data: Path | None, *, as_json: bool) -> None:
    from aliquot.sdk.calls import action_path

    gateway = connect(data)
    written = gateway.send("PUT", action_path(name), name, query={"overwrite": "true"}, body=body)
    if as_json:
        print_json([{"name": name, "version": written["version"], "changed": True}])
        return
    say(f"{name} {written['version']}")
    say(f"try: aliquot invoke {name}")


def _body(path: Path, kind: str | None, main: str | None, memory: str | None, timeout: str | None) -> dict[str, Any]:
    from aliquot.sdk.units import read_mib, read_ms

    chosen = kind or _KINDS.get(path.suffix.lower())
    if chosen is None:
        raise InputError(f"--kind: the ending of {path} does not tell; it takes python:3.11 or nodejs:20")
    action: dict[str, Any] = {"exec": {"kind": chosen, "code": _code(path)}}
    if main is not None:
        action["exec"]["main"] = main
    limits = {}
    if memory is not None:
        limits["memory"] = read_mib(memory, "--memory")
    if timeout is not None:
        limits["timeout"] = read_ms(timeout, "--timeout")
    return {**action, "limits": limits}


def _code(path: Path) -> str:
    from base64 import b64encode

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if content.startswith(b"PK\x03\x04"):
        return b64encode(content).decode()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is neither text in UTF-8 nor a zip: {error}") from error
