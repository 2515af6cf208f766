"""Match errors with the rules of Retry and Catch, and compute how long to wait for the next attempt."""

from collections.abc import Sequence

from aliquot.workflow.chance import fraction
from aliquot.workflow.errors import ALL, HEARTBEAT_TIMEOUT, RUNTIME, TASK_FAILED, TIMEOUT, StateError
from aliquot.workflow.language.records import Retrier


def matches(names: Sequence[str], error: StateError) -> bool:
    """Return whether a rule with these names handles an error. No rule handles States.Runtime."""
    if error.error == RUNTIME:
        return False
    for name in names:
        if name in {ALL, error.error}:
            return True
        if name == TASK_FAILED and error.error != TIMEOUT:
            return True
        if name == HEARTBEAT_TIMEOUT and error.heartbeat:
            return True
    return False


def delay_s(retrier: Retrier, retries: int, seed: str) -> float:
    """Return the seconds before an attempt, after so many retries by this rule."""
    try:
        delay = retrier.interval_s * retrier.backoff_rate**retries
    except OverflowError:
        delay = float("inf")
    longest = retrier.max_delay_s if retrier.max_delay_s is not None else 99_999_999
    delay = min(delay, longest)
    return delay * fraction(seed) if retrier.jitter else delay
