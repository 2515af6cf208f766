"""Sums of what was used: each sandbox's in the last look and second, each function's since the start."""

from aliquot.core.places import place_text
from aliquot.core.records import Sandbox

MAX_FUNCTIONS = 10_000  # a tenant that makes names without end must not fill the metrics
OTHERS = ("", "")

UsageKey = tuple[str, str, str]  # tenant, function, device


class MeasuredSandbox:
    """One sandbox's."""

    __slots__ = (
        "ceiling", "compute_s", "device", "devices", "enforced", "label", "labelled", "memory_bytes", "quiet",
        "sandbox", "seen_s", "share", "window_s", "written_s",
    )  # fmt: skip

    def __init__(self, sandbox: Sandbox, now_s: float, *, enforced: bool = True) -> None:
        self.sandbox = sandbox
        self.enforced = enforced  # whether it is kept to what it asked for
        self.devices = sandbox.place
        self.device = place_text(sandbox.place)  # as samples and labels name it
        self.compute_s = 0.0
        self.memory_bytes = 0
        self.ceiling = 0.0
        self.seen_s = now_s
        self.window_s = 0.0  # of compute, in the second that is under way
        self.share = 0.0  # in the last whole second
        # As its samples on disk have it:
        self.label: int | None = None
        self.labelled = 0  # where the label was said last
        self.written_s = now_s
        self.quiet = False  # since then it has used nothing, and that is not written

    @property
    def request(self) -> float:
        return 0.0 if self.sandbox.slice is None else self.sandbox.slice.request

    @property
    def bytes_each(self) -> int:
        """On each of its devices."""
        return self.memory_bytes // len(self.devices)

    def now_allotted(self) -> float:
        return 0.0 if self.sandbox.slice is None else self.sandbox.slice.allotment.ceiling


class ComputeTotals:
    """Seconds of compute by tenant, function and device; they only grow."""

    def __init__(self) -> None:
        self._seconds: dict[UsageKey, float] = {}

    def add(self, account: MeasuredSandbox, compute_s: float) -> None:
        """So much of each of its devices."""
        flow = account.sandbox.flow.key
        for device in account.devices:
            owner = (flow.tenant, flow.function, device)
            if owner not in self._seconds and len(self._seconds) >= MAX_FUNCTIONS:
                owner = (*OTHERS, device)
            self._seconds[owner] = self._seconds.get(owner, 0.0) + compute_s

    def items(self) -> list[tuple[UsageKey, float]]:
        return sorted(self._seconds.items())
