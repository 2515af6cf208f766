"""The table of batching policies, which choose how many calls of a function run together."""

from aliquot.core.interfaces import Batching
from aliquot.policies.batching.aimd import Aimd
from aliquot.policies.batching.greedy import Greedy
from aliquot.policies.batching.none import NoBatches
from aliquot.policies.batching.target import Target

BATCHING: dict[str, type[Batching]] = {"aimd": Aimd, "greedy": Greedy, "none": NoBatches, "target": Target}
