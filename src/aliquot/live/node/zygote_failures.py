"""Profiles whose zygotes have failed: how long each is left alone before it is tried again."""

from collections.abc import Hashable

from msgspec import Struct

from aliquot.live.node.states import StartError

MIN_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
MAX_REMEMBERED = 1024  # profiles; the oldest is forgotten first


class _ProfileFailures(Struct, frozen=True):
    count: int
    last_s: float
    backoff_s: float
    why: StartError


class ZygoteFailures:
    """Decides when a failed profile may be tried again: after 1 s, 2 s, 4 s and so on, up to a minute."""

    def __init__(self) -> None:
        self._failures: dict[Hashable, _ProfileFailures] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def add(self, profile: Hashable, why: StartError, now_s: float, *, was_ready: bool) -> None:
        """Note a failure. The first end of a zygote that was ready before is taken for an accident."""
        known = self._failures.pop(profile, None)
        lasted = known is not None and now_s - known.last_s < known.backoff_s + MAX_BACKOFF_S
        count = known.count + 1 if known is not None and lasted else 1
        steps = count - 1 if was_ready else count
        backoff_s = min(MIN_BACKOFF_S * 2 ** (min(steps, 32) - 1), MAX_BACKOFF_S) if steps else 0.0
        self._failures[profile] = _ProfileFailures(count, now_s, backoff_s, why)
        if len(self._failures) > MAX_REMEMBERED:
            del self._failures[next(iter(self._failures))]

    def check(self, profile: Hashable, now_s: float) -> None:
        """Raise the `StartError` of the last failure while the profile must not be tried."""
        known = self._failures.get(profile)
        if known is None:
            return
        left_s = known.last_s + known.backoff_s - now_s
        if left_s > 0:
            text = str(known.why)
            raise StartError(
                known.why.status, f"{text}{'' if text.endswith('.') else '.'} It is tried again in {left_s:.0f} s."
            )
