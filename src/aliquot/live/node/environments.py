"""Environments: each set of requirements is installed once, kept in the data directory, and shared by functions."""

import asyncio
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import structlog

from aliquot.core.units import MIB
from aliquot.durable_files import remove_directory, sweep_removed
from aliquot.live.node.isolation import Isolation, uid_range, walls
from aliquot.runtime import frames

_BUILDER = Path(frames.__file__).parent / "builder.py"
_DIRECTORY, _SCRATCH, _COMPLETE = "environments", ".scratch", ".complete"
_LINE_BYTES = MIB
_LAST_LINES = 5
_INSTALL = ("install", "--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--progress-bar=off")
# An installation gets only the variables of the server's environment that say how to reach packages.
_INHERITED_PREFIXES = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")

Progress = Callable[[str, str], None]
log = structlog.get_logger(__name__)


class RequirementsError(Exception):
    """The requirements cannot be installed. The text quotes the installer."""


class Environments:
    def __init__(self, data: Path, isolation: Isolation, progress: Progress | None = None) -> None:
        self._data = data
        self._directory = data / _DIRECTORY
        self._isolation = isolation
        self._progress = progress
        self._builds: dict[str, asyncio.Task[Path]] = {}

    async def python(self, requirements: tuple[str, ...]) -> Path:
        """Return the interpreter of an environment with these requirements. The first request builds it."""
        check_requirements(requirements)
        name = self._name(requirements)
        build = self._builds.get(name)
        if build is None:
            build = self._builds[name] = asyncio.create_task(self._provide(name, requirements))
            build.add_done_callback(lambda _: self._builds.pop(name, None))
        return await asyncio.shield(build)

    def _name(self, requirements: tuple[str, ...]) -> str:
        version = f"{sys.implementation.cache_tag} {sys.version_info[:3]} {sys.base_prefix}"
        content = json.dumps([version, sorted({requirement.strip() for requirement in requirements})])
        return hashlib.sha256(content.encode()).hexdigest()[:24]

    async def _provide(self, name: str, requirements: tuple[str, ...]) -> Path:
        directory = self._directory / name
        if not (directory / _COMPLETE).exists():
            await self._build(name, directory, requirements)
        return directory / "bin" / "python"

    async def _build(self, name: str, directory: Path, requirements: tuple[str, ...]) -> None:
        scratch = self._directory / f"{name}{_SCRATCH}"
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._clear, directory, scratch)
        try:
            await self._install(name, directory, scratch, requirements)
            _mark_complete(directory, requirements)
        except BaseException:
            await loop.run_in_executor(None, remove_directory, directory)
            raise
        finally:
            await loop.run_in_executor(None, remove_directory, scratch)

    def _clear(self, *directories: Path) -> None:
        """Make the directories empty, and owned by the user that the installer runs as."""
        for directory in directories:
            remove_directory(directory)
            directory.mkdir(parents=True)
            if self._isolation.own_uid:
                first = uid_range(self._data)[0]
                os.chown(directory, first, first)

    async def _install(self, name: str, directory: Path, scratch: Path, requirements: tuple[str, ...]) -> None:
        env, visible = await self._installer_settings()
        around = walls(self._isolation, self._data, visible)
        around["writable"] = [str(directory), str(scratch)]
        settings: dict[str, Any] = {
            "isolation": around,
            "directory": str(directory),
            "scratch": str(scratch),
            "has_pip": has_pip(),
            "install": _INSTALL,
            "requirements": sorted(requirements),
        }
        self._report(name, f"installing {', '.join(sorted(requirements))}")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(_BUILDER), json.dumps(settings), env=env, cwd="/", limit=_LINE_BYTES,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        lines: list[str] = []
        try:
            assert process.stdout is not None  # noqa: S101 - asked for above
            async for line in process.stdout:
                text = line.decode(errors="replace").rstrip()
                if text:
                    lines = [*lines[-200:], text]
                    self._report(name, text)
            status = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            raise
        if status:
            raise RequirementsError(f"The requirements could not be installed: {_error_lines(lines)}")
        self._report(name, "complete")

    def _report(self, name: str, line: str) -> None:
        log.info("environment", environment=name, installer=line)
        if self._progress is not None:
            self._progress(name, line)

    async def _installer_settings(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the operator's settings for pip as variables, and the paths that they name."""
        env = {key: value for key, value in os.environ.items() if key.upper().startswith(_INHERITED_PREFIXES)}
        if has_pip():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "pip", "config", "list", stdout=asyncio.subprocess.PIPE
            )
            said, _ = await process.communicate()
            env = pip_variables(said.decode(errors="replace")) | env
        env |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PIP_NO_CACHE_DIR": "1"}
        return env, paths_in(env)

    async def stop(self) -> None:
        builds = list(self._builds.values())
        for build in builds:
            build.cancel()
        await asyncio.gather(*builds, return_exceptions=True)


def sweep_environments(data: Path) -> None:
    """Delete the environments that an earlier server was building or removing when it ended."""
    directory = data / _DIRECTORY
    sweep_removed(directory)
    for path in directory.glob("*"):
        if path.suffix == _SCRATCH or not (path / _COMPLETE).exists():
            remove_directory(path)


def _mark_complete(directory: Path, requirements: tuple[str, ...]) -> None:
    """Write the mark atomically, so that a full disk leaves no mark."""
    draft = directory / f"{_COMPLETE}.draft"
    draft.write_text("\n".join(requirements))
    draft.replace(directory / _COMPLETE)


def check_requirements(requirements: tuple[str, ...]) -> None:
    for requirement in requirements:
        if requirement.lstrip().startswith("-") or "\n" in requirement or not requirement.strip():
            raise RequirementsError(
                f"The requirement {requirement!r} is not one: give what pip takes as a package, such as 'numpy>=2'."
            )


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


def _error_lines(lines: list[str]) -> str:
    """Return the installer's errors, or its last lines."""
    errors = [line for line in lines if line.lstrip().startswith(("ERROR", "error:"))]
    return " ".join((errors or lines or ["it said nothing"])[-_LAST_LINES:])
