"""`aliquot deploy`: deploys an SDK app, or one file as an OpenWhisk action."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from aliquot.cli.code import Kind, Main, Memory, Timeout, read_exec, read_limits
from aliquot.cli.console import errors, say
from aliquot.cli.gateway import AsJson, Data, connect
from aliquot.cli.imports import missing_requirements
from aliquot.cli.loading import is_app_file, load_app, split_target
from aliquot.cli.results import print_json
from aliquot.cli.values import Annotation, Param, as_list, read_pairs
from aliquot.core.errors import InputError
from aliquot.sdk.app import App


def deploy(
    target: Annotated[
        str, typer.Argument(metavar="FILE[:APP]", help="The file, with :APP if it defines several apps.")
    ],
    name: Annotated[str | None, typer.Option(help="The name of the action.", show_default="the file's name")] = None,
    kind: Kind = None,
    main: Main = None,
    param: Param = [],  # noqa: B006 - typer copies it
    annotation: Annotation = [],  # noqa: B006 - typer copies it
    memory: Memory = None,
    timeout: Timeout = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Deploy functions, or update them.

    A Python file that imports aliquot is an app: each of its functions becomes APP.FUNCTION, with the settings of its
    decorator, and so do its kernel graphs and workflows. Any other .py, .js or .zip file becomes one OpenWhisk action,
    with the settings of the options.
    """
    path, app_name = split_target(target)
    options = {"--name": name, "--kind": kind, "--main": main, "--memory": memory, "--timeout": timeout}
    given = [option for option, value in options.items() if value is not None]
    given += [option for option, value in (("--param", param), ("--annotation", annotation)) if value]
    if app_name is not None or (not given and is_app_file(path)):
        if given:
            raise InputError(f"{given[0]}: {target} is an app; its functions' settings are in its file")
        deploy_app(path, app_name, data, as_json=as_json)
        return
    body = {
        "exec": read_exec(path, kind, main),
        "limits": read_limits(timeout, memory),
        "parameters": as_list(read_pairs(param, "--param")),
        "annotations": as_list(read_pairs(annotation, "--annotation")),
    }
    name = name or path.stem
    put_action(name, body, data, f"aliquot invoke {name}", as_json=as_json)


def deploy_app(path: Path, app_name: str | None, data: Path | None, *, as_json: bool) -> None:
    """Deploy the functions, kernel graphs and workflows of an app."""
    app = load_app(path, app_name)
    for missing in missing_requirements(path, app):
        print_warnings([missing.text(path)])
    gateway = connect(data)
    deployed = [gateway.client.run(deploy()) for deploy in app.parts()]
    if not deployed:
        raise InputError(f"{path}: the app {app.name} has no functions; put @app.function over one")
    if as_json:
        print_json([one.as_json() for one in deployed])
        return
    for one in deployed:
        say(f"{one.name} {one.version}" + ("" if one.changed else " (unchanged)"))
        print_warnings(one.warnings)
    say(f"try: aliquot {_command(app)} {deployed[-1 if app.workflows else 0].name}")


def _command(app: App) -> str:
    """Return the command that calls the last workflow of an app, or its first function or graph."""
    if app.workflows:
        return "workflow run"
    return "invoke" if app.functions else "kernel call"


def print_warnings(warnings: Iterable[str]) -> None:
    """Print the warnings about a workflow on stderr."""
    for warning in warnings:
        errors.print(f"[yellow]warning:[/] {errors.escape(warning)}", soft_wrap=True, highlight=False)


def put_action(name: str, body: dict[str, Any], data: Path | None, hint: str, *, as_json: bool) -> None:
    """Write an action, and print its version and what to try next."""
    from aliquot.sdk.calls import action_path

    gateway = connect(data)
    written = gateway.send("PUT", action_path(name), name, query={"overwrite": "true"}, body=body)
    warnings = written.get("warnings", [])
    if as_json:
        made = {"name": name, "version": written["version"], "changed": True}
        print_json([{**made, **({"warnings": warnings} if warnings else {})}])
        return
    say(f"{name} {written['version']}")
    print_warnings(warnings)
    say(f"try: {hint}")
