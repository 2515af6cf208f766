"""`aliquot volume`: writable folders that outlive sandboxes, and their files."""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from aliquot.cli.console import say
from aliquot.cli.entities import Yes, confirm
from aliquot.cli.gateway import AsJson, Data, GatewayClient, connect
from aliquot.cli.results import clock, count, print_json, show, size, table
from aliquot.config import parse_size
from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.sdk import answers
from aliquot.sdk.calls import NAMESPACE, entity_path
from aliquot.sdk.errors import NotFoundError
from aliquot.sdk.wire import HttpRequest, ask

app = typer.Typer(
    help="Manage volumes: writable folders that outlive sandboxes, for functions that name them.",
    no_args_is_help=True,
)
VOLUMES = "volumes"
PART_BYTES = 8 * MIB  # of a file, in one request
_MAX_LISTED = 200
_OCTETS = {"Content-Type": "application/octet-stream"}
Name = Annotated[str, typer.Argument(help="The name of the volume, which functions name: volumes=['NAME'].")]
Remote = Annotated[str, typer.Argument(help="A path in the volume, such as checkpoints/best.pt.")]


@app.command()
def create(
    name: Name,
    max_size: Annotated[
        str | None, typer.Option("--size", metavar="SIZE", help="The most that it holds.", show_default="10GiB")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Change the size if the volume exists.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a volume. Functions that name it see it as the folder [bold]/volumes/NAME[/].

    For example: [bold]aliquot volume create models --size 20GiB[/]
    """
    body = {} if max_size is None else {"size": parse_size(max_size, "--size")}
    query = {"overwrite": "true"} if overwrite else {}
    made = connect(data).send("PUT", entity_path(VOLUMES, name), f"volume {name}", query=query, body=body)
    if as_json:
        print_json(made)
    else:
        say(f"volume {name}: {size(made['size'])}, the folder /volumes/{name} of functions with volumes=['{name}']")


@app.command("list")
def list_(data: Data = None, as_json: AsJson = False) -> None:
    """List your volumes: what they hold, and the functions that see them."""
    query = {"limit": _MAX_LISTED}
    volumes = connect(data).send("GET", f"{NAMESPACE}/{VOLUMES}", "the list of volumes", query=query)
    if as_json:
        print_json(volumes)
    elif not volumes:
        say("there are no volumes yet; make one with: aliquot volume create NAME")
    else:
        rows = table("", "volume", ">used", ">size", "functions", "created")
        for one in volumes:
            sizes = size(one["used"]), size(one["size"])
            rows.add_row(str(one["name"]), *sizes, ", ".join(one["functions"]), clock(one["created"]))
        show(rows)


@app.command("show")
def show_(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Show a volume."""
    found = _send(connect(data), "GET", name)
    if as_json:
        print_json(found)
        return
    rows = table("", "", "")
    rows.show_header = False
    rows.add_row("volume", str(found["name"]))
    rows.add_row("folder", f"/volumes/{found['name']}")
    rows.add_row("used", f"{size(found['used'])} of {size(found['size'])}")
    rows.add_row("named by", ", ".join(found["functions"]) or "no function")
    rows.add_row("created", clock(found["created"]))
    show(rows)


@app.command()
def put(
    name: Name,
    local: Annotated[Path, typer.Argument(help="A file or a folder on this machine.")],
    remote: Annotated[str | None, typer.Argument(help="Its path in the volume.", show_default="its own name")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Copy a file or a folder into a volume. A file appears when all of it is there.

    For example: [bold]aliquot volume put models llama.gguf[/] or [bold]aliquot volume put models weights/ llama[/]
    """
    gateway = connect(data)
    target = PurePosixPath(local.absolute().name if remote is None else remote)
    if local.is_file():
        files = [(local, target / local.name if remote is not None and remote.endswith("/") else target)]
    elif local.is_dir():
        files = [(path, target / path.relative_to(local)) for path in sorted(local.rglob("*")) if path.is_file()]
    else:
        raise InputError(f"LOCAL: there is no file or folder {local}")
    sent = sum(_upload(gateway, name, path, str(place)) for path, place in files)
    if as_json:
        print_json({"volume": name, "files": len(files), "bytes": sent})
    else:
        say(f"{name}: {count(len(files), 'file')}, {size(sent)}")


@app.command()
def get(
    name: Name,
    remote: Remote,
    local: Annotated[
        Path | None, typer.Argument(help="Where to write it. - is stdout.", show_default="its own name, here")
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Copy a file or a folder out of a volume.

    For example: [bold]aliquot volume get models checkpoints/best.pt[/]
    """
    gateway = connect(data)
    if str(local) == "-":
        for part in _parts(gateway, name, remote):
            os.write(1, part)
        return
    target = Path(PurePosixPath(remote).name or name) if local is None else local
    if target.is_dir() and local is not None:
        target /= PurePosixPath(remote).name
    received = 0
    files = list(_walk(gateway, name, remote.strip("/"), target))
    for path, place in files:
        received += _download(gateway, name, path, place)
    if as_json:
        print_json({"volume": name, "files": len(files), "bytes": received})
    else:
        say(f"{target}: {count(len(files), 'file')}, {size(received)}")


@app.command()
def ls(
    name: Name,
    remote: Annotated[str, typer.Argument(help="A folder in the volume.", show_default="its root")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List a folder of a volume."""
    entries = list(_entries(connect(data), name, remote))
    if as_json:
        print_json(entries)
    elif not entries:
        say("it is empty")
    else:
        rows = table("", "name", ">size", "changed")
        for one in entries:
            shown = (f"{one['name']}/", "") if one["directory"] else (str(one["name"]), size(one["bytes"]))
            rows.add_row(*shown, clock(one["modified"]))
        show(rows)


@app.command()
def rm(
    name: Name,
    remote: Remote,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Remove a folder with all in it.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Remove a file, an empty folder, or with -r a folder and all in it."""
    query = {"path": remote, "recursive": "true" if recursive else "false"}
    removed = _send(connect(data), "DELETE", name, "/files", query=query)
    if as_json:
        print_json(removed)
    else:
        say(f"{name}: removed {remote}")


@app.command()
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Delete it even if functions name it.")] = False,
    yes: Yes = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a volume with all its files. Functions that still name it fail."""
    gateway = connect(data)
    found = _send(gateway, "GET", name)  # fails before the question if there is none
    confirm(f"delete volume {name} with {size(found['used'])} of files?", yes=yes, as_json=as_json)
    deleted = _send(gateway, "DELETE", name, query={"force": "true"} if force else {})
    if as_json:
        print_json(deleted)
    else:
        say(f"deleted volume {name}")


# --- requests -----------------------------------------------------------------------------------------------------


def _send(gateway: GatewayClient, method: str, name: str, part: str = "", query: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - JSON
    try:
        return gateway.send(method, entity_path(VOLUMES, name) + part, f"volume {name}", query=query)
    except NotFoundError as error:
        known = gateway.send("GET", f"{NAMESPACE}/{VOLUMES}", "the list of volumes", query={"limit": _MAX_LISTED})
        names = [str(one["name"]) for one in known]
        if name in names:  # the volume is there, and the path is not
            raise NotFoundError(f"volume {name}: there is no {(query or {}).get('path')}") from error
        there = f"there are {', '.join(names)}" if names else "make it with: aliquot volume create " + name
        raise NotFoundError(f"there is no volume {name}; {there}") from error


def _entries(gateway: GatewayClient, name: str, path: str) -> Iterator[dict[str, Any]]:
    skip = 0
    while True:
        query = {"path": path, "limit": str(_MAX_LISTED), "skip": str(skip)}
        page = _send(gateway, "GET", name, "/folders", query)
        yield from page
        skip += len(page)
        if len(page) < _MAX_LISTED:
            return


def _walk(gateway: GatewayClient, name: str, path: str, target: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files at or below a path, each with the place where it is to be written."""
    above = str(PurePosixPath(path).parent) if path else ""
    last = PurePosixPath(path).name
    listed = _entries(gateway, name, "" if above == "." else above) if path else iter(())
    one = next((entry for entry in listed if entry["name"] == last), None)
    if path and one is None:
        raise NotFoundError(f"volume {name}: there is no {path}")
    if one is not None and not one["directory"]:
        yield path, target
        return
    for entry in _entries(gateway, name, path):
        yield from _walk(gateway, name, f"{path}/{entry['name']}".lstrip("/"), target / str(entry["name"]))


def _upload(gateway: GatewayClient, name: str, path: Path, place: str) -> int:
    """Send a file in parts, and return its size."""
    upload, offset = uuid.uuid4().hex, 0
    url = entity_path(VOLUMES, name) + "/files"
    with path.open("rb") as file:
        part = file.read(PART_BYTES)
        while True:
            following = file.read(PART_BYTES)
            last = "false" if following else "true"
            query = {"path": place, "upload": upload, "offset": str(offset), "last": last}
            request = HttpRequest("PUT", url, query, _OCTETS, part)
            answers.check(gateway.client.run(ask(request)), f"volume {name}")
            offset += len(part)
            if not following:
                return offset
            part = following


def _parts(gateway: GatewayClient, name: str, path: str) -> Iterator[bytes]:
    offset, version = 0, ""
    while True:
        query = {"path": path, "offset": str(offset), "limit": str(PART_BYTES)}
        request = HttpRequest("GET", entity_path(VOLUMES, name) + "/files", query, {}, b"")
        reply = answers.check(gateway.client.run(ask(request)), f"volume {name}: {path}")
        if version and reply.headers["etag"] != version:
            raise InputError(f"REMOTE: {path} was changed while it was read; try again")
        version = reply.headers["etag"]
        yield reply.body
        offset += len(reply.body)
        if offset >= int(reply.headers["x-aliquot-size"]) or not reply.body:
            return


def _download(gateway: GatewayClient, name: str, path: str, place: Path) -> int:
    """Write a file of a volume here, and return its size. It gets its name when it is whole."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            for part in _parts(gateway, name, path):
                file.write(part)
            received = file.tell()
        shutil.move(draft, place)
    finally:
        draft.unlink(missing_ok=True)
    return received
