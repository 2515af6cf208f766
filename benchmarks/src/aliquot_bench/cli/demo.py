"""The command `aliquot demo`."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from aliquot.cli.commands import RUN
from aliquot.cli.console import output, progress, say
from aliquot.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aliquot.live.invocations.journal.replay import ReplayResult
    from aliquot.testing.server import LiveServer
    from aliquot_bench.demo.tenants import CallSample
    from aliquot_bench.demo.workflow import WorkflowResult

OPTIONS = ("--devices", "host:1", "--python", sys.executable, "--admission", "reservation")

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command("demo", rich_help_panel=RUN)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo-output"),
    examples: Annotated[Path, typer.Option(help="The folder with the examples of a clone.")] = Path("examples"),
    seconds: Annotated[float, typer.Option(min=1, help="How many seconds the tenants call.")] = 15,
) -> None:
    """Start the platform, run three tenants, a borrowing slice, prefetched files, a workflow and deadlines on it.

    Then a sandbox is started ahead of a regular call. Tables and pictures show the results.
    """
    from aliquot.testing.server import LiveServer
    from aliquot_bench.demo.ahead import show_ahead
    from aliquot_bench.demo.deadlines import show_deadlines
    from aliquot_bench.demo.files import show_files
    from aliquot_bench.demo.report import draw, latency_table
    from aliquot_bench.demo.slices import borrow_table, draw_borrow, run_borrow
    from aliquot_bench.demo.tenants import run_load

    if not (examples / "matrix").is_dir():
        raise InputError(f"--examples: there is no {examples / 'matrix'}; run this in a clone of the repository")
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop the server and remove its folder, as Ctrl-C does
    with TemporaryDirectory(prefix="aliquot-demo-") as folder:
        examples = shutil.copytree(examples, Path(folder) / "examples")  # the training writes a file there
        server = LiveServer(Path(folder) / "data", *OPTIONS, folder=Path(folder))
        with progress() as bar:
            task = bar.add_task("starting the platform", total=9)
            with server:
                bar.update(task, advance=1, description="deploying the examples")
                keys = _deploy_examples(server, examples)
                # While other tenants call, a tenant with deadlines is promised no more than its share.
                bar.update(task, advance=1, description="calls with deadlines come all at once")
                deadlines = show_deadlines(server)
                bar.update(task, advance=1, description=f"three tenants call for {seconds:g} s")
                samples = run_load(server.url, keys, seconds)
                bar.update(task, advance=1, description="a slice of a tenth borrows the rest of the device")
                borrow = run_borrow(server)
                bar.update(task, advance=1, description="the files of a session are prefetched")
                files = show_files(server)
                bar.update(task, advance=1, description="a workflow paints a picture")
                workflow = _run_workflow(server, examples)
                bar.update(task, advance=1, description="stopping")
            bar.update(task, advance=1, description="a sandbox is started ahead of a regular call")
            ahead = show_ahead(Path(folder))
        from aliquot.live.invocations.journal.replay import replay_file

        replayed = replay_file(server.data)
    output.print(latency_table(samples))
    _tell(samples, replayed)
    output.print(borrow_table(borrow))
    if not borrow.enforced:
        say("Slices are NOT ENFORCED on this machine, as the table shows. `aliquot doctor` says why.")
    if not borrow.ok:
        say("The borrower did NOT get the idle compute, or did not give it back: see the table.")
    for shown in (files, workflow, deadlines, ahead):
        say(shown.text())
    draw(samples, out / "demo.png")
    draw_borrow(borrow, out / "borrow.png")
    say(f"Pictures: {out / 'demo.png'}, {out / 'borrow.png'}")
    shown_ok = all(shown.ok for shown in (borrow, files, workflow, deadlines, ahead))
    if replayed.differences or not shown_ok or not all(sample.ok for sample in samples):
        raise typer.Exit(1)


def _tell(samples: "Sequence[CallSample]", replayed: "ReplayResult") -> None:
    cold = sum(sample.cold for sample in samples)
    say(f"{len(samples)} calls, {cold} of them cold. All processes of the platform have ended.")
    same = "the same commands" if not replayed.differences else "DIFFERENT COMMANDS"
    say(f"Replaying its journal through the core gave {same}: {replayed.steps} steps, {replayed.commands} commands.")


def _deploy_examples(server: "LiveServer", examples: Path) -> dict[str, str]:
    """Deploy one example for each tenant, and return the keys of the tenants."""
    from aliquot_bench.demo.tenants import TENANTS

    _run([sys.executable, examples / "classifier" / "train.py"])
    keys = {tenant.name: server.create_namespace(tenant.name) for tenant in TENANTS}
    files = ("classifier/classifier.py", "matrix/matrix.py", "echo/echo.py")
    for tenant, file in zip(TENANTS, files, strict=True):
        _deploy(examples / file, server.url, keys[tenant.name], *tenant.options)
    return keys


def _run_workflow(server: "LiveServer", examples: Path) -> "WorkflowResult":
    from aliquot_bench.demo.workflow import TENANT, show_workflow

    key = server.create_namespace(TENANT)
    _deploy(examples / "workflows" / "style.py", server.url, key)
    return show_workflow(server, key)


def _deploy(file: Path, url: str, key: str, *options: str) -> None:
    _run([sys.executable, "-m", "aliquot", "deploy", file, *options], {"ALIQUOT_URL": url, "ALIQUOT_KEY": key})


def _run(command: list[object], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(  # noqa: S603 - fixed commands
        [*map(str, command)], env=os.environ | (environment or {}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InputError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
