"""`aliquot compare`: simulates a trace under the main policies, and draws the comparison."""

from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.simulate import simulate
from aliquot.config import QUEUEING_DEFAULT


def compare(
    arrivals: Annotated[Path, typer.Option(help="A CSV file, see aliquot simulate.")],
    functions: Annotated[Path, typer.Option(help="A CSV file, see aliquot simulate.")],
    devices: Annotated[str, typer.Option(help="The number of devices, or their kinds: v100:2,a100:2.")] = "1",
    device_spec: Annotated[Path | None, typer.Option(help="A TOML file, see aliquot simulate.")] = None,
    device_memory: Annotated[str, typer.Option(help="The memory of each device.")] = "16GiB",
    concurrency: Annotated[int, typer.Option(min=1, help="The invocations that may run on a device at once (D).")] = 2,
    policy: Annotated[
        str,
        typer.Option(
            help="The policies, comma separated: names or FILE.py:CLASS. `aliquot policies` lists them.",
            show_default="the six of aliquot study",
        ),
    ] = f"fcfs,batch,sjf,affinity,mqfq_sticky,{QUEUEING_DEFAULT}",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of a policy, such as mqfq_sticky.T=5. Repeatable.")
    ] = None,
    tenant_weight: Annotated[
        list[str] | None, typer.Option(help="The weight of a tenant, such as a=2. Repeatable.")
    ] = None,
    interference: Annotated[str, typer.Option(help="See aliquot simulate.")] = "v100",
    bus: Annotated[str, typer.Option(help="See aliquot simulate.")] = "shared",
    prefetching: Annotated[str, typer.Option(help="See aliquot simulate.")] = "threshold",
    forecasting: Annotated[str, typer.Option(help="See aliquot simulate.")] = "none",
    provisioning: Annotated[
        str | None, typer.Option(help="See aliquot simulate.", show_default="forecast, if calls are forecast")
    ] = None,
    files: Annotated[Path | None, typer.Option(help="A CSV file, see aliquot simulate.")] = None,
    link: Annotated[str, typer.Option(help="See aliquot simulate.")] = "100MB",
    cache: Annotated[str, typer.Option(help="See aliquot simulate.")] = "100GiB",
    predictor: Annotated[str, typer.Option(help="See aliquot simulate.")] = "markov2",
    session_lead: Annotated[float, typer.Option(min=0, help="See aliquot simulate.")] = 0,
    seed: Annotated[str, typer.Option(help="One or more seeds, comma separated.")] = "0",
    json: Annotated[Path | None, typer.Option(help="Write all figures to this JSON file.")] = None,
    plot: Annotated[Path, typer.Option(help="Draw latencies, fairness over time and cold starts to this file.")] = Path(
        "compare.png"
    ),
) -> None:
    """Compare policies on a trace, with interference and a shared bus as on a real machine.

    For example: aliquot compare --arrivals A.csv --functions F.csv --devices 2
    """
    simulate(
        arrivals=arrivals,
        functions=functions,
        devices=devices,
        device_spec=device_spec,
        device_memory=device_memory,
        concurrency=concurrency,
        policy=policy,
        set_=set_,
        tenant_weight=tenant_weight,
        interference=interference,
        bus=bus,
        prefetching=prefetching,
        forecasting=forecasting,
        provisioning=provisioning,
        files=files,
        link=link,
        cache=cache,
        predictor=predictor,
        session_lead=session_lead,
        seed=seed,
        json=json,
        plot=plot,
    )
