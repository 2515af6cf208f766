"""The platform's status for people: devices, flows and sandboxes as plain values."""

from collections.abc import Iterable
from typing import Any

from msgspec import to_builtins

from aliquot.core.device import Device
from aliquot.core.flow import Flow
from aliquot.core.places import place_text
from aliquot.core.records import Sandbox
from aliquot.core.scheduler import Scheduler
from aliquot.live.node.base import SandboxUsage
from aliquot.live.node.environments.build_queue import BuildStatus


def describe(
    scheduler: Scheduler,
    usage: Iterable[SandboxUsage],
    builds: Iterable[BuildStatus],
    now_s: float,
    *,
    calls: int,
    stopping: bool,
) -> dict[str, Any]:
    """Return the status that `aliquot top` and the operator's routes show."""
    used = {entry.sandbox: entry for entry in usage}
    pool, nodes = scheduler.pool, scheduler.registry.nodes.values()
    return {
        "now_s": scheduler.now,
        "stopping": stopping,
        "policies": list(scheduler.policy_names),
        "calls": calls,
        "host_bytes": sum(node.host.claimed for node in nodes),
        "host_limit_bytes": sum(limit for node in nodes if (limit := node.host.limit) is not None) or None,
        "sandboxes_started": pool.started,
        "devices": [_device(device) for device in scheduler.registry.devices.values()],
        "flows": [_flow(flow, now_s) for flow in scheduler.registry.flows.values()],
        "builds": [to_builtins(build) for build in builds],
        "sandboxes": [_sandbox(sandbox, used.get(sandbox.id)) for sandbox in pool.sandboxes.values()],
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "name": device.spec.name,
        "kind": device.spec.kind,
        "slots": device.slots,
        "running": device.running,
        "shares_used": device.shares_used,
        "memory_bytes": device.spec.memory_bytes,
        "resident_bytes": device.resident_bytes,
        "sandboxes": len(device.sandboxes),
    }


def _flow(flow: Flow, now_s: float) -> dict[str, Any]:
    return {
        "tenant": flow.key.tenant,
        "function": flow.key.function,
        "weight": flow.weight,
        "queued": flow.queued + len(flow.held_back),
        "in_flight": flow.in_flight,
        "oldest_wait_s": max(0.0, now_s - flow.head.arrived) if flow.queue else 0.0,
        "arrivals": flow.arrivals,
        "run_estimate_s": flow.run_estimate_s,
        "virtual_time": flow.domain.policy.virtual_time(flow),
        "sandboxes": len(flow.sandboxes),
        "misfit": flow.misfit,
    }


def _sandbox(sandbox: Sandbox, usage: SandboxUsage | None) -> dict[str, Any]:
    return {
        "sandbox": sandbox.id,
        "tenant": sandbox.flow.key.tenant,
        "function": sandbox.flow.key.function,
        "device": place_text(sandbox.place),
        "state": str(sandbox.state),
        "uses": sandbox.uses,
        "session": sandbox.session.key[1] if sandbox.session else None,  # the session that keeps it
        "pid": usage.pid if usage else None,
        "rss_bytes": usage.rss_bytes if usage else None,
        "cpu_s": usage.cpu_s if usage else None,
        "processes": usage.processes if usage else None,
        "frozen": usage.frozen if usage else None,
    }
