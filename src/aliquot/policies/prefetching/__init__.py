"""The table of prefetching policies, which decide which files are fetched before they are opened."""

from aliquot.core.interfaces import Prefetching
from aliquot.policies.prefetching.expected_benefit import ExpectedBenefit
from aliquot.policies.prefetching.none import OnDemand
from aliquot.policies.prefetching.threshold import Threshold

PREFETCHING: dict[str, type[Prefetching]] = {
    "expected_benefit": ExpectedBenefit,
    "none": OnDemand,
    "threshold": Threshold,
}
