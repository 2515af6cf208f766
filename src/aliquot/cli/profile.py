"""`aliquot profile`: what applications do over time, and the share and memory that they should request."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from aliquot.cli.console import output, say
from aliquot.cli.gateway import AsJson
from aliquot.cli.results import clock, percent, print_json, seconds, show, size, table
from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.sdk.server import find_folder
from aliquot.sdk.units import read_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aliquot.live.profile.reading import ProfileSummary
    from aliquot.live.profile.records import ProfileRow

GRAINS_S = {"1s": 1, "1m": 60}
EXPORTS = (".csv", ".json")
MAX_SHOWN_ROWS = 40

app = typer.Typer(help="Show what applications do over time, and advise their share and memory. For the operator.")

Grain = Annotated[str, typer.Option(help="The length of a row: 1s or 1m.")]
Last = Annotated[str, typer.Option(help="The time before the newest row, or all.")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="The platform's data folder.",
        show_default="ALIQUOT_DATA, then ~/.aliquot, then that of the only server that runs",
    ),
]


@app.command("list")
def list_profiles(grain: Grain = "1s", last: Last = "1h", data: Data = None, as_json: AsJson = False) -> None:
    """List the applications that ran, with peaks, sums and advice.

    The command reads the data folder, so the platform need not run.
    """
    from aliquot.live.profile.reading import summary

    found = [summary(rows) for rows in _read(grain, last, data).values()]
    if as_json:
        print_json(msgspec.to_builtins(found))
    elif not found:
        output.print("no profiles of that time; --last all shows all that are kept")
    else:
        _show_list(found)


@app.command("show")
def show_profile(
    function: Annotated[str, typer.Argument(help="The function: NAME, or /NAMESPACE/NAME.")],
    grain: Grain = "1s",
    last: Last = "1h",
    plot: Annotated[Path | None, typer.Option(help="Draw the rows to this file (.png, .svg, .pdf).")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the rows to this file (.csv or .json).")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show one application's rows and the share and memory that it should request: the 95 % quantile and a tenth."""
    from aliquot.live.profile.reading import summary

    if export is not None and export.suffix not in EXPORTS:
        raise InputError(f"--export: {export} is neither .csv nor .json")
    if plot is not None:
        from aliquot.sim.plots import check_plot

        check_plot(plot)
    found = _read(grain, last, data)
    matching = [key for key in found if function in (key[1], f"/{key[0]}/{key[1]}")]
    if len(matching) != 1:
        known = ", ".join(f"/{tenant}/{name}" for tenant, name in matching or found) or "none"
        raise InputError(f"{function} is {'several' if matching else 'not'} in the profiles; take one of: {known}")
    rows = found[matching[0]]
    if plot is not None:
        _draw(rows, plot)
    if export is not None:
        _export(rows, export)
        say(f"wrote {export}")
    if as_json:
        print_json({"summary": msgspec.to_builtins(summary(rows)), "rows": [_fields(row) for row in rows]})
        return
    _show_rows(rows)
    _show_list([summary(rows)])


def _read(grain: str, last: str, data: Path | None) -> "dict[tuple[str, str], list[ProfileRow]]":
    from aliquot.live.profile.reading import read_profiles

    if grain not in GRAINS_S:
        raise InputError(f"--grain: {grain} is unknown; it takes {' or '.join(GRAINS_S)}")
    last_s = None if last == "all" else read_ms(last, "--last") / 1000
    return read_profiles(Path(find_folder(data)).expanduser(), GRAINS_S[grain], last_s)


def _show_list(found: "Sequence[ProfileSummary]") -> None:
    made = table(
        "what one sandbox used at most, and what it should request",
        *("tenant", "function", ">calls", ">at once", ">share", ">requested", ">advised", ">memory", ">limit"),
        *(">advised memory", ">read", ">written", ">calls of the system", ">page faults"),
        names=2,
    )
    for one in found:
        made.add_row(
            one.tenant, one.function, str(one.calls), str(one.at_once), percent(one.share) if one.request else "",
            percent(one.request) if one.request else "", percent(one.advice.share), size(one.memory_bytes),
            size(one.memory_limit), size(one.advice.memory_bytes), size(one.read_bytes), size(one.written_bytes),
            str(one.system_calls), str(one.faults),
        )  # fmt: skip
    show(made)


def _show_rows(rows: "Sequence[ProfileRow]") -> None:
    made = table("", "time", ">calls", ">at once", ">starts", ">compute", ">share", ">memory", ">read", ">written", "")
    for row in rows[-MAX_SHOWN_ROWS:]:
        made.add_row(
            clock(row.t_s * 1000), str(row.calls), str(row.at_once), str(row.starts), seconds(row.compute_s),
            percent(row.share) if row.request else "", size(row.memory_bytes), size(row.read_bytes),
            size(row.written_bytes), "cold" if row.cold else "",
        )  # fmt: skip
    show(made)


def _fields(row: "ProfileRow") -> dict[str, object]:
    return msgspec.structs.asdict(row)


def _export(rows: "Sequence[ProfileRow]", path: Path) -> None:
    fields = [_fields(row) for row in rows]
    if path.suffix == ".json":
        path.write_bytes(msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n")
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [name for name in fields[0] if name != "grams"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(fields)


def _draw(rows: "Sequence[ProfileRow]", path: Path) -> None:
    from aliquot.sim.plots import PlotLine, PlotPanel, broken_at_gaps, draw_panels

    began_s, grain_s = rows[0].t_s, rows[0].grain_s
    at_s = [float(row.t_s - began_s) for row in rows]
    since = f"seconds since {clock(began_s * 1000)}"

    def panel(title: str, unit: str, **lines: list[float]) -> PlotPanel:
        drawn = [PlotLine(name, *broken_at_gaps(at_s, values, 1.5 * grain_s)) for name, values in lines.items()]
        return PlotPanel(title, since, unit, drawn)

    panels = [
        panel("calls", "", calls=[float(row.calls) for row in rows], most=[float(row.at_once) for row in rows]),
        panel("compute", "seconds in a row", compute=[row.compute_s for row in rows]),
        panel("memory of the largest sandbox", "MiB", memory=[row.memory_bytes / MIB for row in rows]),
        panel(
            "transfers", "MiB",
            read=[row.read_bytes / MIB for row in rows], written=[row.written_bytes / MIB for row in rows],
        ),
    ]  # fmt: skip
    draw_panels(panels, f"{rows[0].tenant}/{rows[0].function}", path, columns=2)
