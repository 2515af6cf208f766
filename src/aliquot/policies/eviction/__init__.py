"""The table of eviction policies, which decide which entry is evicted first."""

from typing import Any

from aliquot.core.interfaces import Eviction
from aliquot.policies.eviction.cost_aware import CostAware
from aliquot.policies.eviction.gdsf import Gdsf
from aliquot.policies.eviction.lecar import LeCaR
from aliquot.policies.eviction.lfu import Lfu
from aliquot.policies.eviction.lru import Lru
from aliquot.policies.eviction.s3fifo import S3Fifo

EVICTION: dict[str, type[Eviction[Any]]] = {
    "cost_aware": CostAware,
    "gdsf": Gdsf,
    "lecar": LeCaR,
    "lfu": Lfu,
    "lru": Lru,
    "s3fifo": S3Fifo,
}
