"""The operator's settings for pip, as an installation gets them."""

import asyncio
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlparse

from msgspec import Struct

# An installation gets only the variables of the server's environment that say how to reach packages.
_INHERITED_PREFIXES = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


class InstallerSettings(Struct, frozen=True):
    """The environment variables of an installation, and the paths that they name."""

    env: dict[str, str]
    visible: tuple[str, ...]


async def read_settings() -> InstallerSettings:
    """Return the operator's settings for pip as variables, and the paths that they name."""
    env = {key: value for key, value in os.environ.items() if key.upper().startswith(_INHERITED_PREFIXES)}
    if has_pip():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pip", "config", "list", stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        env = pip_variables(said.decode(errors="replace")) | env
    env.pop("PIP_CONFIG_FILE", None)  # its settings have been read
    visible = paths_in(env)
    env |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PIP_NO_CACHE_DIR": "1"}
    return InstallerSettings(env | {"PIP_CONFIG_FILE": os.devnull}, visible)


def pip_variables(listed: str) -> dict[str, str]:
    """Convert lines such as `global.extra-index-url='…'` to PIP_EXTRA_INDEX_URL. Section `install` wins."""
    found: dict[str, str] = {}
    for section in ("global", "install"):
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(section + "."):
                found["PIP_" + key.partition(".")[2].upper().replace("-", "_")] = value.strip("'\"")
    return found


def paths_in(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories and files on this machine that the installer's settings name."""
    words = [word for key, value in env.items() if key != "PATH" for word in value.split()]
    # An index in a file refers to files in the same directory.
    paths = [str(Path(urlparse(word).path).parent) if word.startswith("file:") else word for word in words]
    return tuple(sorted({path for path in paths if path.startswith("/") and path != "/" and Path(path).exists()}))


def has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None
