"""`aliquot grafana`: writes a dashboard for Grafana."""

import json
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import check_writable, say
from aliquot.core.errors import InputError


def grafana(
    out: Annotated[Path, typer.Option(help="The file to write, .json.")] = Path("aliquot-dashboard.json"),
) -> None:
    """Write a dashboard for Grafana with the metrics of a server.

    Import the file in Grafana (Dashboards, New, Import), and choose the Prometheus that reads the server's `/metrics`.
    """
    from aliquot.dashboard import PANELS, build_dashboard

    if out.suffix != ".json":
        raise InputError(f"--out: '{out}' has another suffix; it takes .json")
    check_writable(out, "--out")
    out.write_text(json.dumps(build_dashboard(), indent=2) + "\n", encoding="utf-8")
    charts = sum(len(row) for row in PANELS.values())
    say(f"wrote {out}: {charts} charts; import it in Grafana (Dashboards, New, Import)")
