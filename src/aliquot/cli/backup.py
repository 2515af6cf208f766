"""`aliquot backup` and `aliquot restore`: the data folder of a server in one file."""

from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import check_writable, say
from aliquot.cli.gateway import AsJson, Data
from aliquot.cli.results import clock, print_json, size
from aliquot.cli.up import DEFAULT_DATA
from aliquot.core.errors import InputError
from aliquot.live.store.backup import DataParts, restore_backup, write_backup
from aliquot.sdk.server import find_folder

PARTS = DataParts(("fabric/accesses.db",), ("fabric/models",), "volumes")  # of the storage agent


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write, such as aliquot.tar or aliquot.tar.gz.")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Back up a server into one file, while it runs or after it stopped.

    The file has namespaces, functions, records, accepted calls, the journal, the operator's token, secrets with their
    key, and models, as they were at one moment, and the files of volumes. Keep it secret. Environments and cached files
    of datasets are not in it: they are made again.

    For example: [bold]aliquot backup monday.tar.gz[/]
    """
    check_writable(file, "FILE")
    folder = Path(find_folder(data))
    manifest = write_backup(folder, file.absolute(), PARTS)
    if as_json:
        print_json({"file": str(file), "data": str(folder), "bytes": manifest.total_bytes})
    else:
        say(f"wrote {file}: {size(manifest.total_bytes)} of {folder}")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that aliquot backup has written.")],
    data: Annotated[
        Path, typer.Option(envvar="ALIQUOT_DATA", help="The data folder to make. It must not have a database yet.")
    ] = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a new data folder, on this machine or another. Then start it with aliquot up.

    Keys stay valid. Calls that were accepted and had not ended are run again or end as interrupted, as after a crash.

    For example: [bold]aliquot restore monday.tar.gz --data /srv/aliquot[/]
    """
    if not file.is_file():
        raise InputError(f"FILE: there is no file {file}")
    folder = data.expanduser().absolute()
    manifest = restore_backup(file, folder, PARTS)
    if as_json:
        print_json({"file": str(file), "data": str(folder), "bytes": manifest.total_bytes})
    else:
        made = clock(int(manifest.created * 1000))
        say(f"restored {folder} as of {made} (Aliquot {manifest.version}); start it: aliquot up --data {folder}")
