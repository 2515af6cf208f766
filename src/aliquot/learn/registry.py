"""The versions of what was learned, one directory each: written aside and renamed when whole, checked when read."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.durable_files import remove_directory, sweep_removed, sync_directory, write_synced
from aliquot.learn.calibration import Calibration
from aliquot.learn.scoring import Score

_MANIFEST, _SERVING, _ASIDE, _LOCK = "manifest.json", "serving.json", ".unfinished-", "training.lock"
_DIGITS = 6


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return int(time.time() * 1000)


class BrokenVersionError(Exception):
    """A version is not as it was written; the text says what is wrong."""


class EpochResult(Struct, frozen=True):
    """One round of the network over what it learns from."""

    epoch: int
    learned_loss: float
    held_back_loss: float
    top1: float
    top5: float
    seconds: float  # since the training began


class Manifest(Struct, frozen=True):
    version: int
    created: int  # milliseconds of the epoch
    winner: str  # the predictor that won on held-back sessions
    scores: dict[str, Score]
    sessions: int
    held_back: int
    steps: int
    until_s: float  # the newest session that it has seen began then
    accepted: bool  # it did better than the one in use
    why: str
    weights: dict[str, float] = {}  # of the blend
    calibration: Calibration = Calibration()
    curve: list[EpochResult] = []
    without: str = ""  # why there is no network in it
    files: dict[str, str] = {}  # sha256 by name


class ServingState(Struct, frozen=True):
    version: int = 0  # none: nothing has been learned yet
    pinned: bool = False  # the operator's choice: it stays, whatever is learned
    before: list[int] = []  # those that served, the last one last
    predictor: str = ""  # the operator's choice among its predictors; empty: its winner


class ModelRegistry:
    """Any process may read. One trains at a time: `training` holds the lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    # --- versions -----------------------------------------------------------------------------------------

    def versions(self) -> list[Manifest]:
        """Those that can be read, the oldest first."""
        found = []
        for number in self._numbers():
            with suppress(BrokenVersionError):
                found.append(self.manifest(number))
        return found

    def manifest(self, version: int) -> Manifest:
        """Raises `BrokenVersionError`."""
        try:
            return msgspec.json.decode((self._folder(version) / _MANIFEST).read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError) as error:
            raise BrokenVersionError(f"version {version}: {error}") from error

    def read(self, manifest: Manifest) -> dict[str, bytes]:
        """All its files, checked. Raises `BrokenVersionError`."""
        found = {}
        for name, checksum in manifest.files.items():
            try:
                data = (self._folder(manifest.version) / name).read_bytes()
            except OSError as error:
                raise BrokenVersionError(f"version {manifest.version}: {error}") from error
            if sha256(data).hexdigest() != checksum:
                raise BrokenVersionError(f"version {manifest.version}: {name} is not as it was written")
            found[name] = data
        return found

    def next_version(self) -> int:
        return max([*self._numbers(), self.serving().version], default=0) + 1

    def add(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        """It is there as a whole or not at all."""
        folder, aside = self._folder(manifest.version), self.directory / f"{_ASIDE}{manifest.version}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        checksums = {name: sha256(data).hexdigest() for name, data in files.items()}
        whole = msgspec.structs.replace(manifest, files=checksums)
        for name, data in {**files, _MANIFEST: msgspec.json.encode(whole)}.items():
            write_synced(aside / name, data)
        sync_directory(aside)
        aside.rename(folder)
        sync_directory(self.directory)

    def prune(self, keep: int) -> None:
        """The oldest go, but never the one that serves nor the one before it."""
        serving = self.serving()
        safe = {serving.version, *serving.before[-1:]}
        for number in self._numbers()[: -keep or None]:
            if number not in safe:
                remove_directory(self._folder(number))

    def sizes(self, version: int) -> dict[str, int]:
        with suppress(FileNotFoundError):
            return {path.name: path.stat().st_size for path in sorted(self._folder(version).iterdir())}
        return {}

    # --- which one serves ---------------------------------------------------------------------------------

    def serving(self) -> ServingState:
        try:
            return msgspec.json.decode((self.directory / _SERVING).read_bytes(), type=ServingState)
        except (OSError, msgspec.DecodeError):
            return ServingState()

    def serve(self, version: int, *, pinned: bool = False, predictor: str | None = None) -> ServingState:
        """A predictor that was chosen stays so, unless another is given."""
        old = self.serving()
        before = [*old.before, old.version] if old.version and old.version != version else list(old.before)
        return self._set(ServingState(version, pinned, before[-50:], old.predictor if predictor is None else predictor))

    def unpin(self) -> ServingState:
        """The best serves again, whatever the operator chose before."""
        best = max((one.version for one in self.versions() if one.accepted), default=0)
        self.serve(best or self.serving().version, predictor="")
        return self._set(msgspec.structs.replace(self.serving(), pinned=False))

    def roll_back(self) -> ServingState:
        """To the one that served before and can still be read; it stays until another is chosen."""
        old = self.serving()
        before = list(old.before)
        while before:
            version = before.pop()
            with suppress(BrokenVersionError):
                self.read(self.manifest(version))
                return self._set(ServingState(version, pinned=True, before=before))
        raise BrokenVersionError("there is no version that served before this one")

    def _set(self, serving: ServingState) -> ServingState:
        aside = self.directory / f"{_ASIDE}{_SERVING}"
        write_synced(aside, msgspec.json.encode(serving))
        aside.replace(self.directory / _SERVING)
        sync_directory(self.directory)
        return serving

    # --- training -----------------------------------------------------------------------------------------

    @contextmanager
    def training(self) -> Iterator[Path]:
        """A directory to work in, for one at a time. Raises `BlockingIOError` while another trains."""
        lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sweep()
            work = self.directory / "work"
            work.mkdir(exist_ok=True)
            yield work
        finally:
            os.close(lock)

    def _sweep(self) -> None:
        """Delete what a killed training left: versions that it was writing or removing."""
        sweep_removed(self.directory)
        for left in self.directory.glob(f"{_ASIDE}*"):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)

    def _folder(self, version: int) -> Path:
        return self.directory / f"{version:0{_DIGITS}}"

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.directory.iterdir() if path.name.isdecimal())
