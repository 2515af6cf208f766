"""Lines of charts: breaks where nothing was measured."""

from math import isnan

from aliquot.sim.plots import broken_at_gaps


def test_a_line_is_broken_where_its_neighbours_are_far_apart():
    xs, ys = broken_at_gaps([0, 1, 2, 9, 10], [5, 6, 7, 8, 9], max_gap=1.5)
    assert xs == [0, 1, 2, 2, 9, 10]
    assert [place for place, value in enumerate(ys) if isnan(value)] == [3]
    assert [value for value in ys if not isnan(value)] == [5, 6, 7, 8, 9]


def test_a_line_without_gaps_stays_as_it_is_and_none_is_needed():
    assert broken_at_gaps([0, 1, 2], [3, 4, 5], max_gap=1.5) == ([0, 1, 2], [3, 4, 5])
    assert broken_at_gaps([], [], max_gap=1) == ([], [])
