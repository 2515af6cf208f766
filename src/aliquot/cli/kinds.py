"""`aliquot kinds`: shows and installs the packages that functions of each kind find without asking for them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import output, say
from aliquot.cli.gateway import AsJson
from aliquot.cli.results import print_json

app = typer.Typer(help="The packages that functions of each kind have without requirements.", no_args_is_help=True)
Data = Annotated[Path | None, typer.Option(help="The data folder of the platform.", show_default="~/.aliquot")]


def _folder(data: Path | None) -> Path:
    return (data or Path(os.environ.get("ALIQUOT_DATA") or Path.home() / ".aliquot")).expanduser().absolute()


@app.command("list")
def list_kinds(data: Data = None, as_json: AsJson = False) -> None:
    """List the kinds, and whether their packages are installed."""
    from aliquot.live.node.kind_packages import PACKAGES, KindFolder

    listed = []
    for kind in PACKAGES:
        folder = KindFolder(_folder(data), kind)
        found = folder.installed()
        missing = folder.packages if found is None else found.missing
        listed.append({"kind": kind, "packages": folder.packages, "missing": missing, "folder": str(folder.path)})
    if as_json:
        print_json(listed)
        return
    for one in listed:
        have = [package for package in one["packages"] if package not in one["missing"]]
        output.print(f"[bold]{one['kind']}[/]  ", end="", highlight=False)
        say(", ".join(have) or "no packages; install them with: aliquot kinds install")


@app.command()
def install(
    data: Data = None,
    again: Annotated[
        bool, typer.Option("--again", help="Install packages anew that are there. Stop servers first that use them.")
    ] = False,
) -> None:
    """Install the packages of OpenWhisk's kinds into the data folder. A server finds them at its next start."""
    from aliquot.live.node.kind_installation import InstallationError, install_packages, installable_kinds

    failed = False
    for kind in installable_kinds():
        try:
            folder = install_packages(_folder(data), kind, say, again=again)
        except (InstallationError, OSError) as error:
            failed = True
            say(f"{kind}: {error}")
        else:
            say(f"{kind}: complete, in {folder.path}")
    if failed:
        raise typer.Exit(1)
    say("Servers with this data folder find the packages when they start.")
