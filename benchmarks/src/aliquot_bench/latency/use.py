"""Who used the processors during a measurement: the server, the callers, or somebody else."""

import os
import resource
import time

import psutil  # type: ignore[import-untyped]

from aliquot_bench.latency.process import Server


class Use:
    """From its making on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = self._read()

    def since(self) -> tuple[float, float]:
        """The server's seconds, and the share of the machine that neither it nor the callers had."""
        now = self._read()
        wall_s, idle_s, server_s, callers_s = (after - before for after, before in zip(now, self._before, strict=True))
        all_s = wall_s * (os.cpu_count() or 1)
        others_s = all_s - idle_s - server_s - callers_s
        return server_s, min(1.0, max(0.0, others_s / all_s)) if all_s else 0.0

    def _read(self) -> tuple[float, float, float, float]:
        machine = psutil.cpu_times()
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)  # wrk, which is waited for; the server is not yet
        callers_s = waited.ru_utime + waited.ru_stime
        return time.perf_counter(), machine.idle + machine.iowait, self._server.cpu_s(), callers_s
