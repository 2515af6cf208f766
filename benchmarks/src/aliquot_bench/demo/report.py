"""The table and the picture of the tenants' calls."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, quantiles

from rich.table import Table

from aliquot.tables import FittedTable
from aliquot_bench.demo.tenants import TENANTS, CallSample


def latency_table(samples: Sequence[CallSample]) -> Table:
    table = FittedTable(title="Latency by tenant, as the callers saw it", title_justify="left")
    for column in ("tenant", "calls", "how", "function", "device"):
        table.add_column(column)
    for column in ("failed", "cold", "p50 ms", "p95 ms", "p99 ms", "max ms", "mean wait ms"):
        table.add_column(column, justify="right")
    for tenant in TENANTS:
        own = [sample for sample in samples if sample.tenant == tenant.name]
        if len(own) < 2:  # noqa: PLR2004 - quantiles need two values
            table.add_row(tenant.name, str(len(own)), tenant.pattern, tenant.action)
            continue
        latencies = sorted(1000 * sample.latency_s for sample in own)
        cuts = quantiles(latencies, n=100, method="inclusive")
        table.add_row(
            tenant.name,
            str(len(own)),
            tenant.pattern,
            tenant.action,
            ", ".join(sorted({sample.device for sample in own})),
            str(sum(not sample.ok for sample in own)),
            str(sum(sample.cold for sample in own)),
            *(f"{cuts[percent - 1]:.1f}" for percent in (50, 95, 99)),
            f"{latencies[-1]:.1f}",
            f"{1000 * fmean(sample.wait_s for sample in own):.1f}",
        )
    return table


def draw(samples: Sequence[CallSample], path: Path) -> None:
    """Draw the latency of every call against its start. Warm calls are dots, cold ones crosses."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, tenant in enumerate(TENANTS):
        own = [sample for sample in samples if sample.tenant == tenant.name]
        for cold, marker, size in ((False, ".", 9), (True, "x", 60)):
            shown = [sample for sample in own if sample.cold is cold]
            axes.scatter(
                [sample.at_s for sample in shown],
                [1000 * sample.latency_s for sample in shown],
                s=size,
                marker=marker,
                color=f"C{number}",
                label=f"{tenant.name} ({tenant.pattern})" if not cold else None,
            )
    axes.set_yscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("latency, ms")
    axes.set_title("Three tenants on one machine; a cross is a cold start")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)
