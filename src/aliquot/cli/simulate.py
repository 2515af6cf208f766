"""`aliquot simulate`: simulates a trace under one policy or several."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from aliquot.assemble import assemble, look_up
from aliquot.cli.results import count
from aliquot.config import (
    PACKING_DEFAULT,
    QUEUEING_DEFAULT,
    PolicySettings,
    parse_policy_params,
    parse_size,
    parse_weights,
)
from aliquot.core.errors import InputError

if TYPE_CHECKING:
    from aliquot.core.model import DeviceSpec, NodeSpec
    from aliquot.sim.fabric.storage import StorageSettings
    from aliquot.sim.traces import FunctionsFile


def simulate(
    arrivals: Annotated[
        Path,
        typer.Option(
            help="A CSV file with time_s, function and maybe tenant, run_s, deadline_s, cost_limit, session, reads, "
            "late, key."
        ),
    ],
    functions: Annotated[
        Path,
        typer.Option(
            help="A CSV file with name, run_s, cold_s, memory_mib and optionally load_s, share, weight, datasets, "
            "host_mib, batch, run_s@KIND, run_s@KIND/SIZE."
        ),
    ],
    devices: Annotated[
        str | None, typer.Option(help="The number of devices, or their kinds: v100:2,a100:2. By default 1.")
    ] = None,
    elastic: Annotated[
        str | None,
        typer.Option(help="KIND=LEAST, such as gpu=1: devices of the kind come and go as the policies want them."),
    ] = None,
    elastic_delay: Annotated[float, typer.Option(min=0, help="The seconds until a device that is wanted comes.")] = 60,
    device_spec: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with a table for each kind: memory, concurrency, bandwidth, speed, price, lanes; and "
            "with tables nodes.NAME: devices, count, host_memory, bandwidth."
        ),
    ] = None,
    lose: Annotated[
        list[str] | None, typer.Option(help="Lose a node at a time in seconds: NODE@SECONDS. Repeatable.")
    ] = None,
    node_wait: Annotated[
        float, typer.Option(min=0, help="The seconds that calls wait for a node on which they fit.")
    ] = 300,
    device_memory: Annotated[str, typer.Option(help="The memory of each device.")] = "16GiB",
    memory: Annotated[str, typer.Option(help="finite, or unbounded: loaded functions stay resident.")] = "finite",
    host_memory: Annotated[
        str | None,
        typer.Option(help="The host memory for all sandboxes, such as 64GiB. Unbounded unless it is given."),
    ] = None,
    pool_slots: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The sandboxes per device, for every policy; 0: no limit. By default the policy's own limit, or the "
            "smallest one if several policies are compared.",
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="The invocations that may run on a device at once (D).")] = 2,
    policy: Annotated[
        str,
        typer.Option(
            help="One or more policies, comma separated: names (`aliquot policies` lists them) or FILE.py:CLASS."
        ),
    ] = QUEUEING_DEFAULT,
    keepalive: Annotated[
        str | None, typer.Option(help="A keep-alive policy instead of the queueing policy's own.")
    ] = None,
    eviction: Annotated[
        str | None, typer.Option(help="An eviction policy instead of the queueing policy's own.")
    ] = None,
    sharing: Annotated[
        str, typer.Option(help="How idle compute is shared: hard (not at all), elastic or elastic_guarded.")
    ] = "hard",
    packing: Annotated[
        str, typer.Option(help="How the device of a slice is chosen: first_fit, best_fit or least_fragmented.")
    ] = PACKING_DEFAULT,
    prefetching: Annotated[
        str,
        typer.Option(
            help="Policies that choose the files to prefetch, comma separated. `aliquot policies` lists them."
        ),
    ] = "threshold",
    admission: Annotated[
        str,
        typer.Option(
            help="Policies that promise or refuse calls with a deadline or a cost limit, comma separated. "
            "`aliquot policies` lists them."
        ),
    ] = "accept_all",
    batching: Annotated[
        str, typer.Option(help="How calls of one function run together: target, greedy, aimd or none.")
    ] = "target",
    forecasting: Annotated[
        str,
        typer.Option(
            help="How calls are forecast: none, counts (the live forecaster without a network), clairvoyant, or the "
            "folder of a version (`aliquot model show --of demand`)."
        ),
    ] = "none",
    provisioning: Annotated[
        str | None,
        typer.Option(
            help="What is held for forecast calls: forecast, reactive or none.",
            show_default="forecast, if calls are forecast",
        ),
    ] = None,
    graphs: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with a table GRAPH.STAGE for each stage: function, after, probability. An arrival may "
            "name a graph instead of a function."
        ),
    ] = None,
    result_ttl: Annotated[
        float, typer.Option(min=0, help="The seconds for which results are kept for calls with the same key.")
    ] = 0,
    result_cache: Annotated[str, typer.Option(help="The memory for kept results, of 4 KiB each.")] = "256MiB",
    files: Annotated[
        Path | None, typer.Option(help="A CSV file with dataset,path,mib: the files that calls may read.")
    ] = None,
    link: Annotated[
        str, typer.Option(help="The bytes per second between the origin of the files and the node.")
    ] = "100MB",
    link_latency: Annotated[float, typer.Option(min=0, help="The seconds before the first byte of a file.")] = 0.002,
    cache: Annotated[str, typer.Option(help="The size of the node's cache for files.")] = "100GiB",
    cache_eviction: Annotated[
        str, typer.Option(help="The eviction policy of the cache. `aliquot policies` lists them.")
    ] = "lru",
    predictor: Annotated[
        str, typer.Option(help="The predictor of the next files: markov1, markov2, popular, none or clairvoyant.")
    ] = "markov2",
    session_lead: Annotated[
        float, typer.Option(min=0, help="The seconds between the begin of a session and its first call.")
    ] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of a policy, such as mqfq_sticky.T=5. Repeatable.")
    ] = None,
    tenant_weight: Annotated[
        list[str] | None, typer.Option(help="The weight of a tenant, such as a=2. Repeatable.")
    ] = None,
    interference: Annotated[
        str,
        typer.Option(
            help="How invocations on one device slow each other down: off, v100, or factors such as 1,1.3,1.6."
        ),
    ] = "off",
    bus: Annotated[
        str, typer.Option(help="private, or shared: transfers to one device slow each other down.")
    ] = "private",
    seed: Annotated[str, typer.Option(help="One or more seeds, comma separated. Each is a run.")] = "0",
    json: Annotated[Path | None, typer.Option(help="Write all figures to this JSON file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison to this file (.png, .svg, .pdf).")] = None,
    schedule: Annotated[Path | None, typer.Option(help="Write one line for each dispatch to this CSV file.")] = None,
    calls: Annotated[Path | None, typer.Option(help="Write one line for each ended call to this CSV file.")] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Draw the plan of admission of the first run at --plan-at to this file.")
    ] = None,
    plan_at: Annotated[float, typer.Option(min=0, help="The moment of the plan that is drawn, in seconds.")] = 0,
    check: Annotated[bool, typer.Option(help="Check the invariants of the core after every step (slow).")] = False,
) -> None:
    """Simulate a trace of calls under one policy or several, and compare them.

    For example: aliquot simulate --arrivals A.csv --functions F.csv --policy fcfs,batch,mqfq_sticky --plot out.png
    """
    from aliquot.cli.comparison import ComparisonFiles, compare
    from aliquot.sim.contention import parse_curve
    from aliquot.sim.elastic import parse_elastic
    from aliquot.sim.engine import Scenario
    from aliquot.sim.forecasting.choice import parse_forecasting
    from aliquot.sim.graphs import read_graphs
    from aliquot.sim.nodes import parse_losses
    from aliquot.sim.results import ResultSettings
    from aliquot.sim.traces import FunctionsFile, TraceFile

    outputs = ComparisonFiles(json, plot, schedule, calls, plan, plan_at)
    inputs = {"--arrivals": arrivals, "--functions": functions, "--files": files, "--device-spec": device_spec}
    outputs.check({**inputs, "--graphs": graphs})
    runs = _runs(
        policy,
        prefetching,
        admission,
        seed,
        PolicySettings(
            "",
            keepalive,
            eviction,
            parse_policy_params(set_ or [], "--set"),
            sharing=sharing,
            packing=packing,
            pool_slots=pool_slots,
            node_wait_s=node_wait,
            batching=batching,
            provisioning=_provisioning(forecasting, provisioning),
        ),
    )
    _check_one_of("--memory", memory, ("finite", "unbounded"))
    _check_one_of("--bus", bus, ("private", "shared"))
    listed = FunctionsFile(functions)
    memory_bytes = parse_size(device_memory, "--device-memory") if memory == "finite" else None
    nodes, all_devices = _devices(devices, device_spec, memory_bytes, concurrency, listed)
    storage = _storage(files, link, link_latency, cache, cache_eviction, predictor, session_lead)
    if storage.files and nodes:
        raise InputError("--files: the simulator has one cache for files, so leave [nodes] out of the device file")
    known = {} if graphs is None else read_graphs(graphs, listed.functions)
    scenario = Scenario(
        all_devices,
        listed.functions,
        TraceFile(arrivals, listed.functions, storage.files, known),
        parse_weights(tenant_weight or [], "--tenant-weight"),
        parse_curve(interference),
        bus == "shared",
        check,
        storage,
        None if host_memory is None else parse_size(host_memory, "--host-memory"),
        nodes,
        parse_losses(lose or [], nodes),
        known,
        ResultSettings(result_ttl, parse_size(result_cache, "--result-cache")),
        parse_forecasting(forecasting),
        parse_elastic(elastic, elastic_delay, all_devices),
    )
    compare(scenario, runs, outputs, f"{arrivals.name} on {count(len(all_devices), 'device')}, D = {concurrency}")


def _devices(
    devices: str | None, device_spec: Path | None, memory_bytes: int | None, concurrency: int, listed: "FunctionsFile"
) -> "tuple[list[NodeSpec], list[DeviceSpec]]":
    """Return the nodes, if the device file has any, and all devices."""
    from aliquot.sim.devices import DeviceFile, check_kinds, parse_devices, read_device_file, with_cpu
    from aliquot.sim.nodes import make_nodes

    file = read_device_file(device_spec) if device_spec else DeviceFile()
    if devices is not None and file.nodes:
        raise InputError(f"--devices: the nodes in {device_spec} list their own devices; leave one of them out")
    parse = partial(parse_devices, memory_bytes=memory_bytes, concurrency=concurrency, kinds=file.kinds)
    nodes, parsed = make_nodes(file.nodes, parse)
    if not nodes:
        parsed = parse("1" if devices is None else devices)
    check_kinds(parsed, file.kinds)
    found = with_cpu(parsed, listed.functions.values(), concurrency=concurrency, kinds=file.kinds)
    listed.check_fit(found)
    return nodes, found


def _storage(
    files: Path | None, link: str, latency_s: float, cache: str, eviction: str, predictor: str, lead_s: float
) -> "StorageSettings":
    from aliquot.policies.eviction import EVICTION
    from aliquot.sim.fabric.predictors import PREDICTORS
    from aliquot.sim.fabric.storage import StorageSettings, read_files

    _check_one_of("--predictor", predictor, PREDICTORS)
    look_up(EVICTION, eviction, "--cache-eviction")
    bandwidth = parse_size(link, "--link")
    if not bandwidth:
        raise InputError(f"--link: '{link}' brings nothing; it takes bytes per second, such as 100MB")
    return StorageSettings(
        {} if files is None else read_files(files),
        bandwidth,
        latency_s,
        parse_size(cache, "--cache"),
        eviction,
        predictor,
        lead_s,
    )


def _runs(policy: str, prefetching: str, admission: str, seed: str, common: PolicySettings) -> list[PolicySettings]:
    """Return one run for each combination of policies and seed. Raises for wrong names and parameters."""
    from aliquot.sim.clairvoyant import SIMULATED_QUEUEING

    names = _split(policy, "--policy")
    seeds = [_seed(text) for text in _split(seed, "--seed")]
    ways = _split(prefetching, "--prefetching")
    admissions = _split(admission, "--admission")
    runs = [
        replace(common, queueing=name, prefetching=way, admission=admitting, seed=number)
        for name in names
        for way in ways
        for admitting in admissions
        for number in seeds
    ]
    assembled = [assemble(run, SIMULATED_QUEUEING) for run in runs]
    used = dict.fromkeys((*(name for one in assembled for name in one.policy_names), common.provisioning))
    for name in common.params:
        if name not in used:
            raise InputError(f"--set: {name} is not among the policies of this run: {', '.join(used)}")
    if common.pool_slots is None:
        # Policies are only comparable with equal pools.
        bounds = [scheduler.pool.slots for scheduler in assembled if scheduler.pool.slots is not None]
        runs = [replace(run, pool_slots=min(bounds, default=0)) for run in runs]
    return runs


def _provisioning(forecasting: str, provisioning: str | None) -> str:
    """Return the policy that holds sandboxes for forecasts. Raises `InputError` if it and the forecasts do not meet."""
    from aliquot.sim.forecasting.forecaster import NONE

    if provisioning is None:
        return NONE if forecasting == NONE else "forecast"
    if (forecasting == NONE) != (provisioning == NONE):
        raise InputError(
            f"--provisioning: {provisioning} does not go with --forecasting {forecasting}; forecasts are of use only "
            "to a policy, and the policies forecast and reactive need forecasts"
        )
    return provisioning


def _check_one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{option}: '{value}' is not known; it takes {' or '.join(known)}")


def _split(text: str, option: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    for place, part in enumerate(parts):
        if not part or part in parts[:place]:
            raise InputError(f"{option}: '{text}' has an empty or repeated part; it takes a list such as a,b,c")
    return parts


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"--seed: '{text}' is not a whole number") from error
