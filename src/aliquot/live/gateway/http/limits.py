"""Parse the headers with which a caller sets the limits of one call, and what follows from them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from aliquot.core.admission.records import Late, Prefer
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.objective import MAX_COST, MAX_DEADLINE_S, CallLimits

DEADLINE_HEADER = b"x-aliquot-deadline-ms"
COST_HEADER = b"x-aliquot-cost-limit"
LATE_HEADER = b"x-aliquot-late"
PREFER_HEADER = b"x-aliquot-prefer"
LIMIT_HEADERS = (DEADLINE_HEADER, COST_HEADER, LATE_HEADER, PREFER_HEADER)
E = TypeVar("E", bound=StrEnum)
_NONE = b"none"  # lifts the limit that the function declares
_MAX_LENGTH = 32


class LimitHeaders(NamedTuple):
    """The headers as they came."""

    deadline: bytes | None
    cost: bytes | None
    late: bytes | None
    prefer: bytes | None


def limit_headers(headers: Mapping[bytes, bytes]) -> LimitHeaders | None:
    """Return the headers of a request that set limits, or None if it has none of them."""
    found = LimitHeaders(*(headers.get(name) for name in LIMIT_HEADERS))
    return None if found == (None, None, None, None) else found


def limits_of(headers: LimitHeaders | None, declared: CallLimits | None) -> CallLimits | None:
    """Return the limits of a call: those of its headers, or those that its function declares. Raises a 400."""
    if headers is None:
        return declared
    declared = declared or CallLimits()
    deadline_s, cost = declared.deadline_s, declared.cost
    if headers.deadline is not None:
        takes = f"a number of milliseconds above 0, at most {MAX_DEADLINE_S * 1000:.0f}, or none"
        deadline_ms = _number(DEADLINE_HEADER, headers.deadline, MAX_DEADLINE_S * 1000, takes)
        if deadline_ms == 0:
            raise _wrong(DEADLINE_HEADER, headers.deadline, takes)
        deadline_s = None if deadline_ms is None else deadline_ms / 1000
    if headers.cost is not None:
        cost = _number(COST_HEADER, headers.cost, MAX_COST, f"a number from 0 to {MAX_COST:g}, or none")
    late = _word(LATE_HEADER, headers.late, Late, declared.late)
    prefer = _word(PREFER_HEADER, headers.prefer, Prefer, declared.prefer)
    return None if deadline_s is None and cost is None else CallLimits(deadline_s, cost, late, prefer)


def _word(name: bytes, text: bytes | None, words: type[E], default: E) -> E:
    if text is None:
        return default
    try:
        return words(text.strip().lower().decode("latin-1"))
    except ValueError:
        raise _wrong(name, text, " or ".join(words)) from None


def _number(name: bytes, text: bytes, largest: float, takes: str) -> float | None:
    """Return a number from 0 on, or None for `none`."""
    if text.strip().lower() == _NONE:
        return None
    try:
        value = float(text) if len(text) <= _MAX_LENGTH and b"_" not in text else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value <= largest:
        raise _wrong(name, text, takes)
    return value


def _wrong(name: bytes, text: bytes, takes: str) -> Refusal:
    shown = text[:_MAX_LENGTH].decode("latin-1")
    return Refusal(400, f"The header {name.decode()} is '{shown}'; it takes {takes}.")
