"""`aliquot doctor`: checks what this machine offers, and says what follows from anything missing."""

import os
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import say
from aliquot.cli.gateway import AsJson
from aliquot.cli.results import print_json, show, table


def doctor(
    data: Annotated[
        Path | None, typer.Option(help="The data folder of the platform.", show_default="~/.aliquot")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if anything is missing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine: the isolation that it offers for sandboxes, the runtimes, and the free disk space."""
    import msgspec

    from aliquot.live.node.doctor import examine

    place = data or Path(os.environ.get("ALIQUOT_DATA") or Path.home() / ".aliquot")
    findings = examine(place)
    missing = [finding for finding in findings if not finding.ok]
    if as_json:
        print_json([msgspec.to_builtins(finding) for finding in findings])
    else:
        rows = table("", "", "", "", names=2)
        rows.show_header, rows.columns[2].no_wrap = False, False
        for finding in findings:
            rows.add_row("yes" if finding.ok else "no", finding.name, finding.detail)
            if not finding.ok and finding.consequence:
                rows.add_row("", "", f"so: {finding.consequence}")
        show(rows)
        say(
            f"{len(findings) - len(missing)} of {len(findings)} are available" if missing else "everything is available"
        )
    if strict and missing:
        raise typer.Exit(1)
