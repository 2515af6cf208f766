"""`aliquot status` and `aliquot top`: show the state of the platform, once or continuously."""

import time
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aliquot.cli.console import output
from aliquot.cli.gateway import AsJson, Data, GatewayClient, connect
from aliquot.cli.results import count, percent, print_json, seconds, show, size, table, text

_MAX_REQUIREMENTS_CHARS = 80
_TWO_LEVELS = "fair_resident"  # the policy whose flows compete within their tenant, and tenants with each other
_WITHIN_TENANT = " (a virtual time counts within its tenant)"
_BUSIEST_FIRST = ("busy", "starting", "loading", "warm", "host-warm")


def status(data: Data = None, as_json: AsJson = False) -> None:
    """Show the state of the platform: its devices, and the waiting and running calls. For the operator."""
    gateway = connect(data)
    found = _status(gateway)
    if as_json:
        print_json(found)
        return
    output.print(_headline(gateway, found))
    show(_devices(found))
    if found.get("nodes"):
        output.print(_nodes(found["nodes"]))
    if found.get("builds"):
        output.print(_builds(found["builds"]))
    if found.get("fabric"):
        output.print(_fabric(found["fabric"]))


def top(
    every: Annotated[float, typer.Option(min=0.1, help="The seconds between two updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the state once and exit.")] = False,
    rows: Annotated[int, typer.Option(min=1, help="The maximum number of flows and of sandboxes.")] = 20,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Watch devices, tenants with their due and got parts, flows, and sandboxes, until Ctrl-C. For the operator.

    With --json each line is the state at one time.
    """
    gateway = connect(data)
    if once or as_json:
        while True:
            found = _status(gateway)
            if as_json:
                print_json(found, compact=True)
            else:
                output.print(_screen(gateway, found, rows))
            if once:
                return
            time.sleep(every)
    from rich.live import Live

    with Live(console=output, screen=output.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(_screen(gateway, _status(gateway), rows), refresh=True)
            time.sleep(every)


def _status(gateway: GatewayClient) -> dict[str, Any]:
    found: dict[str, Any] = gateway.send("GET", "/operator/v1/status", "the platform's status", operator=True)
    return found


def _screen(gateway: GatewayClient, found: dict[str, Any], rows: int) -> RenderableType:
    parts: list[RenderableType] = [_devices(found)]
    if found.get("nodes"):
        parts.insert(0, _nodes(found["nodes"]))
    if found.get("tenants"):
        parts.append(_tenants(found["tenants"], rows))
    parts.append(_flows(found, rows))
    if found.get("builds"):
        parts.append(_builds(found["builds"]))
    if found.get("fabric"):
        parts.append(_fabric(found["fabric"]))
    parts.append(_sandboxes(found, rows))
    return Group(_headline(gateway, found), *(line for part in parts for line in (Text(), part)))


def _headline(gateway: GatewayClient, found: dict[str, Any]) -> Text:
    line = Text.assemble(("aliquot ", "bold"), gateway.url)
    if found.get("stopping"):
        line.append(" stopping", "bold yellow")
    flows = found.get("flows", ())
    line.append(
        f"   {sum(flow['queued'] for flow in flows)} waiting, {sum(flow['in_flight'] for flow in flows)} in flight, "
        f"{count(len(found.get('sandboxes', ())), 'sandbox', 'sandboxes')} "
        f"({found.get('sandboxes_started', 0)} started so far), "
        f"policies {', '.join(found.get('policies', ()))}"
    )
    if promises := found.get("promises"):
        named = ", ".join(
            f"{promises[end]} {end}" for end in ("kept", "broken", "refused", "unpromised") if end in promises
        )
        line.append(f"\ncalls with a deadline or a cost limit: {named}")
    if loose := [device["name"] for device in found.get("devices", ()) if device.get("enforced") is False]:
        line.append(f"\nnot enforced on {', '.join(loose)}: nothing keeps functions to their slices there", "yellow")
    return line


def _nodes(nodes: list[dict[str, Any]]) -> Table:
    """Make the table of the nodes of a cluster."""
    rows = table("nodes", "name", "state", "address", ">round\ntrip", ">devices", ">sandboxes", "version")
    for node in nodes:
        trip = node["roundTripMs"]
        rows.add_row(
            node["name"],
            node["state"],
            node["address"],
            "" if trip is None else seconds(trip / 1000),
            str(len(node["devices"])),
            str(node["sandboxes"]),
            node["version"],
        )
    return rows


def _devices(found: dict[str, Any]) -> Table:
    rows = table(
        "devices",
        *("name", "kind", ">running", ">slots", ">shares", ">used", ">borrowed", ">lent"),
        *(">resident", ">memory", ">sandboxes"),
    )
    for device in found.get("devices", ()):
        rows.add_row(
            device["name"],
            text(device.get("kind")),
            text(device.get("running")),
            text(device.get("slots")),
            text(device.get("shares_used")),
            percent(device.get("utilisation")),
            percent(device.get("borrowed") or None),
            percent(device.get("lent") or None),
            size(device.get("resident_bytes")),
            size(device.get("memory_bytes")),
            text(device.get("sandboxes")),
        )
    return rows


def _tenants(tenants: list[dict[str, Any]], max_rows: int) -> Table:
    """Make the table of the parts of the devices that tenants were due and got, of those with work in the last minute.

    A tenant is due its weight, divided by the weights of all tenants that had work. One that asks for less gets less.
    """
    rows = table(
        _title("tenants: part of the devices in use", len(tenants), max_rows),
        *("tenant", "on", ">weight", ">due,\n10 s", ">got,\n10 s", ">due,\n1 min", ">got,\n1 min"),
    )
    for one in tenants[:max_rows]:
        parts = [percent(one.get(key)) for key in ("due_10s", "got_10s", "due_60s", "got_60s")]
        rows.add_row(one["tenant"], one["on"], text(one["weight"]), *parts)
    return rows


def _builds(builds: list[dict[str, Any]]) -> Table:
    """Make the table of environments that are being built, with the number of those that wait."""
    running = [build for build in builds if build["running"]]
    rows = table(f"builds of environments: {len(builds) - len(running)} wait", "for", "requirements", ">asked for")
    for build in running:
        requirements = ", ".join(build["requirements"])
        rows.add_row(
            ", ".join(build["tenants"]), requirements[:_MAX_REQUIREMENTS_CHARS], f"{seconds(build['asked_s_ago'])} ago"
        )
    return rows


def _fabric(figures: dict[str, Any]) -> Table:
    """Make the table of the datasets' cache, counted since the storage agent started."""
    rows = table(
        "datasets",
        *(">datasets", ">files here", ">bytes", ">of", ">in flight", ">hits", ">misses", ">prefetched", ">opened"),
        *(">wasted", ">waited", ">hidden"),
    )
    numbers = [text(int(figures.get(key, 0))) for key in ("in_flight", "hits", "misses")]
    sizes = [size(figures.get(key, 0)) for key in ("prefetched_bytes", "prefetched_used_bytes", "wasted_bytes")]
    rows.add_row(
        *(text(int(figures.get(key, 0))) for key in ("datasets", "files")),
        *(size(figures.get(key, 0)) for key in ("bytes", "limit_bytes")),
        *numbers,
        *sizes,
        *(seconds(figures.get(key, 0)) for key in ("waited_s", "hidden_s")),
    )
    return rows


def _flows(found: dict[str, Any], max_rows: int) -> Table:
    """Make the table of flows, those with work first."""
    flows = sorted(found.get("flows", ()), key=lambda flow: (-flow["in_flight"] - flow["queued"], -flow["arrivals"]))
    trouble = any(flow.get("misfit") for flow in flows)
    rows = table(
        _title("flows" + (_WITHIN_TENANT if _TWO_LEVELS in found.get("policies", ()) else ""), len(flows), max_rows),
        *(
            "tenant",
            "function",
            ">weight",
            ">waits",
            ">in\nflight",
            ">virtual\ntime",
            ">run",
            ">calls",
            ">sand-\nboxes",
        ),
        *(["trouble"] if trouble else []),  # rare, so it takes no space otherwise
        names=2,
    )
    for flow in flows[:max_rows]:
        rows.add_row(
            flow["tenant"],
            flow["function"],
            text(flow.get("weight")),
            text(flow.get("queued")),
            text(flow.get("in_flight")),
            "" if flow.get("virtual_time") is None else f"{flow['virtual_time']:.3f}",
            seconds(flow.get("run_estimate_s")),
            text(flow.get("arrivals")),
            text(flow.get("sandboxes")),
            *([text(flow.get("misfit"))] if trouble else []),
        )
    return rows


def _sandboxes(found: dict[str, Any], max_rows: int) -> Table:
    order = {state: number for number, state in enumerate(_BUSIEST_FIRST)}
    sandboxes = sorted(
        found.get("sandboxes", ()), key=lambda one: (order.get(one["state"], len(order)), one["sandbox"])
    )
    rows = table(
        _title("sandboxes", len(sandboxes), max_rows),
        *(">number", "tenant", "function", "device", "state", ">share", ">at\nmost", ">used", ">on\ndevice"),
        *(">uses", ">pid", ">pro-\ncesses", ">memory", ">cpu"),
    )
    for one in sandboxes[:max_rows]:
        rows.add_row(
            text(one["sandbox"]),
            one["tenant"],
            one["function"],
            one["device"],
            one["state"],
            percent(one.get("share")),
            percent(one.get("share_ceiling")),
            percent(one.get("share_used")),
            size(one.get("device_bytes")),
            text(one.get("uses")),
            text(one.get("pid")),
            text(one.get("processes")),
            size(one.get("rss_bytes")),
            seconds(one.get("cpu_s")),
        )
    return rows


def _title(what: str, total: int, shown: int) -> str:
    return what if total <= shown else f"{what}: {shown} of {total}"
