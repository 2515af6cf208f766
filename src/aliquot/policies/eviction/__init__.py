"""Who goes first when there is no room: the table."""

from typing import Any

from aliquot.core.interfaces import Eviction
from aliquot.policies.eviction.cost_aware import CostAware
from aliquot.policies.eviction.greedy_dual import GreedyDual
from aliquot.policies.eviction.lru import Lru

EVICTION: dict[str, type[Eviction[Any]]] = {
    "cost_aware": CostAware,
    "greedy_dual": GreedyDual,
    "lru": Lru,
}
