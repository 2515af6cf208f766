"""What is used right now, beside what was asked for: for the operator's status and the metrics."""

from typing import Any

from aliquot.live.usage.measurements import MeasuredSandbox
from aliquot.live.usage.sampler import UsageSampler

_DECIMALS = 4


def with_usage(status: dict[str, Any], sampler: UsageSampler) -> dict[str, Any]:
    """The platform's status, with what its devices and the sandboxes on accelerators use."""
    borrowed: dict[str, float] = {}
    spare: dict[str, float] = {}
    for sandbox in status["sandboxes"]:
        account = sampler.accounts.get(sandbox["sandbox"])
        share = sampler.share(sandbox["sandbox"])
        slice_ = None if account is None else account.sandbox.slice
        sandbox |= {
            "share": slice_.request if slice_ else None,
            "share_ceiling": slice_.allotment.ceiling if slice_ else None,
            "share_used": share,
            "device_bytes": account.memory_bytes if account else None,
        }
        if account is None or slice_ is None or share is None:
            continue
        for device in account.devices:
            borrowed[device] = borrowed.get(device, 0.0) + max(0.0, share - slice_.request)
            if sandbox["state"] == "busy":
                spare[device] = spare.get(device, 0.0) + max(0.0, slice_.request - share)
    for device in status["devices"]:
        name = device["name"]
        taken = borrowed.get(name, 0.0)
        device |= {
            "utilisation": sampler.utilisation(name) if device["kind"] != "cpu" else None,
            "enforced": sampler.enforces((name,)) if device["kind"] != "cpu" else None,  # what functions ask for
            "borrowed": round(taken, _DECIMALS),  # used beyond what was asked for
            "lent": round(min(taken, spare.get(name, 0.0)), _DECIMALS),  # of that, what others at work asked for
        }
    there = {sandbox["sandbox"] for sandbox in status["sandboxes"]}
    return {
        **status,
        "usage": _by_function(sampler, [account for number, account in sampler.accounts.items() if number in there]),
    }


def _by_function(sampler: UsageSampler, there: list[MeasuredSandbox]) -> list[dict[str, Any]]:
    accounts: dict[tuple[str, str, str], list[MeasuredSandbox]] = {}
    for account in there:
        flow = account.sandbox.flow.key
        for device in account.devices:
            accounts.setdefault((flow.tenant, flow.function, device), []).append(account)
    return [
        {
            "tenant": tenant,
            "function": function,
            "device": device,
            "compute_s": compute_s,
            "share": sum(account.request for account in accounts.get((tenant, function, device), ())),
            "device_bytes": sum(account.bytes_each for account in accounts.get((tenant, function, device), ())),
        }
        for (tenant, function, device), compute_s in sampler.totals.items()
    ]
