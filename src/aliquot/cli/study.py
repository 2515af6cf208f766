"""`aliquot study`: simulates a built-in workload under several policies."""

from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import output
from aliquot.config import PolicySettings
from aliquot.core.errors import InputError


def study(
    out: Annotated[Path, typer.Option(help="The folder for the picture and the figures.")] = Path("study-output"),
    minutes: Annotated[float, typer.Option(min=0.1, help="The minutes to simulate.")] = 30,
    seed: Annotated[int, typer.Option(help="The seed of the workload.")] = 0,
) -> None:
    """Compare scheduling policies on a built-in workload of four tenants on two GPUs."""
    from aliquot.cli.comparison import ComparisonFiles, compare
    from aliquot.sim.experiments.four_tenants import POLICIES, POOL_SLOTS, TENANTS, scenario

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: {out} cannot be made: {error.strerror}") from error
    for tenant, (functions, recipe) in TENANTS.items():
        names = ", ".join(function.name for function in functions)
        output.print(f"[bold]{tenant:7}[/] {recipe.process:8} {names}", highlight=False)
    compare(
        scenario(duration_s=60 * minutes, seed=seed),
        [PolicySettings(name, seed=seed, pool_slots=POOL_SLOTS) for name in POLICIES],
        ComparisonFiles(json=out / "policies.json", plot=out / "policies.png"),
        f"Four tenants on two GPUs for {minutes:g} simulated minutes",
    )
