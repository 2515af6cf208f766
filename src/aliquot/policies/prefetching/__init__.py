"""Which files are brought before anyone opens them: the table."""

from aliquot.core.interfaces import Prefetching
from aliquot.policies.prefetching.none import OnDemand
from aliquot.policies.prefetching.threshold import Threshold

PREFETCHING: dict[str, type[Prefetching]] = {
    "none": OnDemand,
    "threshold": Threshold,
}
