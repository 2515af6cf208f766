"""The load generator `wrk`, which is the same for every server: its Lua script, its run and its report."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.core.errors import InputError

UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}
COUNTS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class LoadEndpoint(Struct, frozen=True):
    """The address of a server, and the requests to send. Several paths are requested in turn."""

    url: str
    paths: tuple[str, ...] = ("/",)
    body: str = "{}"
    headers: dict[str, str] = {}
    method: str = "POST"
    headers_by_path: tuple[dict[str, str], ...] = ()  # further headers, for each of the paths

    def requests(self) -> list[tuple[str, dict[str, str]]]:
        """Return the paths, each with all its headers."""
        more = self.headers_by_path or ({},) * len(self.paths)
        common = {"Content-Type": "application/json", **self.headers}
        return [(path, {**common, **own}) for path, own in zip(self.paths, more, strict=True)]


class LoadReport(Struct, frozen=True):
    """The figures of one run of wrk."""

    p50_ms: float
    p99_ms: float
    per_second: float
    requests: int
    errors: int  # responses with status 400 and above, and broken connections


def check_wrk() -> None:
    """Raise `InputError` if wrk is not installed."""
    if shutil.which("wrk") is None:
        raise InputError("the load generator wrk is not installed; install it with: apt-get install wrk")


def run_wrk(
    endpoint: LoadEndpoint, folder: Path, *, connections: int, seconds: float, in_turn: bool = False
) -> LoadReport:
    """Load an endpoint from one thread. With `in_turn`, Lua chooses the path even if there is only one."""
    script = folder / "wrk.lua"
    script.write_text(lua(endpoint, in_turn=in_turn or len(endpoint.paths) > 1), encoding="utf-8")
    command = ["wrk", "--threads=1", f"--connections={connections}", f"--duration={max(1, round(seconds))}s"]
    command += ["--timeout=10s", "--latency", f"--script={script}", endpoint.url + endpoint.paths[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
    if done.returncode != 0:
        raise InputError(f"wrk ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return parse(done.stdout)


def lua(endpoint: LoadEndpoint, *, in_turn: bool) -> str:
    """Return the script. It formats the requests once, because formatting each would measure Lua."""
    quote = _quote
    lines = [f"wrk.method = {quote(endpoint.method)}", f"wrk.body = {quote(endpoint.body)}"]
    requests = endpoint.requests()
    lines += [f"wrk.headers[{quote(name)}] = {quote(value)}" for name, value in requests[0][1].items()]
    if in_turn:
        paths = ", ".join(f"{{{quote(path)}, {_table(headers)}}}" for path, headers in requests)
        lines += [
            f"local paths, ready, turn = {{{paths}}}, {{}}, 0",
            "function init(args)",
            "  for place, path in ipairs(paths) do ready[place] = wrk.format(nil, path[1], path[2]) end",
            "end",
            "function request()",
            "  turn = turn % #ready + 1",
            "  return ready[turn]",
            "end",
        ]
    return "\n".join(lines) + "\n"


def parse(report: str) -> LoadReport:
    """Parse the output of `wrk --latency`."""
    requests = re.search(r"(\d+) requests in ", report)
    rate = re.search(r"Requests/sec:\s+([\d.]+)([kMG]?)", report)
    p50, p99 = (re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m|h)\s*$", report, re.MULTILINE) for percent in (50, 99))
    if requests is None or rate is None or p50 is None or p99 is None:
        raise InputError(f"wrk printed something other than its report: {report.strip()[:200]!r}")
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
    """Return a Lua string. Lua has the same escapes as JSON for bodies, paths and headers."""
    return msgspec.json.encode(text).decode()


def _table(headers: dict[str, str]) -> str:
    """Return a Lua table. `wrk.format` takes no other headers than those it is given."""
    return "{" + ", ".join(f"[{_quote(name)}] = {_quote(value)}" for name, value in headers.items()) + "}"
