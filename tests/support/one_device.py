"""A scheduler with one device and two functions."""

from aliquot.testing import Harness, device, function


def one_device(**kwargs):
    """Return a scheduler with one device and the functions `f` and `g`."""
    return Harness(devices=[device(**kwargs)], functions=[function("f"), function("g")])
