"""`aliquot dataset`: the origins of files, and the part of them that is on the node."""

import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from aliquot.cli.console import errors, say
from aliquot.cli.gateway import AsJson, Data, GatewayClient, connect
from aliquot.cli.results import clock, count, print_json, show, size, table, text
from aliquot.config import parse_assignments
from aliquot.sdk.errors import NotFoundError, SdkError
from aliquot.sdk.events import ACCEPT, EVENTS_TIMEOUT_S, read_events
from aliquot.sdk.wire import JSON, HttpRequest, to_json

PATH, OPERATOR = "/api/v1/datasets", "/operator/v1/datasets"

app = typer.Typer(
    help="Manage datasets. A dataset is a set of files at an origin that functions see as a directory. "
    "Its files are fetched to the node ahead of time.",
    no_args_is_help=True,
)


def complete(incomplete: str) -> list[str]:
    """Complete a name for the shell. Without a platform there are no completions."""
    try:
        return [name for name in _names(connect(None)) if name.startswith(incomplete)]
    except (SdkError, OSError):
        return []


Name = Annotated[str, typer.Argument(help="The dataset.", autocompletion=complete)]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The name by which functions know it: letters, digits and . _ -.")],
    url: Annotated[
        str,
        typer.Argument(
            help="The origin: a folder on the server's machine, http(s)://, rsync://, host:/folder for rsync over SSH, "
            "or any address that fsspec opens, such as s3://."
        ),
    ],
    option: Annotated[
        list[str],
        typer.Option(
            "--option",
            "-o",
            metavar="K=V",
            help="An option of the origin, such as key=ID or anon=true. Its value is never shown.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    namespace: Annotated[
        list[str],
        typer.Option("--namespace", "-n", help="A namespace that may use it. Repeatable.", show_default="all"),
    ] = [],  # noqa: B006 - typer copies it
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not check that the origin can be opened.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Add or change a dataset. Nothing is fetched yet. For the operator.

    For example: [bold]aliquot dataset add imagenet s3://lab/imagenet -o anon=true[/]
    """
    body = {
        "url": _address(url),
        "options": parse_assignments(option, "--option", may_be_empty=True),
        "namespaces": namespace or None,
    }
    query = {"check": "false"} if no_check else {}
    path = _path(name, OPERATOR)
    made = connect(data).send("PUT", path, f"dataset {name}", query=query, body=body, operator=True)
    if as_json:
        print_json(made)
    else:
        say(f"{made['name']}: {made['url']}, seen by {_seen_by(made)}")


@app.command("list")
def list_(data: Data = None, as_json: AsJson = False) -> None:
    """List the datasets that functions of this namespace may use. The operator sees all, with their origins."""
    gateway = connect(data)
    operator = bool(gateway.client.server.operator)
    found = gateway.send("GET", OPERATOR if operator else PATH, "the datasets", operator=operator)
    if as_json:
        print_json(found)
    elif not found:
        say("there are no datasets; the operator adds one with: aliquot dataset add NAME URL")
    else:
        rows = table("", "dataset", "origin", *(["seen by"] if operator else []), "created")
        for one in found:
            origin = [str(one["url"]), _seen_by(one)] if operator else [str(one["origin"])]
            rows.add_row(str(one["name"]), *origin, clock(one["created"]))
        show(rows)


@app.command("show")
def show_(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Show a dataset: its files, and the part that is on the node."""
    gateway = connect(data)
    operator = bool(gateway.client.server.operator)
    found = _send(gateway, "GET", name, operator=operator)
    if as_json:
        print_json(found)
        return
    rows = table("", "", "")
    rows.show_header = False
    rows.add_row("dataset", str(found["name"]))
    rows.add_row("origin", str(found.get("url") or found["origin"]))
    if operator:
        rows.add_row("options", ", ".join(found["options"]) or "none")
        rows.add_row("seen by", _seen_by(found))
        rows.add_row("named by", ", ".join(found["functions"]) or "no function")
    rows.add_row("files", f"{text(found['files']) or '?'}, {size(found['bytes']) or '?'}")
    rows.add_row("on the node", f"{text(found['cached_files']) or '?'}, {size(found['cached_bytes']) or '?'}")
    rows.add_row("created", clock(found["created"]))
    if found.get("trouble"):
        rows.add_row("trouble", str(found["trouble"]))
    show(rows)


@app.command()
def warm(
    name: Name,
    pattern: Annotated[
        list[str],
        typer.Argument(
            metavar="[PATTERN]...", help="The files to fetch, such as 'train/*.bin'. Without a pattern, all."
        ),
    ] = [],  # noqa: B006 - typer copies it
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a dataset's files to the node now, and show the progress. Ctrl-C stops it, and fetched files stay.

    For example: [bold]aliquot dataset warm imagenet 'val/*'[/]
    """
    gateway = connect(data)
    headers = {**ACCEPT, "Content-Type": JSON}
    body = to_json({"patterns": pattern})
    operator = bool(gateway.client.server.operator)
    path = f"{_path(name, OPERATOR if operator else PATH)}/warm"
    request = HttpRequest("POST", path, {}, headers, body, operator, timeout_s=EVENTS_TIMEOUT_S)
    what = f"dataset {name}"
    done: dict[str, Any] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TextColumn("{task.fields[files]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(name, total=None, files="")
        try:
            for event, told in read_events(gateway.client.lines(request, what), what):
                if event == "progress":
                    files = f"{told['files']}/{told['of_files']} files"
                    bar.update(task, completed=told["bytes"], total=told["of_bytes"], files=files)
                done = told
        except NotFoundError as error:
            raise _unknown(gateway, name) from error
    if as_json:
        print_json(done)
    else:
        verb = "is" if done["files"] == 1 else "are"
        say(f"{name}: {count(done['files'], 'file')}, {size(done['bytes'])}, {verb} on the node")


@app.command()
def evict(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Delete a dataset's files from the node. They are fetched again when they are needed. For the operator."""
    evicted = _send(connect(data), "POST", name, operator=True, suffix="/evict")
    if as_json:
        print_json(evicted)
    else:
        say(f"{name}: {count(evicted['files'], 'file')}, {size(evicted['bytes'])}, left the node")


@app.command()
def remove(
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if functions use it. They fail from then on.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Remove a dataset. Its files are deleted from the node, and stay at the origin. For the operator."""
    removed = _send(connect(data), "DELETE", name, operator=True, query={"force": "true"} if force else {})
    if as_json:
        print_json(removed)
    else:
        say(f"removed {name}")


def _send(
    gateway: GatewayClient,
    method: str,
    name: str,
    *,
    operator: bool,
    query: dict[str, str] | None = None,
    suffix: str = "",
) -> dict[str, Any]:
    path = _path(name, OPERATOR if operator else PATH) + suffix
    try:
        answer: dict[str, Any] = gateway.send(method, path, f"dataset {name}", query=query, operator=operator)
    except NotFoundError as error:
        raise _unknown(gateway, name) from error
    return answer


def _names(gateway: GatewayClient) -> list[str]:
    operator = bool(gateway.client.server.operator)
    found = gateway.send("GET", OPERATOR if operator else PATH, "the datasets", operator=operator)
    return [str(one["name"]) for one in found]


def _unknown(gateway: GatewayClient, name: str) -> NotFoundError:
    names = _names(gateway)
    known = f"there are {', '.join(names)}" if names else "there are none; aliquot dataset add NAME URL adds one"
    return NotFoundError(f"there is no dataset {name}; {known}")


def _seen_by(found: dict[str, Any]) -> str:
    return "all" if found["namespaces"] is None else ", ".join(found["namespaces"]) or "none"


def _address(url: str) -> str:
    """Return the address of an origin, with a folder's path made absolute.

    As for rsync, a colon before the first slash separates a host from a path.
    """
    is_elsewhere = re.match(r"[a-z][a-z0-9+.:-]*://|[^/:\s]+:", url) is not None
    return url if is_elsewhere else str(Path(url).expanduser().absolute())


def _path(name: str, collection: str = PATH) -> str:
    return f"{collection}/{quote(name, safe='')}"
