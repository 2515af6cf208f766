"""A NAS with nothing but rsync, as a daemon (`rsync://host/module/path`) or over SSH (`host:/path`): whole files."""

import errno
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from calendar import timegm
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aliquot.core.errors import InputError
from aliquot.storage.errors import AbsentError, ChangedError, OriginError
from aliquot.storage.origins.base import CopyProgress, Origin
from aliquot.storage.origins.complaints import StderrReader
from aliquot.storage.paths import check_path
from aliquot.storage.records import Listed

# -rw-r--r--          1,234 2026/01/02 03:04:05 train/0001.png
_LINE = re.compile(r"(?P<kind>.)\S+\s+(?P<size>[\d,]+) (?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) (?P<path>.*)")
_ESCAPED = re.compile(rb"\\#(\d{3})")
POLL_INTERVAL_S = 0.02
SETTLED_S = 1.1  # rsync tells times in seconds: a file that was left alone for longer has another after the next write
SILENCE_TIMEOUT_S = 30  # without a byte: given up
PARTIAL_TRANSFER = 23  # "partial transfer": the named file is not there, among others
MAX_LINE_BYTES = 1 << 15  # a path, every byte of it escaped, and what is said of it
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"


class RsyncOrigin(Origin):
    """Options: `password` (of the daemon's module), `ssh` (the remote shell's command). Links are not followed."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        super().__init__(url, options)
        unknown = sorted(set(options) - {"password", "ssh"})
        if unknown:
            raise InputError(f"options {', '.join(unknown)}: rsync takes password and ssh")
        if url.startswith("-") or "\0" in url:
            raise InputError(f"url {url!r}: rsync://host/module/folder, or host:/folder")
        self._source = url.rstrip("/") + "/"
        # A daemon is spoken to directly; with a remote shell it would be started there.
        shell = options.get("ssh", "" if "::" in url or "://" in url else SSH)
        self._shell = ["--rsh", shell] if shell else []
        self._password = options.get("password", "")

    @property
    def link(self) -> str:
        return f"host {_host(self.shown_url)}"

    def check(self) -> None:
        self._run(["--list-only", "--dirs"], "cannot be listed")

    def files(self) -> Iterator[Listed]:
        with self._running(["--list-only", "--recursive"]) as process:
            complaints = StderrReader(process)
            if process.stdin is not None:
                process.stdin.close()
            for line in self._lines(process):
                listed = _listed(line)
                if listed is not None:
                    yield listed
            self._judge(process.wait(), complaints.all(), "cannot be listed", "")

    def stat(self, path: str) -> Listed:
        listed = self._stat(path)
        age_s = time.time() - listed.mtime_s
        if 0 <= age_s < SETTLED_S:
            time.sleep(SETTLED_S - age_s)
            listed = self._stat(path)
        return listed

    def _stat(self, path: str) -> Listed:
        wanted = check_path(path).encode() + b"\0"
        # Named on the standard input and not as an argument: the other side would take [ and * for patterns.
        options = ["--list-only", "--files-from=-", "--from0"]
        said = self._run(options, f"{path} cannot be asked after", wanted, path)
        found = [listed for line in said.splitlines() if (listed := _listed(line)) and listed.path == path]
        if not found:
            raise AbsentError(f"{self.shown_url}: has no file {path}")
        return found[0]

    def ranged(self, listed: Listed) -> bool:
        return False

    def pieces(self, listed: Listed, offset: int, length: int) -> Iterator[memoryview]:
        raise OriginError(f"{self.shown_url}: rsync brings whole files, no parts of {listed.path}")

    def copy(self, listed: Listed, target: Path, go: CopyProgress) -> None:
        check_path(listed.path)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as folder:
            self._bring(listed, Path(folder), go)
            brought = Path(folder) / listed.path.rpartition("/")[2]
            if brought.is_symlink() or not brought.is_file():
                raise AbsentError(f"{self.shown_url}: has no file {listed.path}")
            if brought.stat().st_size != listed.size:
                raise ChangedError(f"{self.shown_url}: {listed.path} has changed")
            brought.rename(target)

    def confirm(self, listed: Listed) -> None:
        if self.stat(listed.path).version != listed.version:
            raise ChangedError(f"{self.shown_url}: {listed.path} has changed")

    def _bring(self, listed: Listed, folder: Path, go: CopyProgress) -> None:
        # --inplace: the file grows under its own name, in a folder of its own, and can be watched.
        options = ["--files-from=-", "--from0", "--no-relative", "--inplace", "--partial", "--sparse", "--whole-file"]
        name = folder / listed.path.rpartition("/")[2]
        with self._running(options, folder) as process:
            self._tell(process, listed.path.encode() + b"\0")
            complaints = StderrReader(process)
            paused = False
            while process.poll() is None:
                goes_on = go(name.stat().st_size if name.exists() else 0)
                if goes_on is paused:  # it is stopped by a signal: the other side stops when the connection is full
                    process.send_signal(signal.SIGCONT if goes_on else signal.SIGSTOP)
                    paused = not goes_on
                time.sleep(POLL_INTERVAL_S)
            self._judge(process.wait(), complaints.all(), f"{listed.path} cannot be read", listed.path)

    def _run(self, options: list[str], doing: str, said: bytes = b"", path: str = "") -> str:
        # A list of names wants a target, though nothing is written there.
        with self._running(options, Path("/nonexistent") if said else None) as process:
            try:
                out, errors = process.communicate(said, timeout=2 * SILENCE_TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                raise OriginError(f"{self.shown_url}: {doing}: no answer for {2 * SILENCE_TIMEOUT_S} s") from error
            self._judge(process.returncode, errors, doing, path)
            return os.fsdecode(out)

    @contextmanager
    def _running(self, options: list[str], target: Path | None = None) -> Iterator["subprocess.Popen[bytes]"]:
        program = shutil.which("rsync")
        if program is None:
            raise OriginError(f"{self.shown_url}: needs the program rsync, which is not installed here")
        command = [
            program,
            "--8-bit-output",
            "--no-human-readable",
            "--no-motd",
            "--times",
            f"--timeout={SILENCE_TIMEOUT_S}",
        ]
        command += [*self._shell, *options, self._source, *([f"{target}/"] if target else [])]
        # Times in UTC, for a listing shows them in this machine's; a group of its own, for Ctrl-C is not for it.
        surroundings = {**os.environ, "TZ": "UTC", "LC_ALL": "C", "RSYNC_PASSWORD": self._password}
        pipe = subprocess.PIPE
        process = subprocess.Popen(  # noqa: S603 - no shell; the address does not begin with a dash
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=surroundings, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    @staticmethod
    def _tell(process: "subprocess.Popen[bytes]", said: bytes) -> None:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            process.stdin.write(said)
            process.stdin.close()
        except BrokenPipeError:  # it has ended already, and says why
            pass

    def _lines(self, process: "subprocess.Popen[bytes]") -> Iterator[str]:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while line := process.stdout.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise OriginError(f"{self.shown_url}: cannot be listed: a line of more than {MAX_LINE_BYTES} bytes")
            yield os.fsdecode(line.rstrip(b"\n"))

    def _judge(self, code: int, errors: bytes, doing: str, path: str) -> None:
        said = os.fsdecode(errors).strip()
        if code == PARTIAL_TRANSFER and path and "No such file" in said:
            raise AbsentError(f"{self.shown_url}: has no file {path}")
        if code != 0 and os.strerror(errno.ENOSPC) in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if code != 0:
            raise self.failed(doing, RuntimeError(said or f"rsync ended with {code}"))


def _listed(line: str) -> Listed | None:
    match = _LINE.fullmatch(line)
    if match is None or match["kind"] != "-":
        return None
    size = int(match["size"].replace(",", ""))
    name = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), os.fsencode(match["path"]))
    when = timegm(time.strptime(match["time"], "%Y/%m/%d %H:%M:%S"))
    return Listed(os.fsdecode(name), size, f"{when:x}-{size:x}", mtime_s=float(when))


def _host(url: str) -> str:
    if "://" in url:
        return urlsplit(url).hostname or ""
    return unquote(url.partition(":")[0]).rpartition("@")[2]
