"""`aliquot namespace`: the operator's commands for the namespaces of tenants."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from aliquot.cli.console import errors, say
from aliquot.cli.gateway import AsJson, Data, GatewayClient, connect
from aliquot.cli.results import clock, print_json, show, size, table, text
from aliquot.config import parse_size
from aliquot.core.errors import InputError
from aliquot.sdk.errors import NotFoundError

PATH = "/operator/v1/namespaces"

app = typer.Typer(
    help="Manage namespaces, one for each tenant, with their keys, weights and quotas. For the operator.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The name of the namespace.")]
Weight = Annotated[float | None, typer.Option(help="Its share of the devices relative to other namespaces.")]
PerMinute = Annotated[
    int | None, typer.Option(min=0, help="The maximum number of invocations a minute. 0 means no limit.")
]
Concurrent = Annotated[
    int | None, typer.Option(min=0, help="The maximum number of invocations at once. 0 means no limit.")
]
Fires = Annotated[
    int | None, typer.Option(min=0, help="The maximum number of trigger fires a minute. 0 means no limit.")
]
KeptSize = Annotated[
    str | None,
    typer.Option(help="The maximum size of its entities, code, queued calls and records. 0 means the default."),
]

VolumeSize = Annotated[str | None, typer.Option(help="The sizes of its volumes together at most. 0 means the default.")]


@app.command()
def create(
    name: Name,
    weight: Weight = None,
    per_minute: PerMinute = None,
    concurrent: Concurrent = None,
    fires_per_minute: Fires = None,
    kept_size: KeptSize = None,
    volume_size: VolumeSize = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a namespace and print its key. It is shown only once, because the platform keeps only a digest."""
    body = {"name": name, **_changes(weight, per_minute, concurrent, fires_per_minute, kept_size, volume_size)}
    made = connect(data).send("POST", PATH, f"namespace {name}", body=body, operator=True)
    _print_key(made, as_json=as_json)


@app.command("list")
def list_(data: Data = None, as_json: AsJson = False) -> None:
    """List the namespaces with their weights and quotas."""
    found = connect(data).send("GET", PATH, "the namespaces", operator=True)
    if as_json:
        print_json(found)
        return
    rows = table("", "namespace", ">weight", ">per minute", ">at once", ">fires", ">functions", ">keys", "created")
    for one in found:
        rows.add_row(
            one["name"],
            text(one["weight"]),
            text(one["invocationsPerMinute"]),
            text(one["concurrentInvocations"]),
            text(one["firesPerMinute"]),
            text(one["actions"]),
            text(len(one["keys"])),
            clock(one["created"]),
        )
    show(rows)


@app.command("set")
def set_(
    name: Name,
    weight: Weight = None,
    per_minute: PerMinute = None,
    concurrent: Concurrent = None,
    fires_per_minute: Fires = None,
    kept_size: KeptSize = None,
    volume_size: VolumeSize = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Change the weight or the quotas of a namespace. Values that are not given stay."""
    changes = _changes(weight, per_minute, concurrent, fires_per_minute, kept_size, volume_size)
    if not changes:
        raise InputError(
            "nothing to change; give --weight, --per-minute, --concurrent, --fires-per-minute, --kept-size, "
            "--volume-size"
        )
    changed = _send(connect(data), "PATCH", name, body=changes)
    if as_json:
        print_json(changed)
    else:
        bounds = [changed[key] for key in ("invocationsPerMinute", "concurrentInvocations", "firesPerMinute")]
        calls, at_once, fires = ("any number" if bound is None else str(bound) for bound in bounds)
        weight_text = text(changed["weight"])
        rates = f"calls a minute: {calls}, at once: {at_once}, fires a minute: {fires}"
        kept = "" if changed["keptBytes"] is None else f", kept: {size(changed['keptBytes'])}"
        volumes = "" if changed["volumeBytes"] is None else f", in volumes: {size(changed['volumeBytes'])}"
        say(f"{name}: weight {weight_text}, {rates}{kept}{volumes}")


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a namespace with all its functions and keys."""
    if not yes and not as_json:
        typer.confirm(f"delete the namespace {name} with all its functions?", abort=True)
    _send(connect(data), "DELETE", name)
    if as_json:
        print_json({"deleted": name})
    else:
        say(f"deleted {name}")


@app.command("rotate-key")
def rotate_key(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Make a new key and print it. It is shown only once, and the old keys are refused from now on."""
    made = _send(connect(data), "POST", name, keys=True, body={})
    _print_key(made, as_json=as_json)


def _send(gateway: GatewayClient, method: str, name: str, *, keys: bool = False, body: object = None) -> dict[str, Any]:
    path = f"{PATH}/{quote(name, safe='')}" + ("/keys" if keys else "")
    try:
        answer: dict[str, Any] = gateway.send(method, path, f"namespace {name}", body=body, operator=True)
    except NotFoundError as error:
        known = [str(one["name"]) for one in gateway.send("GET", PATH, "the namespaces", operator=True)]
        raise NotFoundError(f"there is no namespace {name}; there are {', '.join(known)}") from error
    return answer


def _changes(
    weight: float | None,
    per_minute: int | None,
    concurrent: int | None,
    fires_per_minute: int | None,
    kept_size: str | None,
    volume_size: str | None,
) -> dict[str, Any]:
    """Return the changes for the platform. Null means no limit, and absent values stay."""
    bounds = {
        "invocationsPerMinute": per_minute,
        "concurrentInvocations": concurrent,
        "firesPerMinute": fires_per_minute,
        "keptBytes": None if kept_size is None else parse_size(kept_size, "--kept-size"),
        "volumeBytes": None if volume_size is None else parse_size(volume_size, "--volume-size"),
    }
    changes: dict[str, Any] = {key: value or None for key, value in bounds.items() if value is not None}
    return changes if weight is None else {"weight": weight, **changes}


def _print_key(made: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    say(str(made["key"]))
    errors.print(
        f"[dim]the key of {errors.escape(str(made['namespace']))}, shown only once; "
        "to use it, set ALIQUOT_URL and ALIQUOT_KEY[/]",
        highlight=False,
        soft_wrap=True,
    )
