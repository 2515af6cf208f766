"""`aliquot node`: join a cluster with this machine, and the operator's commands for the nodes of a cluster."""

import asyncio
import re
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from aliquot.cli.console import say
from aliquot.cli.gateway import AsJson, Data, GatewayClient, connect
from aliquot.cli.results import count, print_json, show, size, table
from aliquot.config import parse_size
from aliquot.core.errors import InputError
from aliquot.sdk.units import read_ms

PATH = "/operator/v1/nodes"
DEFAULT_DATA = Path("~/.aliquot-node")
_POLL_S = 0.2

app = typer.Typer(help="Join a cluster with this machine; show, drain and remove its nodes.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the node.")]


@app.command()
def join(
    head: Annotated[
        str | None,
        typer.Argument(help="The head's address for nodes, HOST:PORT.", show_default="the one it joined before"),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="ALIQUOT_NODE_TOKEN", help="The token of `aliquot node token`, for the first time."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The node's name.", show_default="the machine's name")] = None,
    node_data: Annotated[
        Path, typer.Option("--data", envvar="ALIQUOT_NODE_DATA", help="The node's data folder.")
    ] = DEFAULT_DATA,
    node_transport: Annotated[str, typer.Option(help="tls, or tcp if the head says so.")] = "tls",
    devices: Annotated[str, typer.Option(help="The devices, as in `aliquot up`.")] = "host:2",
    device_memory: Annotated[
        str | None,
        typer.Option(help="The memory of each device, such as 8GiB.", show_default="an equal part of half the RAM"),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="The maximum number of runs on a device at once.")] = 100,
    cpu_slots: Annotated[
        int | None,
        typer.Option(
            min=1, help="The maximum number of runs on the cpu at once.", show_default="4 per core, at least 8"
        ),
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(help="The maximum sum of the memory limits of all sandboxes.", show_default="twice the RAM"),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            help="The interpreter whose packages functions without requirements find.",
            show_default="an environment of their kind",
        ),
    ] = None,
    grace: Annotated[float, typer.Option(min=0, help="The seconds that running calls get when the node stops.")] = 30,
) -> None:
    """Make this machine a node, and run its agent until it is stopped (Ctrl-C) or removed.

    The token is needed once. What the machine gets for it stays in its data folder.
    """
    from aliquot.cluster.agent.joining import join as join_head
    from aliquot.cluster.agent.process import REFUSED, REMOVED
    from aliquot.cluster.agent.settings import AgentOptions, load_membership, parse_address
    from aliquot.cluster.agent.supervisor import keep_running
    from aliquot.cluster.messages import PORT
    from aliquot.cluster.names import check_node_name
    from aliquot.cluster.tokens import parse_token
    from aliquot.live.settings import OVERCOMMIT, parse_devices, physical_memory

    if node_transport not in {"tls", "tcp"}:
        raise InputError(f"--node-transport: '{node_transport}' is not known; it takes tls or tcp")
    data = node_data.expanduser().absolute()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    memory_bytes = parse_size(host_memory, "--host-memory") if host_memory else OVERCOMMIT * physical_memory()
    options = AgentOptions(
        str(data),
        parse_devices(devices, device_memory, slots, cpu_slots),
        devices.partition(":")[2],
        memory_bytes,
        min(physical_memory(), memory_bytes),
        grace,
        None if python is None else str(python.expanduser().absolute()),
    )
    membership = load_membership(data)
    address = None if head is None else parse_address(head, PORT, tls=node_transport == "tls")
    own = check_node_name(name or _machine_name(), "--name")

    def join_now() -> None:
        if token is None or address is None:
            raise InputError(
                f"HEAD, --token: this machine has not joined a cluster (--data {data}), or was removed; `aliquot up "
                "--cluster` and `aliquot node token` print what it needs"
            )
        made = asyncio.run(join_head(data, own, address, parse_token(token)))
        say(f"this machine is node {made.node} of the cluster at {made.head}")

    known = membership is not None and address in (None, membership.head) and (name is None or own == membership.node)
    if not known:
        join_now()
    code = asyncio.run(keep_running(options, say))
    if code == REFUSED and known and token is not None:
        join_now()
        code = asyncio.run(keep_running(options, say))
    if code in (REFUSED, REMOVED):
        say("the head does not take this node, or the agent cannot start; the reason is in the lines above")
    sys.exit(1 if code in (REFUSED, REMOVED) else 0)


@app.command("list")
def list_(data: Data = None, as_json: AsJson = False) -> None:
    """List the nodes with their devices."""
    nodes = connect(data).send("GET", PATH, "the nodes", operator=True)
    if as_json:
        print_json(nodes)
        return
    found = table("nodes", "name", "state", "address", ">round trip", "devices", ">sandboxes", "version")
    for node in nodes:
        found.add_row(
            node["name"],
            node["state"],
            node["address"],
            "" if node["roundTripMs"] is None else f"{node['roundTripMs']:.2f} ms",
            _devices(node["devices"]),
            str(node["sandboxes"]),
            node["version"],
        )
    show(found)


@app.command("show")
def show_(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Show a node with each of its devices, and what its machine lacks."""
    node = _get(connect(data), name)
    if as_json:
        print_json(node)
        return
    say(f"{node['name']}: {node['state']}, {count(node['sandboxes'], 'sandbox', 'sandboxes')}")
    found = table("devices", "name", "kind", ">memory", ">slots")
    for device in node["devices"]:
        memory = device["memoryBytes"]
        found.add_row(device["name"], device["kind"], "" if memory is None else size(memory), str(device["slots"]))
    show(found)
    for line in node["missing"]:
        say(f"without {line}")


@app.command()
def drain(
    name: Name,
    deadline: Annotated[str | None, typer.Option(help="End calls that still run after this time, such as 10m.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing runs on the node any more.")] = False,
    data: Data = None,
) -> None:
    """Give a node no more work, so that it can be stopped. Calls that run there go on."""
    gateway = connect(data)
    body = {"deadline_s": None if deadline is None else read_ms(deadline, "--deadline") / 1000}
    node = gateway.send("POST", f"{_path(name)}/drain", f"node {name}", body=body, operator=True)
    while wait and node["state"] == "draining":
        time.sleep(_POLL_S)
        node = _get(gateway, name)
    say(f"node {name} is {node['state']}: {count(node['sandboxes'], 'sandbox', 'sandboxes')} left")


@app.command()
def undrain(name: Name, data: Data = None) -> None:
    """Give a drained node work again."""
    node = connect(data).send("POST", f"{_path(name)}/undrain", f"node {name}", operator=True)
    say(f"node {name} is {node['state']}")


@app.command()
def remove(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Also if calls run there. They end with an error.")] = False,
    data: Data = None,
) -> None:
    """Remove a node from the cluster. What it shows to connect is refused from now on."""
    gateway = connect(data)
    if force:
        gateway.send("POST", f"{_path(name)}/remove", f"node {name}", operator=True)
    else:
        gateway.send("DELETE", _path(name), f"node {name}", operator=True)
    say(f"node {name} is removed; `aliquot node token --rotate` makes its token useless, too")


@app.command()
def token(
    rotate: Annotated[bool, typer.Option("--rotate", help="Make a new token. The old one is refused.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Print the token with which other machines join."""
    method = "PUT" if rotate else "POST"
    found = connect(data).send(method, f"{PATH}/token", "the token for nodes", operator=True)
    if as_json:
        print_json(found)
    else:
        say(found["token"])


def _get(gateway: GatewayClient, name: str) -> Any:  # noqa: ANN401 - JSON
    return gateway.send("GET", _path(name), f"node {name}", operator=True)


def _path(name: str) -> str:
    return f"{PATH}/{quote(name, safe='')}"


def _devices(devices: list[dict[str, Any]]) -> str:
    kinds: dict[str, int] = {}
    for device in devices:
        kinds[device["kind"]] = kinds.get(device["kind"], 0) + 1
    return ", ".join(kind if number == 1 else f"{number} {kind}" for kind, number in kinds.items())


def _machine_name() -> str:
    """Return the machine's name as the name of a node."""
    text = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.")
    return text[:63].strip("-.") or "node"
