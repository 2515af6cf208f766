"""Volumes in code: the folder of a volume, in a sandbox and on one's own machine."""

import os
import re
from pathlib import Path

from aliquot.sdk.errors import UsageError

_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VARIABLE = "ALIQUOT_VOLUMES"
_LOCAL = Path(".aliquot", "volumes")  # on one's own machine, in the current folder


def volume(name: str) -> Path:
    """Return the folder of a volume, such as `/volumes/models`.

    In a sandbox the function must name it: `@app.function(volumes=["models"])`. Called as plain Python, the function
    gets a folder `.aliquot/volumes/models` in the current one, which is made if there is none. The environment variable
    `ALIQUOT_VOLUMES` names another folder for all of them.
    """
    if not _NAME.fullmatch(str(name)):
        raise UsageError(f"volume: {name!r} is not the name of a volume; it takes letters, digits and . _ -")
    if "__OW_NAMESPACE" not in os.environ:
        folder = Path(os.environ.get(_VARIABLE) or _LOCAL, name).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    folder = Path(os.environ.get(_VARIABLE, "/volumes"), name)
    if not folder.is_dir():
        raise UsageError(f'volume: this function does not name {name}; add volumes=["{name}"] to its decorator')
    return folder
