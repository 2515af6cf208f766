"""`aliquot object`: store files on the platform by key, and list, read and delete them."""

import hashlib
import mmap
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from aliquot.cli.console import say, write_file
from aliquot.cli.entities import Yes, confirm, say_deleted
from aliquot.cli.gateway import AsJson, Data, GatewayClient, connect
from aliquot.cli.results import clock, print_json, show, size, table
from aliquot.core.errors import InputError
from aliquot.sdk import answers
from aliquot.sdk.wire import BodyPieces, HttpReply, HttpRequest, ask

NAMESPACE = "/api/v1/namespaces/_"
OBJECTS = f"{NAMESPACE}/objects"
TRANSFER_TIMEOUT_S = 3600.0
_MAX_LISTED = 200

app = typer.Typer(help="Store files on the platform by key. Equal files are stored once.", no_args_is_help=True)
Key: TypeAlias = Annotated[str, typer.Argument(help="The key, such as models/net.bin.")]


@app.command()
def put(
    file: Annotated[Path, typer.Argument(help="The file.")],
    key: Annotated[str, typer.Argument(help="Its key.", show_default="the file's name")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Store a file, or replace the object of the same key."""
    key = key or file.name
    stored = _send(connect(data), "PUT", _path(key), key, _pieces(file)).json()
    print_json(stored) if as_json else say(f"{key}: {size(stored['size'])}, sha256 {stored['sha256']}")


@app.command()
def get(
    key: Key,
    file: Annotated[Path | None, typer.Argument(help="The file to write.", show_default="its last part")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Write an object to a file."""
    target = file or Path(key.rpartition("/")[2])
    body = _send(connect(data), "GET", _path(key), key).body
    write_file(target, body, "FILE")
    print_json({"key": key, "file": str(target), "size": len(body)}) if as_json else say(f"{target}: {size(len(body))}")


@app.command("list")
def list_objects(
    prefix: Annotated[str, typer.Argument(help="The beginning of the keys.")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List your objects."""
    gateway, found = connect(data), list[dict[str, Any]]()
    while True:
        query: dict[str, str | int] = {"limit": _MAX_LISTED, "skip": len(found), "prefix": prefix}
        page = gateway.send("GET", OBJECTS, "the list of objects", query=query)
        found += page
        if len(page) < _MAX_LISTED:
            break
    if as_json:
        print_json(found)
    elif not found:
        say("there are no objects; make one with: aliquot object put FILE")
    else:
        rows = table("", "key", "size", "sha256", "updated")
        for one in found:
            rows.add_row(one["key"], size(one["size"]), one["sha256"][:12], clock(one["updated"]))
        show(rows)


@app.command()
def rm(key: Key, yes: Yes = False, data: Data = None, as_json: AsJson = False) -> None:
    """Delete an object. Graphs that name its bytes keep them."""
    confirm(f"delete object {key}?", yes=yes, as_json=as_json)
    _send(connect(data), "DELETE", _path(key), key)
    say_deleted(key, as_json=as_json)


def put_blob(gateway: GatewayClient, content: bytes) -> str:
    """Store bytes by their digest, and return the digest."""
    digest = hashlib.sha256(content).hexdigest()
    _send(gateway, "PUT", f"{NAMESPACE}/blobs/{digest}", f"blob {digest[:12]}", content)
    return digest


def _send(gateway: GatewayClient, method: str, path: str, what: str, body: bytes | BodyPieces = b"") -> HttpReply:
    headers = {"Content-Type": "application/octet-stream"} if method == "PUT" else {}
    request = HttpRequest(method, path, {}, headers, body, timeout_s=TRANSFER_TIMEOUT_S)
    return answers.check(gateway.client.run(ask(request)), what)


def _path(key: str) -> str:
    return f"{OBJECTS}/{quote(key)}"


def _pieces(file: Path) -> bytes | BodyPieces:
    """Return the content of a file in pieces, which are read while they are sent."""
    try:
        with file.open("rb") as opened:
            empty = not file.stat().st_size
            return b"" if empty else BodyPieces([memoryview(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ))])
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
