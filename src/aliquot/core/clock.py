"""Time as a number of seconds, rounded to nanoseconds.

Sums of decimal fractions drift in binary: 0.1 + 0.2 > 0.3. A run that should end exactly when a call arrives would end
just after it, which gives another schedule. So every time that is computed by adding a duration is rounded. The result
is the same float that reading the decimal would give. Whole numbers stay whole.
"""

DECIMALS = 9


def after(now: float, delay_s: float) -> float:
    """Return the time `delay_s` after `now`, rounded."""
    return round(now + delay_s, DECIMALS)


def grid_time(at: float) -> float:
    """Return the first time on the grid that is not before `at`."""
    rounded = round(at, DECIMALS)
    return rounded if rounded >= at else round(at + 10**-DECIMALS, DECIMALS)


def between(earlier: float, later: float) -> float:
    """Return the seconds from `earlier` to `later`, rounded."""
    passed_s = later - earlier
    return round(passed_s, DECIMALS) if passed_s else passed_s  # it is often 0, and rounding is slow
