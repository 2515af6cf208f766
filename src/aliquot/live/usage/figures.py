"""Current usage beside the requested shares, for the operator's status and the metrics."""

from typing import Any

from aliquot.live.usage.measurements import MeasuredSandbox
from aliquot.live.usage.sampler import UsageSampler

_DECIMALS = 4


def with_usage(status: dict[str, Any], sampler: UsageSampler) -> dict[str, Any]:
    """Return the platform's status with the usage of devices and of sandboxes on accelerators."""
    borrowed: dict[str, float] = {}
    spare: dict[str, float] = {}
    for sandbox in status["sandboxes"]:
        measured = sampler.sandboxes.get(sandbox["sandbox"])
        share = sampler.share(sandbox["sandbox"])
        slice_ = None if measured is None else measured.sandbox.slice
        sandbox |= {
            "share": slice_.request if slice_ else None,
            "share_ceiling": slice_.allotment.ceiling if slice_ else None,
            "share_used": share,
            "device_bytes": measured.memory_bytes if measured else None,
        }
        if measured is None or slice_ is None or share is None:
            continue
        for device in measured.devices:
            borrowed[device] = borrowed.get(device, 0.0) + max(0.0, share - slice_.request)
            if sandbox["state"] == "busy":
                spare[device] = spare.get(device, 0.0) + max(0.0, slice_.request - share)
    for device in status["devices"]:
        name = device["name"]
        taken = borrowed.get(name, 0.0)
        device |= {
            "utilisation": sampler.utilisation(name) if device["kind"] != "cpu" else None,
            "enforced": sampler.enforces((name,)) if device["kind"] != "cpu" else None,  # whether slices are enforced
            "borrowed": round(taken, _DECIMALS),  # used beyond the requested shares
            "lent": round(min(taken, spare.get(name, 0.0)), _DECIMALS),  # the part of it that busy sandboxes requested
        }
    there = {sandbox["sandbox"] for sandbox in status["sandboxes"]}
    return {
        **status,
        "usage": _by_function(sampler, [measured for number, measured in sampler.sandboxes.items() if number in there]),
    }


def _by_function(sampler: UsageSampler, there: list[MeasuredSandbox]) -> list[dict[str, Any]]:
    by_key: dict[tuple[str, str, str], list[MeasuredSandbox]] = {}
    for measured in there:
        flow = measured.sandbox.flow.key
        for device in measured.devices:
            by_key.setdefault((flow.tenant, flow.function, device), []).append(measured)
    return [
        {
            "tenant": tenant,
            "function": function,
            "device": device,
            "compute_s": compute_s,
            "share": sum(measured.request for measured in by_key.get((tenant, function, device), ())),
            "device_bytes": sum(measured.bytes_each for measured in by_key.get((tenant, function, device), ())),
        }
        for (tenant, function, device), compute_s in sampler.totals.items()
    ]
