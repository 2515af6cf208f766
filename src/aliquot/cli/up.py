"""`aliquot up`: start the platform on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from aliquot.cli.console import output
from aliquot.cli.results import size
from aliquot.config import PACKING_DEFAULT, PolicySettings, parse_policy_params, parse_size
from aliquot.core.errors import InputError
from aliquot.sdk.running import add_server, remove_server
from aliquot.sdk.units import read_ms

if TYPE_CHECKING:
    from aliquot.live.server import Ready
    from aliquot.live.settings import ServerSettings

DEFAULT_DATA = Path("~/.aliquot")


def up(
    data: Annotated[
        Path, typer.Option(envvar="ALIQUOT_DATA", help="Where everything is kept: functions, records, journal.")
    ] = DEFAULT_DATA,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 3233,
    devices: Annotated[
        str,
        typer.Option(
            help="host:N, that many virtual devices beside the cpu; or nvidia[:GPUS][:MODE][:swap], the machine's own."
        ),
    ] = "host:2",
    device_memory: Annotated[
        str | None, typer.Option(help="Of each device, such as 8GiB.", show_default="an equal part of half the RAM")
    ] = None,
    slots: Annotated[
        int, typer.Option(min=1, help="How many run on a device at once, if their shares leave room.")
    ] = 100,
    cpu_slots: Annotated[
        int | None, typer.Option(min=1, help="The same for the cpu.", show_default="4 per core, at least 8")
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(help="What all sandboxes' limits may add up to.", show_default="twice the RAM"),
    ] = None,
    policy: Annotated[str, typer.Option(help="The queueing policy; `aliquot policies` lists them.")] = "fair_resident",
    keepalive: Annotated[
        str | None, typer.Option(help="The keep-alive policy.", show_default="the policy's own")
    ] = None,
    eviction: Annotated[str | None, typer.Option(help="The eviction policy.", show_default="the policy's own")] = None,
    sharing: Annotated[
        str, typer.Option(help="Who gets a device's idle compute: hard (nobody), elastic or elastic_guarded.")
    ] = "elastic",
    packing: Annotated[
        str, typer.Option(help="Which device a slice goes to: first_fit, best_fit or least_fragmented.")
    ] = PACKING_DEFAULT,
    prefetching: Annotated[
        str, typer.Option(help="Which files are brought before anyone opens them: none, threshold or expected_benefit.")
    ] = "threshold",
    cache_size: Annotated[
        str | None,
        typer.Option(help="What files of datasets may take on disk.", show_default="a tenth of what is free"),
    ] = None,
    cache_dir: Annotated[
        Path | None, typer.Option(help="Where they are kept.", show_default="in the data folder")
    ] = None,
    cache_eviction: Annotated[
        str, typer.Option(help="Which of them go when room is short; see aliquot policies.")
    ] = "lecar",
    prefetch_bandwidth: Annotated[
        str | None,
        typer.Option(
            help="Bytes a second for what is only predicted, such as 100MB; 0: nothing.", show_default="no bound"
        ),
    ] = None,
    learning: Annotated[
        list[str],
        typer.Option(
            metavar="K=V", help="Of what is learned from opens, such as predictor=markov2 or with_lstm=false."
        ),
    ] = [],  # noqa: B006 - typer copies it
    param: Annotated[list[str], typer.Option(help="A policy's parameter: policy.parameter=value.")] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(help="Of what policies leave to chance.")] = 0,
    tls_cert: Annotated[Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="And its key (PEM).")] = None,
    image: Annotated[
        list[str],
        typer.Option(help="Run blackbox actions of an image as one of our kinds: NAME=KIND[,REQUIREMENT...]."),
    ] = [],  # noqa: B006
    limit: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE",
            help="What clients may ask for: payload_bytes=128MiB, timeout_ms.most=600000, invocations_per_minute=60 …",
        ),
    ] = [],  # noqa: B006
    ready_file: Annotated[
        Path | None, typer.Option(help="Write url, namespace, key and pid there, as JSON, once it answers.")
    ] = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds for what runs, when told to stop.")] = 30,
    session_idle: Annotated[str, typer.Option(help="A session that nothing uses for so long ends.")] = "30m",
    keep_days: Annotated[float, typer.Option(min=0, help="How long activations and journal are kept.")] = 7,
    keep_size: Annotated[str, typer.Option(help="How much of each is kept.")] = "4GiB",
    usage_size: Annotated[
        str, typer.Option(help="How much is kept of what sandboxes used of accelerators, see aliquot usage.")
    ] = "64MiB",
) -> None:
    """Start the platform on this machine; it runs until it is told to stop (Ctrl-C).

    The first start makes a namespace and prints its key, once.
    """
    from aliquot.live.catalogue.images import parse_image
    from aliquot.live.datasets.settings import read_fabric
    from aliquot.live.gateway.limits import parse_limits
    from aliquot.live.server import serve
    from aliquot.live.settings import OVERCOMMIT, ServerSettings, Tls, keep, parse_devices, physical_memory
    from aliquot.live.usage.file import check_size
    from aliquot.logs import set_up_logs

    if (tls_cert is None) != (tls_key is None):
        raise InputError("--tls-cert and --tls-key: they take a file each, together")
    for option, file in (("--tls-cert", tls_cert), ("--tls-key", tls_key)):
        if file is not None and not file.is_file():
            raise InputError(f"{option}: there is no file {file}")
    settings = ServerSettings(
        data=data.expanduser(),
        devices=parse_devices(devices, device_memory, slots, cpu_slots),
        devices_asked=devices.partition(":")[2],
        policy=PolicySettings(
            policy,
            keepalive,
            eviction,
            parse_policy_params(param, "--param"),
            seed,
            sharing,
            packing,
            prefetching=prefetching,
        ),
        fabric=read_fabric(data.expanduser(), cache_size, cache_dir, prefetch_bandwidth, cache_eviction, learning),
        host=host,
        port=port,
        host_memory_bytes=parse_size(host_memory, "--host-memory") if host_memory else OVERCOMMIT * physical_memory(),
        tls=Tls(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
        ready_file=ready_file,
        grace_s=grace,
        retention=keep(keep_days, keep_size),
        usage_bytes=check_size(parse_size(usage_size, "--usage-size"), "--usage-size"),
        gateway=parse_limits(limit, "--limit"),
        images=tuple(parse_image(text) for text in image),
        session_idle_s=read_ms(session_idle, "--session-idle") / 1000,
    )

    set_up_logs()
    try:
        serve(settings, lambda ready: _announce(ready, settings))
    finally:
        remove_server()


def _announce(ready: "Ready", settings: "ServerSettings") -> None:
    """Put the server on the list of running ones, and print how to reach it."""
    for line in ready.missing:
        output.print(f"[yellow]without[/] {line}", soft_wrap=True)
    if ready.taken_up:
        output.print(f"{ready.taken_up} accepted calls of an earlier run are taken up")
    if ready.datasets:
        room = size(settings.fabric.cache_bytes)
        output.print(f"{ready.datasets} datasets; their files may take {room} of disk (--cache-size)")
    output.print(f"[bold green]aliquot[/] answers on [bold]{ready.url}[/]", soft_wrap=True)
    found_by = _list_server(settings.data, ready.url)
    if ready.first:
        output.print(
            f"\nYour namespace is [bold]{ready.namespace}[/]. Its key is shown this once:\n\n    {ready.key}\n",
            highlight=False,
            soft_wrap=True,
        )
        output.print(f"{found_by} On other machines set:\n", highlight=False, soft_wrap=True)
        output.print(f"    export ALIQUOT_URL={ready.url} ALIQUOT_KEY=…\n", highlight=False, soft_wrap=True)
    output.print("Next, in another terminal: [bold]aliquot deploy FILE[/], [bold]aliquot top[/]. Stop: Ctrl-C.")


def _list_server(data: Path, url: str) -> str:
    """Return the sentence that says how commands on this machine find the server."""
    folder = data.absolute()
    setting = f"[bold]ALIQUOT_DATA={escape(str(folder))}[/]"
    try:
        add_server(str(folder), url)
    except OSError as error:
        output.print(f"[yellow]not on the list of running servers[/]: {escape(str(error))}", soft_wrap=True)
        if folder != DEFAULT_DATA.expanduser():
            return f"On this machine set {setting} for commands."
    if folder == DEFAULT_DATA.expanduser():
        return "On this machine commands find the server by themselves."
    return f"On this machine commands find the server if no other one runs. Otherwise set {setting}."
