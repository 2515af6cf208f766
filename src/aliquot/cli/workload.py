"""`aliquot workload`: makes and imports traces to simulate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import check_distinct, check_writable, say
from aliquot.cli.results import count
from aliquot.core.errors import InputError

app = typer.Typer(help="Make workloads to simulate, or import real traces.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    pass


@app.command("make")
def make(
    arrivals: Annotated[Path, typer.Option(help="Write the arrivals to this CSV file.")],
    functions: Annotated[
        Path, typer.Option(help="The CSV file of functions. It is read, or written with --make-functions.")
    ],
    make_functions: Annotated[
        int | None, typer.Option(min=1, help="Make this many functions and write them to --functions.")
    ] = None,
    load: Annotated[
        float, typer.Option(help="The offered load: the sum of rate times run time, divided by the devices.")
    ] = 0.8,
    devices: Annotated[int, typer.Option(min=1, help="The number of devices that the load refers to.")] = 2,
    duration: Annotated[float, typer.Option(help="The length of the trace in seconds.")] = 600,
    process: Annotated[
        str, typer.Option(help="The arrival process: poisson, gamma (see --cv) or bursty (see --on and --off).")
    ] = "poisson",
    cv: Annotated[
        float, typer.Option(help="For gamma: the deviation of the gaps divided by their mean. Above 1 is bursty.")
    ] = 3,
    on: Annotated[float, typer.Option(help="For bursty: the mean seconds of a burst.")] = 10,
    off: Annotated[float, typer.Option(help="For bursty: the mean seconds between bursts.")] = 30,
    zipf: Annotated[
        float, typer.Option(min=0, help="Popularity falls as 1/rank^zipf. 0 makes all functions equal.")
    ] = 0,
    even_work: Annotated[
        bool, typer.Option(help="Let popularity count work instead of calls, so that long functions are rarer.")
    ] = False,
    tenants: Annotated[
        int, typer.Option(min=1, help="The number of tenants that the functions are divided among.")
    ] = 1,
    run_cv: Annotated[
        float, typer.Option(min=0, help="The spread of the run times of calls. 0 keeps the declared times.")
    ] = 0,
    step: Annotated[float, typer.Option(min=0, help="Round arrivals to multiples of this many seconds.")] = 0,
    seed: Annotated[int, typer.Option(help="The seed. The same seed makes the same file.")] = 0,
) -> None:
    """Make a file of arrivals at a given load, and functions if there are none yet.

    For example: aliquot workload make --arrivals A.csv --functions F.csv --make-functions 24 --load 0.9 --zipf 1.1
    """
    from aliquot.sim import workloads
    from aliquot.sim.output_files import write_arrivals, write_functions
    from aliquot.sim.traces import FunctionsFile

    _check_range({"--load": load, "--duration": duration, "--on": on, "--off": off}, 0, 1e9)
    _check_range({"--cv": cv}, 0.01, 100)
    _check_range({"--zipf": zipf, "--run-cv": run_cv}, None, 20)
    if step:
        _check_range({"--step": step}, 1e-6, duration)
    if process not in workloads.PROCESSES:
        raise InputError(f"--process: there is no '{process}'; it takes {', '.join(workloads.PROCESSES)}")
    check_distinct({"--functions": functions, "--arrivals": arrivals})
    check_writable(arrivals, "--arrivals")
    if make_functions is not None:
        check_writable(functions, "--functions")
    recipe = workloads.WorkloadSpec(
        load, devices, duration, process, cv, on, off, zipf, even_work, tenants, run_cv, step, seed
    )
    if make_functions is None:
        called = FunctionsFile(functions).functions
    else:
        called = workloads.make_functions(make_functions, seed)
        write_functions(called.values(), functions)
    written = write_arrivals(workloads.make_arrivals(called, recipe), arrivals)
    say(f"wrote {count(written, 'arrival')} of {count(len(called), 'function')} to {arrivals}")


@app.command("readers")
def readers(
    arrivals: Annotated[
        Path, typer.Option(help="Write the arrivals, with the files that each call reads, to this CSV file.")
    ],
    functions: Annotated[Path, typer.Option(help="Write the functions to this CSV file.")],
    files: Annotated[Path, typer.Option(help="Write the files of the dataset to this CSV file.")],
    users: Annotated[int, typer.Option(min=1, help="The number of users. Each is a tenant with its own files.")] = 8,
    rounds: Annotated[
        int, typer.Option(min=1, help="The number of sessions of each user, with three calls each.")
    ] = 40,
    gap: Annotated[float, typer.Option(help="The mean seconds between two sessions of a user.")] = 120,
    think: Annotated[float, typer.Option(min=0, help="The seconds between two calls of a session.")] = 2,
    parts: Annotated[int, typer.Option(min=1, help="The number of parts of the dataset that a session reads.")] = 4,
    part_mib: Annotated[float, typer.Option(min=0, help="The size of a part in MiB.")] = 64,
    shuffled: Annotated[bool, typer.Option(help="Let each session read the parts in another order.")] = False,
    drawn_from: Annotated[int, typer.Option(min=0, help="With --shuffled: the number of parts to draw from.")] = 0,
    seed: Annotated[int, typer.Option(help="The seed. The same seed makes the same files.")] = 0,
) -> None:
    """Make a workload of users who read files repeatedly, for `aliquot simulate --files`.

    For example: aliquot workload readers --arrivals A.csv --functions F.csv --files D.csv
    """
    from aliquot.sim import readers as made
    from aliquot.sim.output_files import write_arrivals, write_files, write_functions

    _check_range({"--gap": gap}, 0, 1e6)
    _check_range({"--think": think}, None, 1e6)
    written = {"--functions": functions, "--arrivals": arrivals, "--files": files}
    check_distinct(written)
    for option, path in written.items():
        check_writable(path, option)
    recipe = made.ReadersSpec(users, rounds, gap, think, parts, part_mib, shuffled, drawn_from, seed)
    write_functions(made.functions().values(), functions)
    write_files(made.files(recipe), files)
    calls = count(write_arrivals(made.arrivals(recipe), arrivals, reads=True), "call")
    listed = count(len(made.files(recipe)), "file")
    say(f"wrote {calls} of {count(users, 'user')} to {arrivals}, and {listed} to {files}")


# A copy of the names in the table, because importing the table takes a while.
TRACES = (
    "azure_functions, azure_functions_1000, azure_functions_day, azure_llm, helios, helios_log, mooncake, philly, "
    "philly_log or servegen"
)


@app.command("sample")
def sample(
    data: Annotated[Path, typer.Argument(help="The folder to write, with a folder for each trace.")],
    seed: Annotated[int, typer.Option(help="The seed. The same seed makes the same files.")] = 0,
) -> None:
    """Write small files in the formats of public traces, made from random numbers, to try imports and benchmarks.

    For example: aliquot workload sample data
    """
    from aliquot.sim.importers.sample import write_sample

    if data.exists() and any(data.iterdir() if data.is_dir() else [data]):
        raise InputError(f"DATA: {data} is there and not empty; it takes the name of a new folder")
    for path in write_sample(data, seed):
        say(f"wrote {path}")
    say("nothing of it was recorded: figures from it are no results")


@app.command("import")
def import_trace(
    kind: Annotated[str, typer.Argument(help=f"The trace: {TRACES}.")],
    data: Annotated[Path, typer.Option(help="The folder with a folder for each trace.")],
    arrivals: Annotated[Path, typer.Option(help="Write the arrivals to this CSV file.")],
    functions: Annotated[Path, typer.Option(help="Write the functions to this CSV file.")],
    load: Annotated[
        float | None, typer.Option(help="Scale the time axis to this offered load. Without it the times stay.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="The number of devices that the load refers to.")] = 1,
    calls: Annotated[int | None, typer.Option(min=1, help="Stop after this many calls.")] = None,
    start_s: Annotated[float, typer.Option(help="Skip this many seconds of the trace.")] = 0,
    duration_s: Annotated[
        float | None, typer.Option(help="Take this many seconds of the trace. Without it all, or 24 hours of servegen.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="For azure_functions: the profile of the functions, mqfq (default), timm or own.")
    ] = None,
    flows: Annotated[int | None, typer.Option(min=1, help="Keep only this many flows, the busiest.")] = None,
    day: Annotated[int, typer.Option(min=1, max=14, help="For azure_functions_day: the day of the trace.")] = 1,
    cluster: Annotated[
        str, typer.Option(help="For helios_log: the cluster, Earth, Saturn, Uranus or Venus.")
    ] = "Earth",
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="For servegen, repeatable: a model whose clients are imported. Without it m-small, deepseek-r1 and "
            "mm-image. There are also m-mid and m-large."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed. The same seed makes the same files.")] = 0,
) -> None:
    """Convert a real trace, or a part of it, to the two files that `aliquot simulate` reads.

    For example: aliquot workload import azure_functions --data DATA --arrivals A.csv --functions F.csv --load 0.9
    """
    from aliquot.sim.importers import IMPORTERS
    from aliquot.sim.importers.files import check_files, needed_files
    from aliquot.sim.importers.request import ImportRequest
    from aliquot.sim.importers.scaling import measure, rescale, time_scale
    from aliquot.sim.output_files import write_arrivals, write_functions

    if kind not in IMPORTERS:
        raise InputError(f"KIND: there is no '{kind}'; it takes {', '.join(IMPORTERS)}")
    _check_range({"--load": load, "--duration-s": duration_s}, 0, 1e9)
    _check_range({"--start-s": start_s}, None, 1e9)
    if not data.is_dir():
        raise InputError(f"--data: there is no folder {data}; it takes the one that holds a folder for each trace")
    check_distinct({"--functions": functions, "--arrivals": arrivals})
    check_writable(arrivals, "--arrivals")
    check_writable(functions, "--functions")
    request = ImportRequest(data, profile, flows, start_s, duration_s, calls, seed, day, cluster, tuple(model or ()))
    check_files(data, [needed_files(kind, request)])
    # The trace is read twice as a stream. Errors appear in the first pass, before a file is written.
    imported = IMPORTERS[kind](request)
    measured = measure(imported.arrivals, imported.functions)
    if not measured.calls:
        raise InputError(f"--start-s, --duration-s: {kind} has no call there; it takes a time with some")
    scale = 1 if load is None else time_scale(measured, load, devices)
    called = dict.fromkeys(flow.function for flow in measured.flows)
    listed = [function for name, function in imported.functions.items() if name in called]
    write_functions(listed, functions)
    write_arrivals(rescale(IMPORTERS[kind](request).arrivals, scale), arrivals)
    who = f"{count(len(measured.flows), 'flow')} and {count(len(measured.tenants), 'tenant')}"
    say(f"wrote {count(measured.calls, 'call')} of {who} to {arrivals}")
    natural = f"natural offered load {measured.load(devices):.6g} on {count(devices, 'device')}"
    say(f"{natural}; times multiplied by {scale:.6g}")


def _check_range(options: Mapping[str, float | None], above: float | None, maximum: float) -> None:
    """Check that numbers are above `above`, or at least 0 if that is None, and at most `maximum`."""
    for option, value in options.items():
        if value is None:
            continue
        fits = 0 <= value <= maximum if above is None else above < value <= maximum
        if not fits:
            minimum = "from 0 on" if above is None else f"above {above:g}"
            raise InputError(f"{option}: {value} does not fit; it takes a number {minimum}, at most {maximum:g}")
