"""Time is a number of seconds on a grid of one nanosecond.

Sums of decimal fractions drift in binary (0.1 + 0.2 > 0.3), and a finish that should coincide with an arrival
would come just after it: another schedule. So every time that is *made* by adding a duration is rounded to the
grid, which gives the same float that reading the decimal would give. Whole numbers stay whole.
"""

DECIMALS = 9


def after(now: float, delay_s: float) -> float:
    """The moment `delay_s` after `now`, on the grid."""
    return round(now + delay_s, DECIMALS)


def between(earlier: float, later: float) -> float:
    """The seconds from `earlier` to `later`, on the grid."""
    passed_s = later - earlier
    return round(passed_s, DECIMALS) if passed_s else passed_s  # often none, and rounding is slow
