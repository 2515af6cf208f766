"""No keep-alive at all: an idle sandbox stays until somebody needs its room."""

from aliquot.core.interfaces import KeepAlive


class UntilEvicted(KeepAlive):
    """The base class says it already: nothing ever expires."""
