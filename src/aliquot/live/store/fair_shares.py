"""Divide a limited space among its users by weight. It is a pure function."""

from collections.abc import Mapping


def fair_shares(used: Mapping[str, int], limit: int, *, weights: Mapping[str, float], minimum: int) -> dict[str, int]:
    """Return the bytes that each user keeps, so that all together keep at most `limit`.

    Users below their share keep everything, and what they leave goes to the others by weight. The largest users thus
    lose first. Each keeps at least `minimum`, or an equal part of the limit if that is less. Users without a weight get
    what is left by the others.
    """
    kept = dict.fromkeys(used, 0)
    known = [user for user in used if weights.get(user, 0) > 0]
    floor = min(minimum, limit // max(1, len(known)))
    for user in known:
        kept[user] = min(used[user], floor)
    left = limit - sum(kept.values())
    left -= _fill(kept, used, left, {user: weights[user] for user in known})
    _fill(kept, used, left, {user: 1 for user in used if user not in set(known)})
    return kept


def _fill(kept: dict[str, int], used: Mapping[str, int], left: int, weights: Mapping[str, float]) -> int:
    """Give each user what it lacks, or its weighted part of what is left. Return the bytes that were given."""
    given = 0
    total = sum(weights.values())
    # In this order every user who gets everything comes before those who do not.
    for user in sorted(weights, key=lambda user: ((used[user] - kept[user]) / weights[user], user)):
        part = min(used[user] - kept[user], int((left - given) * weights[user] / total))
        kept[user] += part
        given += part
        total -= weights[user]
        if total <= 0:
            break
    return given
