"""`aliquot compare`: any trace under the policies that matter, with the picture."""

from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.simulate import simulate


def compare(
    arrivals: Annotated[Path, typer.Option(help="CSV, as for aliquot simulate.")],
    functions: Annotated[Path, typer.Option(help="CSV, as for aliquot simulate.")],
    devices: Annotated[str, typer.Option(help="How many, or kinds: rtx4090:2,rtx3090:2.")] = "1",
    device_spec: Annotated[Path | None, typer.Option(help="TOML, as for aliquot simulate.")] = None,
    device_memory: Annotated[str, typer.Option(help="Memory of each device.")] = "16GiB",
    concurrency: Annotated[int, typer.Option(min=1, help="D: how many may run on a device at once.")] = 2,
    policy: Annotated[
        str, typer.Option(help="Comma separated; see aliquot policies.")
    ] = "fcfs,batch,sjf,affinity,mqfq_sticky,fair_resident",
    interference: Annotated[str, typer.Option(help="As for aliquot simulate.")] = "v100",
    bus: Annotated[str, typer.Option(help="As for aliquot simulate.")] = "shared",
    prefetching: Annotated[str, typer.Option(help="As for aliquot simulate.")] = "threshold",
    files: Annotated[Path | None, typer.Option(help="CSV, as for aliquot simulate.")] = None,
    link: Annotated[str, typer.Option(help="As for aliquot simulate.")] = "100MB",
    cache: Annotated[str, typer.Option(help="As for aliquot simulate.")] = "100GiB",
    predictor: Annotated[str, typer.Option(help="As for aliquot simulate.")] = "markov2",
    session_lead: Annotated[float, typer.Option(min=0, help="As for aliquot simulate.")] = 0,
    seed: Annotated[str, typer.Option(help="One or more, comma separated.")] = "0",
    json: Annotated[Path | None, typer.Option(help="Write all figures there.")] = None,
    plot: Annotated[Path, typer.Option(help="Latencies, fairness over time, cold starts.")] = Path("compare.png"),
) -> None:
    """Compare the policies on a trace as a real machine would run it: with interference and a shared bus.

    aliquot compare --arrivals A.csv --functions F.csv --devices 2
    """
    simulate(
        arrivals=arrivals,
        functions=functions,
        devices=devices,
        device_spec=device_spec,
        device_memory=device_memory,
        concurrency=concurrency,
        policy=policy,
        interference=interference,
        bus=bus,
        prefetching=prefetching,
        files=files,
        link=link,
        cache=cache,
        predictor=predictor,
        session_lead=session_lead,
        seed=seed,
        json=json,
        plot=plot,
    )
