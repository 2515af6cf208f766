"""`aliquot trace`: writes what a server did as a trace for Perfetto."""

import time
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import check_writable, say
from aliquot.cli.results import count
from aliquot.core.errors import InputError
from aliquot.sdk.server import find_folder
from aliquot.sdk.units import read_ms


def trace(
    out: Annotated[Path, typer.Option(help="The file to write, .json or .json.gz.")] = Path("aliquot-trace.json.gz"),
    last: Annotated[str, typer.Option(help="The time before now that is written.")] = "60s",
    data: Annotated[
        Path | None,
        typer.Option(
            help="The platform's data folder.",
            show_default="ALIQUOT_DATA, then ~/.aliquot, then that of the only server that runs",
        ),
    ] = None,
) -> None:
    """Write the last minutes of a server as a trace: devices, sandboxes, starts, runs and waits. For the operator.

    Open the file with https://ui.perfetto.dev or speedscope. The trace comes from the journal, so the server may be
    running or stopped, and names all tenants.
    """
    from aliquot.live.history.trace_file import write_trace

    if not out.name.endswith((".json", ".json.gz")):
        raise InputError(f"--out: '{out}' has another suffix; it takes .json or .json.gz")
    check_writable(out, "--out")
    since_s = time.time() - read_ms(last, "--last") / 1000
    written = write_trace(Path(find_folder(data)).expanduser(), out, since_s)
    say(f"wrote {out}: {count(written.calls, 'call')}; open it with https://ui.perfetto.dev")
    if written.is_cut:
        say("There were more calls. Take a shorter --last for the newest ones.")
