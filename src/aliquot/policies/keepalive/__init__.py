"""The table of keep-alive policies, which decide how long idle sandboxes stay."""

from aliquot.core.interfaces import KeepAlive
from aliquot.policies.keepalive.adaptive import Adaptive
from aliquot.policies.keepalive.anticipatory import Anticipatory
from aliquot.policies.keepalive.fixed_ttl import FixedTtl
from aliquot.policies.keepalive.hazard import Hazard
from aliquot.policies.keepalive.hybrid_histogram import HybridHistogram
from aliquot.policies.keepalive.none import UntilEvicted

KEEPALIVE: dict[str, type[KeepAlive]] = {
    "adaptive": Adaptive,
    "anticipatory": Anticipatory,
    "fixed_ttl": FixedTtl,
    "hazard": Hazard,
    "hybrid_histogram": HybridHistogram,
    "none": UntilEvicted,
}
