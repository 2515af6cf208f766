"""The packages that OpenWhisk's images have installed, in folders of their own apart from the server's packages.

The data directory has a folder `kinds`:

    kinds/python-3.11/bare         an environment without packages, made by the server
    kinds/python-3.11/HASH         one with the packages of the kind, made by `aliquot kinds install`
    kinds/nodejs-20/HASH           a folder with `node_modules`, likewise

HASH stands for the list of packages, and for the interpreter of an environment. A folder without the file `.complete`
is left over from an installation that was interrupted.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.durable_files import write_synced
from aliquot.live.store.records import NODEJS, PYTHON

_PACKAGE_NAME = re.compile(r"[<>=@]")  # ends at these
DIRECTORY, COMPLETE, BARE = "kinds", ".complete", "bare"
INSTALL_COMMAND = "aliquot kinds install"
# The lists of OpenWhisk's images. Versions keep the interfaces that its users know.
PACKAGES: dict[str, tuple[str, ...]] = {
    PYTHON: (
        "beautifulsoup4>=4.11,<5",
        "httplib2>=0.21,<1",
        "kafka_python>=2.0.2,<3",
        "lxml>=4.9",
        "netifaces>=0.11,<1",
        "python-dateutil>=2.8,<3",
        "requests>=2.28,<3",
        "scrapy>=2.11,<3",
        "simplejson>=3.18,<4",
        "twisted>=22.10",
    ),
    NODEJS: ("openwhisk@^3.21.0", "redis@^3.1.2", "uuid@^8.3.2"),
}


class InstalledPackages(Struct, frozen=True):
    """The contents of the file that marks a folder as complete."""

    packages: tuple[str, ...]
    missing: tuple[str, ...] = ()  # packages of the list that could not be installed


class KindFolder:
    """The folder of the packages of one kind, whether or not they are installed."""

    def __init__(self, data: Path, kind: str) -> None:
        self.kind = kind
        self.packages = PACKAGES[kind]
        self._parent = (data / DIRECTORY).resolve() / kind.replace(":", "-")
        self.path = self._parent / _hash(kind, self.packages)

    @property
    def bare(self) -> Path:
        """The environment without packages."""
        return self._parent / BARE

    def installed(self) -> InstalledPackages | None:
        """Return what is installed, or None if the installation has not been made or was interrupted."""
        try:
            return msgspec.json.decode((self.path / COMPLETE).read_bytes(), type=InstalledPackages)
        except (OSError, msgspec.DecodeError):
            return None

    def missing(self) -> list[str]:
        """Return the names of the packages that are not installed."""
        found = self.installed()
        return [_PACKAGE_NAME.split(text, 1)[0] for text in (self.packages if found is None else found.missing)]

    def mark_complete(self, missing: tuple[str, ...]) -> None:
        write_synced(self.path / COMPLETE, msgspec.json.encode(InstalledPackages(self.packages, missing)))


def lacking_packages(data: Path, *, python: bool = True, nodejs: bool = True) -> list[str]:
    """Return a line for each of these kinds whose packages are not installed."""
    kinds = [kind for kind, wanted in ((PYTHON, python), (NODEJS, nodejs)) if wanted]
    return [
        f"packages of {kind}: functions do not find {', '.join(missing)}; install them with `{INSTALL_COMMAND}`"
        for kind in kinds
        if (missing := KindFolder(data, kind).missing())
    ]


class KindPackages(Struct, frozen=True):
    """The packages that functions without requirements see."""

    python: str = sys.executable  # the interpreter of functions without requirements
    node_modules: str = ""  # a folder, or empty


def find_packages(data: Path, python: Path | None = None) -> KindPackages:
    """Return the packages of the kinds. Makes an environment without packages if none are installed. Blocks.

    `python` is an interpreter that the operator has chosen instead.
    """
    nodejs = KindFolder(data, NODEJS)
    modules = str(nodejs.path / "node_modules") if nodejs.installed() is not None else ""
    return KindPackages(str(python or _own_python(KindFolder(data, PYTHON))), modules)


def _own_python(folder: KindFolder) -> Path:
    if folder.installed() is not None:
        return interpreter(folder.path)
    if not interpreter(folder.bare).exists():  # also if the interpreter that it refers to is gone
        make_environment(folder.bare)
    return interpreter(folder.bare)


def make_environment(directory: Path, *, with_pip: bool = False) -> None:
    """Make an environment of the server's interpreter without its packages, in place of what is there."""
    import venv  # noqa: PLC0415 - needed once in the life of a data directory

    venv.EnvBuilder(clear=True, symlinks=True, with_pip=with_pip).create(directory)


def interpreter(directory: Path) -> Path:
    return directory / "bin" / "python"


def _hash(kind: str, packages: tuple[str, ...]) -> str:
    version = [*sys.version_info[:3], sys.base_prefix] if kind == PYTHON else []
    return hashlib.sha256(json.dumps([version, packages]).encode()).hexdigest()[:24]
