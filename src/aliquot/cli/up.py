"""`aliquot up`: starts the platform on this machine."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from aliquot.cli.console import output
from aliquot.cli.results import count, size
from aliquot.config import (
    PACKING_DEFAULT,
    QUEUEING_DEFAULT,
    PolicySettings,
    parse_policy_params,
    parse_size,
)
from aliquot.core.errors import InputError
from aliquot.policy_sources import absolute_name
from aliquot.sdk.running import add_server, remove_server
from aliquot.sdk.units import read_ms

if TYPE_CHECKING:
    from aliquot.live.node.cluster import MakeCluster
    from aliquot.live.server import Ready
    from aliquot.live.settings import ServerSettings, Tls

DEFAULT_DATA = Path("~/.aliquot")


def up(
    data: Annotated[
        Path, typer.Option(envvar="ALIQUOT_DATA", help="The data folder: functions, records, journal.")
    ] = DEFAULT_DATA,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port. 0 takes a free one.")] = 3233,
    console_port: Annotated[
        str | None,
        typer.Option(help="The port of the console, or none.", show_default="the one after --port, or a free one"),
    ] = None,
    console_url: Annotated[
        str | None, typer.Option(help="The address of the console for browsers, if a proxy is in front of it.")
    ] = None,
    gateways: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            envvar="ALIQUOT_GATEWAYS",
            help="The processes that read HTTP, for machines with many cores. 1: the server itself.",
        ),
    ] = 1,
    devices: Annotated[
        str,
        typer.Option(
            help="The devices: host:N for N virtual devices beside the cpu; nvidia for GPUs, nvidia:0,1 for some "
            "of them, with :MODE and :swap after it if wanted."
        ),
    ] = "host:2",
    device_memory: Annotated[
        str | None,
        typer.Option(help="The memory of each device, such as 8GiB.", show_default="an equal part of half the RAM"),
    ] = None,
    device_bandwidth: Annotated[
        str | None,
        typer.Option(
            help="The bytes a second at which constants of kernel graphs reach a virtual device, such as 256MiB.",
            show_default="no limit",
        ),
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
    policy: Annotated[
        str, typer.Option(help="The queueing policy: a name (`aliquot policies` lists them) or FILE.py:CLASS.")
    ] = QUEUEING_DEFAULT,
    keepalive: Annotated[
        str | None, typer.Option(help="The keep-alive policy.", show_default="the policy's own")
    ] = None,
    eviction: Annotated[str | None, typer.Option(help="The eviction policy.", show_default="the policy's own")] = None,
    sharing: Annotated[
        str, typer.Option(help="How idle compute is shared: hard (not at all), elastic or elastic_guarded.")
    ] = "elastic",
    packing: Annotated[
        str, typer.Option(help="How the device of a slice is chosen: first_fit, best_fit or least_fragmented.")
    ] = PACKING_DEFAULT,
    prefetching: Annotated[
        str, typer.Option(help="How files to prefetch are chosen: none, threshold or expected_benefit.")
    ] = "threshold",
    provisioning: Annotated[
        str, typer.Option(help="What is held for calls that are expected: none, reactive or forecast.")
    ] = "none",
    batching: Annotated[
        str, typer.Option(help="How calls of one function run together: target, greedy, aimd or none.")
    ] = "target",
    admission: Annotated[
        str,
        typer.Option(
            help="How calls with a deadline or a cost limit are admitted: a name (`aliquot policies` lists them) or "
            "FILE.py:CLASS."
        ),
    ] = "reservation",
    price: Annotated[
        list[str],
        typer.Option(
            metavar="KIND=PRICE", help="The price of a second of a whole device, such as host=500. Repeatable."
        ),
    ] = [],  # noqa: B006 - typer copies it
    result_cache: Annotated[
        str, typer.Option(help="The memory for results of pure functions. 0 disables it.")
    ] = "256MiB",
    cache_size: Annotated[
        str | None,
        typer.Option(help="The disk space for files of datasets.", show_default="a tenth of what is free"),
    ] = None,
    cache_dir: Annotated[
        Path | None, typer.Option(help="The folder for files of datasets.", show_default="in the data folder")
    ] = None,
    cache_eviction: Annotated[
        str, typer.Option(help="The eviction policy for files of datasets. `aliquot policies` lists them.")
    ] = "lecar",
    prefetch_bandwidth: Annotated[
        str | None,
        typer.Option(
            help="The bytes per second for prefetching, such as 100MB. 0 disables it.", show_default="no limit"
        ),
    ] = None,
    learning: Annotated[
        list[str],
        typer.Option(
            metavar="K=V", help="A setting of the file predictors, such as predictor=markov2 or with_lstm=false."
        ),
    ] = [],  # noqa: B006 - typer copies it
    set_: Annotated[
        list[str], typer.Option("--set", help="A parameter of a policy, such as mqfq_sticky.T=5. Repeatable.")
    ] = [],  # noqa: B006
    param: Annotated[list[str], typer.Option(hidden=True, help="The earlier name of --set.")] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(help="The seed for random choices of policies.")] = 0,
    tls_cert: Annotated[Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of the certificate (PEM).")] = None,
    image: Annotated[
        list[str],
        typer.Option(
            help="Run blackbox actions of an image with a runtime of ours: NAME=KIND, or NAME=KIND,REQUIREMENT."
        ),
    ] = [],  # noqa: B006
    limit: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE",
            help="A limit for clients, such as payload_bytes=128MiB or timeout_ms.most=600000.",
        ),
    ] = [],  # noqa: B006
    python: Annotated[
        Path | None,
        typer.Option(
            help="The interpreter whose packages functions without requirements find, such as .venv/bin/python.",
            show_default="an environment of their kind",
        ),
    ] = None,
    egress: Annotated[
        str,
        typer.Option(help="What functions reach beside this API: all, none, or a list such as 10.0.0.0/8,db.org:5432."),
    ] = "all",
    trace_sample: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="The part of usual calls whose traces are sent to the collector that OpenTelemetry's variables name. "
            "Failed, cold and slow calls always are.",
            show_default="0",
        ),
    ] = None,
    log_format: Annotated[
        str, typer.Option(envvar="ALIQUOT_LOG_FORMAT", help="The format of log lines: logfmt or json.")
    ] = "logfmt",
    ready_file: Annotated[
        Path | None, typer.Option(help="Write url, namespace, key and pid to this JSON file once the server answers.")
    ] = None,
    grace: Annotated[float, typer.Option(min=0, help="The seconds that running calls get when the server stops.")] = 30,
    session_idle: Annotated[str, typer.Option(help="A session ends when it is not used for this long.")] = "30m",
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Let other machines join as nodes (`aliquot node join`).")
    ] = False,
    node_host: Annotated[str, typer.Option(help="The address on which nodes connect, with --cluster.")] = "0.0.0.0",  # noqa: S104
    node_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on which nodes connect. 0 takes a free one.")
    ] = 3235,
    node_transport: Annotated[
        str, typer.Option(help="How nodes connect: tls, or tcp without encryption for a network that is your own.")
    ] = "tls",
    node_suspect: Annotated[str, typer.Option(help="A silent node gets no new work after this time.")] = "2s",
    node_lost: Annotated[str, typer.Option(help="A silent node is lost after this time.")] = "10s",
    node_wait: Annotated[
        str, typer.Option(help="Calls that fit on no node wait this long for one, after a node was lost.")
    ] = "5m",
    keep_days: Annotated[float, typer.Option(min=0, help="The days for which activations and journal are kept.")] = 7,
    keep_size: Annotated[str, typer.Option(help="The maximum size of the activations and of the journal.")] = "4GiB",
    usage_size: Annotated[
        str, typer.Option(help="The maximum size of the samples of aliquot usage, and of aliquot profile.")
    ] = "64MiB",
) -> None:
    """Start the platform on this machine. It runs until it is stopped (Ctrl-C).

    The first start makes a namespace and prints its key. The key is shown only once.
    """
    from aliquot.live.node.isolation import IsolationProbe

    # The probe takes as long as the imports, so it runs beside them.
    with IsolationProbe(data.expanduser().absolute()) as probe:
        from aliquot.live.catalogue.images import parse_image
        from aliquot.live.console.settings import parse_console
        from aliquot.live.datasets.settings import read_fabric
        from aliquot.live.gateway.settings import parse_limits
        from aliquot.live.node.network.egress import parse_egress
        from aliquot.live.server import ServerReports, serve
        from aliquot.live.settings import (
            OVERCOMMIT,
            ServerSettings,
            keep,
            parse_devices,
            physical_memory,
            set_prices,
        )
        from aliquot.live.usage.file import check_size
        from aliquot.logs import choose_log_format, set_up_logs

        choose_log_format(log_format)
        settings = ServerSettings(
            data=data.expanduser(),
            devices=set_prices(
                parse_devices(devices, device_memory, slots, cpu_slots, bandwidth=device_bandwidth), price
            ),
            devices_asked=devices.partition(":")[2],
            policy=PolicySettings(
                absolute_name(policy),
                keepalive and absolute_name(keepalive),
                eviction and absolute_name(eviction),
                parse_policy_params([*set_, *param], "--set"),
                seed,
                absolute_name(sharing),
                absolute_name(packing),
                absolute_name(prefetching),
                batching=absolute_name(batching),
                provisioning=absolute_name(provisioning),
                admission=absolute_name(admission),
                node_wait_s=read_ms(node_wait, "--node-wait") / 1000,
            ),
            fabric=read_fabric(data.expanduser(), cache_size, cache_dir, prefetch_bandwidth, cache_eviction, learning),
            host=host,
            port=port,
            host_memory_bytes=parse_size(host_memory, "--host-memory")
            if host_memory
            else OVERCOMMIT * physical_memory(),
            tls=_read_tls(tls_cert, tls_key),
            console=parse_console(console_port, console_url),
            ready_file=ready_file,
            grace_s=grace,
            retention=keep(keep_days, keep_size),
            result_cache_bytes=parse_size(result_cache, "--result-cache"),
            usage_bytes=check_size(parse_size(usage_size, "--usage-size"), "--usage-size"),
            gateway=parse_limits(limit, "--limit"),
            gateways=gateways,
            images=tuple(parse_image(text) for text in image),
            python=_read_python(python),
            egress=parse_egress(egress, "--egress"),
            session_idle_s=read_ms(session_idle, "--session-idle") / 1000,
            trace_sample=trace_sample,
        )

        set_up_logs()
        try:
            make_cluster = (
                _make_cluster(node_host, node_port, node_transport, node_suspect, node_lost) if cluster else None
            )
            reports = ServerReports(lambda ready: _announce(ready, settings), _stopping(grace))
            serve(settings, reports, probe, make_cluster)
        finally:
            remove_server()


def _make_cluster(host: str, port: int, transport: str, suspect: str, lost: str) -> "MakeCluster":
    """Return the function that makes the server the head of a cluster. Raises `InputError`."""
    from aliquot.cluster.head.cluster import Cluster, ClusterSettings, check_settings
    from aliquot.cluster.liveness import LivenessLimits

    suspect_s, lose_s = read_ms(suspect, "--node-suspect") / 1000, read_ms(lost, "--node-lost") / 1000
    limits = LivenessLimits(min(0.5, suspect_s / 4), suspect_s, lose_s)
    settings = check_settings(ClusterSettings(host, port, transport, limits))
    return lambda parts: Cluster(settings, parts)


def _stopping(grace_s: float) -> Callable[[int], None]:
    def tell(running: int) -> None:
        if running:
            calls = "1 call runs" if running == 1 else f"{running} calls run"
            output.print(f"stopping: {calls}, at most {grace_s:g} s; Ctrl-C does not wait", highlight=False)

    return tell


def _read_python(python: Path | None) -> Path | None:
    if python is not None and not os.access(python.expanduser(), os.X_OK):
        raise InputError(f"--python: there is no interpreter {python}")
    return None if python is None else python.expanduser().absolute()  # not resolved: an environment's is a link


def _read_tls(certificate: Path | None, key: Path | None) -> "Tls | None":
    from aliquot.live.settings import Tls

    for option, file in (("--tls-cert", certificate), ("--tls-key", key)):
        if file is not None and not file.is_file():
            raise InputError(f"{option}: there is no file {file}")
    if certificate is not None and key is not None:
        return Tls(certificate, key)
    if certificate is not None or key is not None:
        raise InputError("--tls-cert and --tls-key: give both, a file each")
    return None


def _announce(ready: "Ready", settings: "ServerSettings") -> None:
    """Put the server on the list of running ones, and print how to reach it."""
    for line in ready.missing:
        output.print(f"[yellow]without[/] {escape(line)}", soft_wrap=True)
    if ready.recovered:
        output.print(f"of an earlier run: {count(ready.recovered, 'accepted call')} taken up", highlight=False)
    if ready.datasets:
        room = size(settings.fabric.cache_bytes)
        output.print(f"{count(ready.datasets, 'dataset')}; cached files may take {room} of disk (--cache-size)")
    output.print(f"[bold green]aliquot[/] answers on [bold]{ready.url}[/]", soft_wrap=True)
    if ready.console is not None:
        output.print(f"console: [bold]{ready.console}[/] ([bold]aliquot console[/] opens it)", soft_wrap=True)
    found_by = _list_server(settings.data, ready.url)
    if ready.first:
        output.print(
            f"\nYour namespace is [bold]{ready.namespace}[/]. Its key is shown only once:\n\n    {ready.key}\n",
            highlight=False,
            soft_wrap=True,
        )
        output.print(f"{found_by} On other machines set:\n", highlight=False, soft_wrap=True)
        output.print(f"    export ALIQUOT_URL={ready.url} ALIQUOT_KEY=…\n", highlight=False, soft_wrap=True)
    if ready.join_command is not None:
        output.print("Other machines join with:\n", highlight=False)
        output.print(f"    {escape(ready.join_command)}\n", highlight=False, soft_wrap=True)
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
