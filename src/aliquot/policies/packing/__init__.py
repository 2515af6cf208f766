"""The table of packing policies, which choose among devices with room for a new slice."""

from aliquot.core.interfaces import Packing
from aliquot.policies.packing.best_fit import BestFit
from aliquot.policies.packing.first_fit import FirstFit
from aliquot.policies.packing.least_fragmented import LeastFragmented

PACKING: dict[str, type[Packing]] = {
    "best_fit": BestFit,
    "first_fit": FirstFit,
    "least_fragmented": LeastFragmented,
}
