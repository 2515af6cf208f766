"""The registry of model versions: a directory for each, renamed into place when complete and verified when read."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from aliquot.durable_files import remove_directory, sweep_removed, sync_directory, write_synced
from aliquot.learn.calibration import Calibration
from aliquot.learn.scoring import Score

_MANIFEST, _SERVING, _DRAFT, _LOCK = "manifest.json", "serving.json", ".unfinished-", "training.lock"
_DIGITS = 6


class BrokenVersionError(Exception):
    """A version is damaged. The text gives the reason."""


class EpochResult(Struct, frozen=True):
    """The result of one round of the network's training."""

    epoch: int
    learned_loss: float
    held_back_loss: float
    top1: float  # 0 for networks that forecast demand
    top5: float
    seconds: float  # since the training started
    network: str = ""  # its name, if a version has several


class VersionCard(Struct, frozen=True, kw_only=True):
    """The description of a version, stored as `manifest.json`. Its field names are a format on disk."""

    version: int
    created: int  # milliseconds since the epoch
    winner: str  # the best predictor on what was held back
    accepted: bool  # it was better than the serving version
    why: str
    files: dict[str, str] = {}  # SHA-256 by file name


class Manifest(VersionCard, frozen=True, kw_only=True):
    """The description of a version of the predictors of files."""

    scores: dict[str, Score]
    sessions: int
    held_back: int
    steps: int
    until_s: float  # start of the newest session that it was trained on
    weights: dict[str, float] = {}  # weights of the blend's parts
    calibration: Calibration = Calibration()
    curve: list[EpochResult] = []
    without: str = ""  # why it has no network; empty if it has one


CardT = TypeVar("CardT", bound=VersionCard)


class ServingState(Struct, frozen=True):
    """The version that serves, stored as `serving.json`. Its field names are a format on disk."""

    version: int = 0  # 0: there is no version yet
    pinned: bool = False  # chosen by the operator: a better version does not replace it
    before: list[int] = []  # versions that served before, the latest last
    predictor: str = ""  # chosen by the operator; empty: the version's winner


class ModelRegistry(Generic[CardT]):
    """The versions in a directory. Any process may read them. One at a time may train, under the lock of `training`."""

    def __init__(self, directory: Path, card_type: type[CardT]) -> None:
        self.directory = directory
        self._card_type = card_type
        directory.mkdir(parents=True, exist_ok=True)

    # --- versions -----------------------------------------------------------------------------------------

    def versions(self) -> list[CardT]:
        """Return the manifests that can be read, oldest first."""
        found = []
        for number in self._numbers():
            with suppress(BrokenVersionError):
                found.append(self.manifest(number))
        return found

    def manifest(self, version: int) -> CardT:
        """Read a version's manifest. Raises `BrokenVersionError`."""
        try:
            return msgspec.json.decode((self.folder(version) / _MANIFEST).read_bytes(), type=self._card_type)
        except (OSError, msgspec.DecodeError) as error:
            raise BrokenVersionError(f"version {version}: {error}") from error

    def read(self, manifest: VersionCard) -> dict[str, bytes]:
        """Return a version's files after checking them. Raises `BrokenVersionError`."""
        found = {}
        for name, checksum in manifest.files.items():
            try:
                data = (self.folder(manifest.version) / name).read_bytes()
            except OSError as error:
                raise BrokenVersionError(f"version {manifest.version}: {error}") from error
            if sha256(data).hexdigest() != checksum:
                raise BrokenVersionError(f"version {manifest.version}: {name} does not match its checksum")
            found[name] = data
        return found

    def next_version(self) -> int:
        return max([*self._numbers(), self.serving().version], default=0) + 1

    def add(self, manifest: CardT, files: Mapping[str, bytes]) -> None:
        """Add a version atomically."""
        folder, draft = self.folder(manifest.version), self.directory / f"{_DRAFT}{manifest.version}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        checksums = {name: sha256(data).hexdigest() for name, data in files.items()}
        complete = msgspec.structs.replace(manifest, files=checksums)
        for name, data in {**files, _MANIFEST: msgspec.json.encode(complete)}.items():
            write_synced(draft / name, data)
        sync_directory(draft)
        draft.rename(folder)
        sync_directory(self.directory)

    def prune(self, keep: int) -> None:
        """Delete the oldest versions, but not the serving one or the one before it."""
        serving = self.serving()
        safe = {serving.version, *serving.before[-1:]}
        for number in self._numbers()[: -keep or None]:
            if number not in safe:
                remove_directory(self.folder(number))

    def sizes(self, version: int) -> dict[str, int]:
        with suppress(FileNotFoundError):
            return {path.name: path.stat().st_size for path in sorted(self.folder(version).iterdir())}
        return {}

    # --- the serving version ------------------------------------------------------------------------------

    def serving(self) -> ServingState:
        try:
            return msgspec.json.decode((self.directory / _SERVING).read_bytes(), type=ServingState)
        except (OSError, msgspec.DecodeError):
            return ServingState()

    def serve(self, version: int, *, pinned: bool = False, predictor: str | None = None) -> ServingState:
        """Make a version serve. A predictor chosen earlier stays, unless another is given."""
        old = self.serving()
        before = [*old.before, old.version] if old.version and old.version != version else list(old.before)
        return self._set(ServingState(version, pinned, before[-50:], old.predictor if predictor is None else predictor))

    def unpin(self) -> ServingState:
        """Undo the operator's choice and serve the newest accepted version."""
        best = max((one.version for one in self.versions() if one.accepted), default=0)
        self.serve(best or self.serving().version, predictor="")
        return self._set(msgspec.structs.replace(self.serving(), pinned=False))

    def roll_back(self) -> ServingState:
        """Serve the last earlier version that can be read, and pin it. Raises `BrokenVersionError`."""
        old = self.serving()
        before = list(old.before)
        while before:
            version = before.pop()
            with suppress(BrokenVersionError):
                self.read(self.manifest(version))
                return self._set(ServingState(version, pinned=True, before=before))
        raise BrokenVersionError("there is no version that served before this one")

    def _set(self, serving: ServingState) -> ServingState:
        draft = self.directory / f"{_DRAFT}{_SERVING}"
        write_synced(draft, msgspec.json.encode(serving))
        draft.replace(self.directory / _SERVING)
        sync_directory(self.directory)
        return serving

    # --- training -----------------------------------------------------------------------------------------

    @contextmanager
    def training(self) -> Iterator[Path]:
        """Lock the registry and yield a work directory. Raises `BlockingIOError` while another process trains."""
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
        """Delete versions that a killed training was writing or removing."""
        sweep_removed(self.directory)
        for left in self.directory.glob(f"{_DRAFT}*"):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)

    def folder(self, version: int) -> Path:
        """Return the folder that holds a version."""
        return self.directory / f"{version:0{_DIGITS}}"

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.directory.iterdir() if path.name.isdecimal())
