"""The usage of each sandbox in the last sample and second, and of each function since the server started."""

from aliquot.budgets import Budget
from aliquot.core.places import place_text
from aliquot.core.records import Sandbox

MAX_FUNCTIONS = 10_000  # of all tenants; those beyond the part of a tenant are counted together
OTHERS = ""  # stands for the function names beyond a tenant's part

UsageKey = tuple[str, str, str]  # tenant, function, device


class MeasuredSandbox:
    """The measurements of one sandbox on an accelerator."""

    __slots__ = (
        "ceiling", "compute_s", "device", "devices", "enforced", "label", "labelled", "memory_bytes", "quiet",
        "sandbox", "seen_s", "share", "window_s", "written_s",
    )  # fmt: skip

    def __init__(self, sandbox: Sandbox, now_s: float, *, enforced: bool = True) -> None:
        self.sandbox = sandbox
        self.enforced = enforced  # whether its slice is enforced
        self.devices = sandbox.place
        self.device = place_text(sandbox.place)  # its name in samples and labels
        self.compute_s = 0.0
        self.memory_bytes = 0
        self.ceiling = 0.0
        self.seen_s = now_s
        self.window_s = 0.0  # compute in the current second
        self.share = 0.0  # share of the device in the last full second
        # The state of its samples on disk:
        self.label: int | None = None
        self.labelled = 0  # the record at which the label was last written
        self.written_s = now_s
        self.quiet = False  # it has used nothing since, and that is not written yet

    @property
    def request(self) -> float:
        return 0.0 if self.sandbox.slice is None else self.sandbox.slice.request

    @property
    def bytes_each(self) -> int:
        """The memory on each of its devices."""
        return self.memory_bytes // len(self.devices)

    def current_ceiling(self) -> float:
        return 0.0 if self.sandbox.slice is None else self.sandbox.slice.allotment.ceiling


class ComputeTotals:
    """Seconds of compute by tenant, function and device, which never decrease."""

    def __init__(self) -> None:
        self._seconds: dict[UsageKey, float] = {}
        self._known = Budget("usage", "functions", MAX_FUNCTIONS)

    def add(self, measured: MeasuredSandbox, compute_s: float) -> None:
        """Add compute to each device of the sandbox."""
        flow = measured.sandbox.flow.key
        for device in measured.devices:
            key = (flow.tenant, flow.function, device)
            if key not in self._seconds:
                if self._known.fits(flow.tenant, 1):
                    self._known.take(flow.tenant, 1)
                else:
                    key = (flow.tenant, OTHERS, device)
            self._seconds[key] = self._seconds.get(key, 0.0) + compute_s

    def items(self) -> list[tuple[UsageKey, float]]:
        return sorted(self._seconds.items())
