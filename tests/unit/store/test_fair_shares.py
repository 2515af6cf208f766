"""The space for records is divided by tenant: the largest user loses first, and everybody keeps a minimum."""

from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.store.fair_shares import fair_shares

users = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10_000), min_size=1)


def shares(used, limit, minimum=0, **weights):
    return fair_shares(used, limit, weights=dict.fromkeys(used, 1) | weights, minimum=minimum)


def test_the_largest_user_loses_and_the_others_keep_everything():
    assert shares({"greedy": 1000, "small": 10, "other": 90}, 300) == {"greedy": 200, "small": 10, "other": 90}


def test_two_large_users_are_divided_by_weight():
    assert shares({"a": 1000, "b": 1000}, 400, b=3) == {"a": 100, "b": 300}


def test_a_user_of_little_weight_keeps_the_minimum():
    assert shares({"a": 1000, "b": 1000}, 400, minimum=50, a=0.0001) == {"a": 51, "b": 349}  # one byte is rounded


def test_users_without_a_weight_lose_first():
    assert fair_shares({"gone": 500, "here": 100}, 300, weights={"here": 1}, minimum=50) == {"gone": 200, "here": 100}


@given(used=users, limit=st.integers(0, 20_000), minimum=st.integers(0, 5000), data=st.data())
def test_shares_fit_the_limit_and_waste_no_space(used, limit, minimum, data):
    weights = {user: data.draw(st.floats(0.01, 100)) for user in used}
    kept = fair_shares(used, limit, weights=weights, minimum=minimum)
    assert all(0 <= kept[user] <= used[user] for user in used)
    assert sum(kept.values()) <= limit
    # Rounding loses less than a byte for each user.
    assert sum(kept.values()) >= min(limit, sum(used.values())) - len(used)
    assert all(kept[user] >= min(used[user], minimum, limit // len(used)) for user in used)
