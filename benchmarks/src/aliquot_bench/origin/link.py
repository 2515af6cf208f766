"""A link to the origin with the rate and latency of a NAS.

If the machine permits it, the origin runs in a network namespace behind a veth pair that traffic control limits.
Otherwise the origin limits its own rate. The result says which of the two was used.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec
from msgspec import Struct

from aliquot.core.units import MB
from aliquot_bench.origin.process import OriginListening, OriginSettings, OriginStarted, SentCounts

STOP_TIMEOUT_S = 5
# The id of the process follows the prefix, so that another process can remove the interface after its death.
INTERFACE_PREFIX = "aqb"
ORIGIN_INTERFACE = "aqo"
PROBE = ".probe"  # hidden from directory pages
PROBE_BYTES = 48 * MB
T = TypeVar("T", bound=Struct)


class LinkError(RuntimeError):
    """The link cannot be set up. The text says why."""


class LinkShape(Struct, frozen=True):
    """The rate and latency of a link."""

    bytes_per_s: float = 100 * MB
    latency_s: float = 0.002  # per round trip


class LinkSpeed(Struct, frozen=True):
    """The measured rate and latency of a link."""

    bytes_per_s: float
    latency_s: float


class ServedOrigin:
    """A running origin behind a limited link. `description` says how the link is limited."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, description: str) -> None:
        self._process, self.url, self.description = process, url, description

    def sent_counts(self) -> SentCounts:
        """Return how much the origin has sent so far."""
        return _exchange(self._process, b"\n", SentCounts)

    def measure(self) -> LinkSpeed:
        """Measure rate and latency on one connection."""
        with httpx.Client(base_url=self.url, timeout=60) as client:
            trips = [_timed(lambda: client.head(PROBE)) for _ in range(11)]
            took_s = _timed(lambda: client.get(PROBE))
        return LinkSpeed(PROBE_BYTES / (took_s - (latency_s := sorted(trips)[5])), latency_s)


@contextmanager
def serve_origin(files: Mapping[str, int], shape: LinkShape, *, force: str = "") -> Iterator[ServedOrigin]:
    """Serve files of these sizes behind a link.

    `force` is `tc` or `paced`. Without it, `tc` is used if the machine permits it.
    """
    remove_stale_links()
    known = {**files, PROBE: PROBE_BYTES}
    why_not = ""
    if force != "paced":
        try:
            link = _behind_veth(known, shape)
        except LinkError as error:
            if force:
                raise
            why_not = str(error)
        else:
            yield from _until_done(link)
            return
    yield from _until_done(_paced(known, shape, why_not))


def _until_done(link: ServedOrigin) -> Iterator[ServedOrigin]:
    try:
        yield link
    finally:
        _stop(link._process)  # noqa: SLF001 - same module


def remove_stale_links() -> None:
    """Delete interfaces of dead processes. Usually they are deleted with the namespace of their origin."""
    for path in Path("/sys/class/net").glob(f"{INTERFACE_PREFIX}*"):
        found = re.fullmatch(rf"{INTERFACE_PREFIX}(\d+)", path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _command("ip", "link", "delete", path.name)


def _behind_veth(files: Mapping[str, int], shape: LinkShape) -> ServedOrigin:
    for program in ("ip", "tc", "unshare"):
        if shutil.which(program) is None:
            raise LinkError(f"there is no {program}")
    process = _start("unshare", "--net", "--")
    try:
        origin_pid = _exchange(process, b"", OriginStarted).pid
        name, (local, remote) = f"{INTERFACE_PREFIX}{os.getpid()}", addresses(os.getpid())
        _command("ip", "link", "add", name, "type", "veth", "peer", "name", ORIGIN_INTERFACE, "netns", str(origin_pid))
        _command("ip", "address", "add", f"{local}/30", "dev", name)
        _command("ip", "link", "set", name, "up")
        settings = OriginSettings(dict(files), remote, shape.latency_s, commands=_setup_commands(remote, shape))
        port = _listen(process, settings)
    except BaseException:
        _stop(process)
        raise
    description = (
        "a cable into a network namespace, shaped by traffic control (tbf); the round trip is the origin's own wait"
    )
    return ServedOrigin(process, f"http://{remote}:{port}", description)


def _setup_commands(address: str, shape: LinkShape) -> list[list[str]]:
    """Return the commands that set up the origin's interface and limit its sending rate."""
    bits = f"{8 * shape.bytes_per_s:.0f}bit"
    return [
        ["ip", "address", "add", f"{address}/30", "dev", ORIGIN_INTERFACE],
        ["ip", "link", "set", ORIGIN_INTERFACE, "up"],
        [
            "tc",
            "qdisc",
            "add",
            "dev",
            ORIGIN_INTERFACE,
            "root",
            "tbf",
            "rate",
            bits,
            "burst",
            "256kb",
            "latency",
            "20ms",
        ],
    ]


def addresses(pid: int) -> tuple[str, str]:
    """Return both addresses of a link, distinct for each process, from the benchmark range of RFC 2544."""
    block = pid % (1 << 14)
    start = f"198.18.{block >> 6}."
    first = (block & 63) << 2
    return f"{start}{first + 1}", f"{start}{first + 2}"


def _paced(files: Mapping[str, int], shape: LinkShape, why_not: str) -> ServedOrigin:
    process = _start()
    try:
        _exchange(process, b"", OriginStarted)
        settings = OriginSettings(dict(files), latency_s=shape.latency_s, paced_bytes_per_s=shape.bytes_per_s)
        port = _listen(process, settings)
    except BaseException:
        _stop(process)
        raise
    why = f" (traffic control: {why_not})" if why_not else ""
    return ServedOrigin(process, f"http://127.0.0.1:{port}", f"an origin on this machine that paces itself{why}")


def _start(*prefix: str) -> subprocess.Popen[bytes]:
    command = [*prefix, sys.executable, "-m", "aliquot_bench.origin.process"]
    pipe = subprocess.PIPE
    return subprocess.Popen(  # noqa: S603 - a fixed command
        command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )


def _listen(process: subprocess.Popen[bytes], settings: OriginSettings) -> int:
    answer = _exchange(process, msgspec.json.encode(settings) + b"\n", OriginListening)
    if answer.error:
        raise LinkError(answer.error)
    return answer.port


def _exchange(process: subprocess.Popen[bytes], message: bytes, answer: type[T]) -> T:
    assert process.stdin is not None  # noqa: S101 - for the type checker
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    try:
        process.stdin.write(message)
        process.stdin.flush()
    except BrokenPipeError:
        pass  # its error output says more
    line = process.stdout.readline()
    if not line:
        raise LinkError(
            process.stderr.read().decode(errors="replace").strip() or "the origin ended without an error message"
        )
    return msgspec.json.decode(line, type=answer)


def _stop(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _command(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands
    if done.returncode != 0:
        raise LinkError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def _timed(act: Callable[[], httpx.Response]) -> float:
    began = time.perf_counter()
    act().raise_for_status()
    return time.perf_counter() - began
