"""An rsync server, as a daemon (`rsync://host/module/path`) or over SSH (`host:/path`). It transfers whole files."""

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
from threading import Thread
from typing import IO
from urllib.parse import unquote, urlsplit

from aliquot.core.errors import InputError
from aliquot.core.units import KIB
from aliquot.storage.errors import AbsentError, ChangedError, OriginError
from aliquot.storage.origins.base import CopyProgress, Origin
from aliquot.storage.paths import check_path
from aliquot.storage.records import Listed

# -rw-r--r--          1,234 2026/01/02 03:04:05 train/0001.png
_LINE = re.compile(r"(?P<kind>.)\S+\s+(?P<size>[\d,]+) (?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) (?P<path>.*)")
_ESCAPED = re.compile(rb"\\#(\d{3})")
POLL_INTERVAL_S = 0.02
SETTLED_S = 1.1  # rsync reports whole seconds: only an older file gets another time with its next write
SILENCE_TIMEOUT_S = 30  # without a byte, then rsync gives up
PARTIAL_TRANSFER = 23  # rsync's exit code when, among others, the named file does not exist
MAX_LINE_BYTES = 32 * KIB  # a path with every byte escaped, and its attributes
MAX_STDERR_LINES = 100
MAX_STDERR_LINE_BYTES = 4096
STDERR_TIMEOUT_S = 5.0
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"


class RsyncOrigin(Origin):
    """An origin with the options `password` (of the daemon's module) and `ssh` (the command of the remote shell).

    Links are not followed.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        super().__init__(url, options)
        unknown = sorted(set(options) - {"password", "ssh"})
        if unknown:
            raise InputError(f"options {', '.join(unknown)}: rsync takes password and ssh")
        if url.startswith("-") or "\0" in url:
            raise InputError(f"url {url!r}: rsync://host/module/folder, or host:/folder")
        self._source = url.rstrip("/") + "/"
        # With a remote shell rsync would start a daemon there instead of connecting to the running one.
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
            stderr = StderrReader(process)
            if process.stdin is not None:
                process.stdin.close()
            for line in self._lines(process):
                listed = _listed(line)
                if listed is not None:
                    yield listed
            self._check_exit(process.wait(), stderr.all(), "cannot be listed", "")

    def stat(self, path: str) -> Listed:
        listed = self._stat(path)
        age_s = time.time() - listed.mtime_s
        if 0 <= age_s < SETTLED_S:
            time.sleep(SETTLED_S - age_s)
            listed = self._stat(path)
        return listed

    def _stat(self, path: str) -> Listed:
        wanted = check_path(path).encode() + b"\0"
        # The path goes to stdin: in an argument the other side would expand [ and * as patterns.
        options = ["--list-only", "--files-from=-", "--from0"]
        output = self._run(options, f"{path} cannot be looked up", wanted, path)
        found = [listed for line in output.splitlines() if (listed := _listed(line)) and listed.path == path]
        if not found:
            raise AbsentError(f"{self.shown_url}: has no file {path}")
        return found[0]

    def ranged(self, listed: Listed) -> bool:
        return False

    def pieces(self, listed: Listed, offset: int, length: int) -> Iterator[memoryview]:
        raise OriginError(f"{self.shown_url}: rsync transfers whole files, no parts of {listed.path}")

    def copy(self, listed: Listed, target: Path, may_continue: CopyProgress) -> None:
        check_path(listed.path)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as folder:
            self._transfer(listed, Path(folder), may_continue)
            received = Path(folder) / listed.path.rpartition("/")[2]
            if received.is_symlink() or not received.is_file():
                raise AbsentError(f"{self.shown_url}: has no file {listed.path}")
            if received.stat().st_size != listed.size:
                raise ChangedError(f"{self.shown_url}: {listed.path} has changed")
            received.rename(target)

    def confirm(self, listed: Listed) -> None:
        if self.stat(listed.path).version != listed.version:
            raise ChangedError(f"{self.shown_url}: {listed.path} has changed")

    def _transfer(self, listed: Listed, folder: Path, may_continue: CopyProgress) -> None:
        # --inplace: the file grows under its final name, so that its size shows the progress.
        options = ["--files-from=-", "--from0", "--no-relative", "--inplace", "--partial", "--sparse", "--whole-file"]
        name = folder / listed.path.rpartition("/")[2]
        with self._running(options, folder) as process:
            self._write_stdin(process, listed.path.encode() + b"\0")
            stderr = StderrReader(process)
            paused = False
            while process.poll() is None:
                can_continue = may_continue(name.stat().st_size if name.exists() else 0)
                if can_continue is paused:  # a stopped rsync reads nothing, so the sender blocks as well
                    process.send_signal(signal.SIGCONT if can_continue else signal.SIGSTOP)
                    paused = not can_continue
                time.sleep(POLL_INTERVAL_S)
            self._check_exit(process.wait(), stderr.all(), f"{listed.path} cannot be read", listed.path)

    def _run(self, options: list[str], doing: str, stdin: bytes = b"", path: str = "") -> str:
        # With a list of names rsync needs a target, although it writes nothing there.
        with self._running(options, Path("/nonexistent") if stdin else None) as process:
            try:
                out, errors = process.communicate(stdin, timeout=2 * SILENCE_TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                raise OriginError(f"{self.shown_url}: {doing}: no answer for {2 * SILENCE_TIMEOUT_S} s") from error
            self._check_exit(process.returncode, errors, doing, path)
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
        # A listing shows local times, so the time zone is UTC. A session of its own keeps Ctrl-C away.
        environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C", "RSYNC_PASSWORD": self._password}
        pipe = subprocess.PIPE
        process = subprocess.Popen(  # noqa: S603 - no shell, and the address does not begin with a dash
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
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
    def _write_stdin(process: "subprocess.Popen[bytes]", data: bytes) -> None:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            process.stdin.write(data)
            process.stdin.close()
        except BrokenPipeError:  # it has ended already, and stderr has the reason
            pass

    def _lines(self, process: "subprocess.Popen[bytes]") -> Iterator[str]:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while line := process.stdout.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise OriginError(f"{self.shown_url}: cannot be listed: a line of more than {MAX_LINE_BYTES} bytes")
            yield os.fsdecode(line.rstrip(b"\n"))

    def _check_exit(self, code: int, errors: bytes, doing: str, path: str) -> None:
        message = os.fsdecode(errors).strip()
        if code == PARTIAL_TRANSFER and path and "No such file" in message:
            raise AbsentError(f"{self.shown_url}: has no file {path}")
        if code != 0 and os.strerror(errno.ENOSPC) in message:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if code != 0:
            raise self.failed(doing, RuntimeError(message or f"rsync ended with {code}"))


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


class StderrReader:
    """Reads a program's standard error in a thread and keeps its first lines. An unread pipe would block it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        stream, process.stderr = process.stderr, None  # the thread closes it
        self._kept: list[bytes] = []
        self._thread = Thread(target=self._read, args=(stream,), name="stderr", daemon=True)
        self._thread.start()

    def all(self) -> bytes:
        """Return the lines after the program has ended."""
        self._thread.join(STDERR_TIMEOUT_S)  # a shell started by the program may keep the pipe open
        return b"".join(self._kept)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(MAX_STDERR_LINE_BYTES):
                if len(self._kept) < MAX_STDERR_LINES:
                    self._kept.append(line)
