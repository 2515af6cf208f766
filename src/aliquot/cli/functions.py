"""`aliquot list` and `aliquot delete`: list and delete the functions of a namespace."""

from typing import Annotated, Any

import typer

from aliquot.cli.console import say
from aliquot.cli.entities import Yes, confirm, delete_entity
from aliquot.cli.gateway import ACTIONS, AsJson, Data, GatewayClient, annotations_of, completer, connect, qualified
from aliquot.cli.results import clock, count, print_json, seconds, show, size, table, text
from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.sdk.calls import entity_path
from aliquot.sdk.errors import NotFoundError


def list_functions(
    package: Annotated[
        str | None, typer.Argument(help="Only functions of this package. /NAMESPACE/PACKAGE is a shared one.")
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List the functions of your namespace, with their needs and limits."""
    actions = connect(data).entities(ACTIONS, package or "")
    if as_json:
        print_json(actions)
        return
    if not actions:
        say(f"there are no functions {f'in {package}' if package else 'yet'}; deploy one with: aliquot deploy FILE")
        return
    said_of_all = [annotations_of(action) for action in actions]
    more = [name for name in ("warm", "schedule") if any(name in said for said in said_of_all)]
    gpu = any("gpu-share" in said or "gpu-memory" in said for said in said_of_all)
    rows = table(
        "", "function", "kind", *((">gpu", ">gpu memory") if gpu else ()), ">memory", ">timeout", *more, "version",
        "updated",
    )  # fmt: skip
    for action in actions:
        said, limits = annotations_of(action), action.get("limits", {})
        rows.add_row(
            qualified(action),
            text(said.get("exec")),
            *((text(said.get("gpu-share")), _memory(said.get("gpu-memory"))) if gpu else ()),
            size(limits.get("memory", 0) * MIB),
            seconds(limits.get("timeout", 0) / 1000),
            *(text(said.get(name)) for name in more),
            text(action.get("version")),
            clock(action.get("updated", 0)),
        )
    show(rows)


def _memory(mib: Any) -> str:  # noqa: ANN401 - whatever the annotation holds
    return size(mib * MIB) if isinstance(mib, int) else text(mib)


def delete(
    name: Annotated[
        str | None,
        typer.Argument(help="The name of the function, see aliquot list.", autocompletion=completer(ACTIONS)),
    ] = None,
    app: Annotated[str | None, typer.Option(metavar="APP", help="Delete all functions of this app.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all functions of your namespace.")] = False,
    yes: Yes = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a function, those of an app, or all. The records of their calls stay.

    For example: [bold]aliquot delete words.count[/] or [bold]aliquot delete --app words[/]
    """
    if [name is not None, app is not None, everything].count(True) != 1:
        raise InputError("NAME, --app, --all: give exactly one of them")
    gateway = connect(data)
    if name is not None:
        delete_entity(gateway, ACTIONS, name, yes=yes, as_json=as_json)
        return
    names = _names_of_app(gateway, app)
    if names:
        confirm(f"delete {count(len(names), 'function')} ({', '.join(names)})?", yes=yes, as_json=as_json)
    for one in names:
        gateway.send("DELETE", entity_path(ACTIONS, one), one)
    if as_json:
        print_json({"deleted": names})
    else:
        say(f"deleted {', '.join(names)}" if names else "there are no functions")


def _names_of_app(gateway: GatewayClient, app: str | None) -> list[str]:
    """Return the names of an app's functions, or of all functions. Raises `NotFoundError` if there is no such app."""
    by_app = {qualified(action): annotations_of(action).get("sdk-app") for action in gateway.entities(ACTIONS)}
    names = [name for name, owner in by_app.items() if app in {None, owner}]
    if app is not None and not names:
        apps = sorted({str(owner) for owner in by_app.values() if owner is not None})
        there = f"there are {', '.join(apps)}" if apps else "there are none"
        raise NotFoundError(f"--app: there are no functions of an app {app}; of apps {there}")
    return names
