"""No keep-alive limit: an idle sandbox stays until it is evicted."""

from aliquot.core.interfaces import KeepAlive


class UntilEvicted(KeepAlive):
    """Keeps idle sandboxes until they are evicted."""
