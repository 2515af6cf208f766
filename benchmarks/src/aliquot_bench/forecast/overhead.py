"""The processor time that forecasts take: of the forecaster's process, and of the scheduler's steps."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.commands import StartSandbox
from aliquot.core.events import DemandForecast, DeviceAdded, FunctionDeployed, SandboxStarted
from aliquot.core.units import GIB
from aliquot.learn.settings import LearnSettings
from aliquot.live.forecasting.host import ForecasterProcess
from aliquot.live.profile.records import SECOND_S, ProfileRow
from aliquot.testing.builders import device, function
from aliquot_bench.environments import scratch
from aliquot_bench.result import MEASURED, PERCENT, Goal, ResultTable, at_most

FUNCTIONS = 100
STEP_S = 60.0  # the default
TICK_S = STEP_S / 6
CALL_EVERY_S = 2  # of each function
TENANT = "guest"


def measure_overhead(*, quick: bool) -> tuple[list[Goal], ResultTable]:
    """Let a real forecaster follow a hundred functions, and the scheduler take its forecasts."""
    with scratch() as folder:
        part, forecasts = asyncio.run(_forecaster(folder, 40.0 if quick else 120.0))
    parts = {"forecaster": part, "scheduler": PERCENT * _step_s(forecasts) / TICK_S}
    goal = at_most(f"{FUNCTIONS} active functions: part of a core for forecasts", sum(parts.values()), 1, "%")
    rows: list[list[str | float | None]] = [[name, part] for name, part in parts.items()]
    return [goal], ResultTable(f"Forecasts of {FUNCTIONS} functions", ["", "part of a core, %"], rows, MEASURED)


async def _forecaster(folder: Path, seconds: float) -> tuple[float, list[DemandForecast]]:
    """Return the part of a core that the forecaster takes, and its forecasts."""
    forecasts: list[DemandForecast] = []
    process = ForecasterProcess(STEP_S, folder, forecasts.append, LearnSettings())
    process.seen(_rows(0))
    while not forecasts:  # it starts, and knows of the functions
        await asyncio.sleep(0.1)
        process.seen(_rows(0))
    begun, used_s = time.monotonic(), _cpu_s(process.pid)
    second = 0
    while time.monotonic() < begun + seconds:
        await asyncio.sleep(max(0.0, begun + second - time.monotonic()))
        second += 1
        process.seen(_rows(second))
    part = PERCENT * (_cpu_s(process.pid) - used_s) / (time.monotonic() - begun)
    await process.stop()
    return part, forecasts


def _rows(second: int) -> list[ProfileRow]:
    """Return what the profiler tells of a second: half of the functions were called."""
    numbers = range(second % CALL_EVERY_S, FUNCTIONS, CALL_EVERY_S) if second else range(FUNCTIONS)
    figures: tuple[Any, ...] = (SECOND_S, 1, 1 + second % 3, 0, 0.01, 0.1, 0.0, 0, 0, 0, 0, 0, 0, False, {})
    return [ProfileRow(TENANT, f"function-{number}", int(time.time()), *figures) for number in numbers]


def _cpu_s(pid: int | None) -> float:
    """Return the processor time that a process has used."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _step_s(forecasts: list[DemandForecast]) -> float:
    """Return the mean time of a step of the scheduler with a forecast."""
    scheduler = assemble(PolicySettings("fair_resident", provisioning="forecast"))
    names = [f"function-{number}" for number in range(FUNCTIONS)]
    deployed = [FunctionDeployed(TENANT, function(name, memory_bytes=GIB // 8)) for name in names]
    scheduler.step(0, [*(DeviceAdded(device(f"gpu-{number}", concurrency=64)) for number in range(8)), *deployed])
    used_s, now = 0.0, 0.0
    for forecast in forecasts:
        now += TICK_S
        begun = time.thread_time()
        commands = scheduler.step(now, [forecast])
        used_s += time.thread_time() - begun
        started = [SandboxStarted(one.sandbox) for one in commands if isinstance(one, StartSandbox)]
        scheduler.step(now, started)
    return used_s / len(forecasts)
