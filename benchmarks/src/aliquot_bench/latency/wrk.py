"""The load generator: `wrk`, the same for every server, driven through a small Lua script and read by its report."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.core.errors import InputError

UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}
COUNTS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class Endpoint(Struct, frozen=True):
    """Where a server takes its calls; several paths are asked in turn."""

    url: str
    paths: tuple[str, ...] = ("/",)
    body: str = "{}"
    headers: dict[str, str] = {}


class LoadReport(Struct, frozen=True):
    """What one run of wrk saw."""

    p50_ms: float
    p99_ms: float
    per_second: float
    requests: int
    errors: int  # answers of 400 and above, and connections that broke


def check_wrk() -> None:
    """Say at once what is missing."""
    if shutil.which("wrk") is None:
        raise InputError("the load generator wrk is not installed; apt-get install wrk brings it")


def run_wrk(endpoint: Endpoint, folder: Path, *, connections: int, seconds: float, in_turn: bool = False) -> LoadReport:
    """Load an endpoint from one thread; `in_turn` chooses each request's path in Lua even if there is but one."""
    script = folder / "wrk.lua"
    script.write_text(lua(endpoint, in_turn=in_turn or len(endpoint.paths) > 1), encoding="utf-8")
    command = ["wrk", "--threads=1", f"--connections={connections}", f"--duration={max(1, round(seconds))}s"]
    command += ["--timeout=10s", "--latency", f"--script={script}", endpoint.url + endpoint.paths[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode != 0:
        raise InputError(f"wrk ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return parse(done.stdout)


def lua(endpoint: Endpoint, *, in_turn: bool) -> str:
    """Requests are put together once: a script that did it for each would measure Lua."""
    quote = _quote
    lines = ['wrk.method = "POST"', f"wrk.body = {quote(endpoint.body)}"]
    headers = {"Content-Type": "application/json", **endpoint.headers}
    lines += [f"wrk.headers[{quote(name)}] = {quote(value)}" for name, value in headers.items()]
    if in_turn:
        paths = ", ".join(quote(path) for path in endpoint.paths)
        lines += [
            f"local paths, ready, turn = {{{paths}}}, {{}}, 0",
            "function init(args)",
            "  for place, path in ipairs(paths) do ready[place] = wrk.format(nil, path) end",
            "end",
            "function request()",
            "  turn = turn % #ready + 1",
            "  return ready[turn]",
            "end",
        ]
    return "\n".join(lines) + "\n"


def parse(report: str) -> LoadReport:
    """Read what `wrk --latency` prints."""
    requests = re.search(r"(\d+) requests in ", report)
    rate = re.search(r"Requests/sec:\s+([\d.]+)([kMG]?)", report)
    p50, p99 = (re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m|h)\s*$", report, re.MULTILINE) for percent in (50, 99))
    if requests is None or rate is None or p50 is None or p99 is None:
        raise InputError(f"wrk said something that is not its report: {report.strip()[:200]!r}")
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", report)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    errors = sum(map(int, broken.groups())) if broken else 0
    errors += int(refused.group(1)) if refused else 0
    return LoadReport(
        p50_ms=float(p50[1]) * UNITS_MS[p50[2]],
        p99_ms=float(p99[1]) * UNITS_MS[p99[2]],
        per_second=float(rate[1]) * COUNTS[rate[2]],
        requests=int(requests[1]),
        errors=errors,
    )


def _quote(text: str) -> str:
    """A Lua string; JSON's escapes are Lua's for what stands in bodies, paths and headers."""
    return msgspec.json.encode(text).decode()
