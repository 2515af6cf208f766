"""The drivers' table of docs/reference/devices.md, written from what the drivers say of themselves."""

from aliquot.live.device.nvidia.choice import NVIDIA, Mode
from aliquot.live.device.nvidia.modes import KEPT, SWAPPED

_HEAD = ("driver", "compute", "memory", "swap", "changed while it runs")
_HOST = ("host", "weight and quota (control groups)", "with the sandbox's own memory", "frozen (control groups)", "yes")
_CHANGES = {
    Mode.MPS: "no: the next sandbox",
    Mode.HAMI: "no: the next sandbox",
    Mode.MIG: "no: an instance is as it was cut",
    Mode.TIMESLICE: "nothing to change",
}
_SWAPS = {Mode.MPS: "none: ended instead"}


def drivers_table() -> str:
    rows = [_HEAD, ("---",) * len(_HEAD), _HOST]
    rows += [
        (f"{NVIDIA}:{mode}", *KEPT[mode], _SWAPS.get(mode, f"with `:swap`: {SWAPPED}"), _CHANGES[mode]) for mode in Mode
    ]
    return "\n".join(f"| {' | '.join(row)} |".replace("| ---", "|---").replace("--- |", "---|") for row in rows)
