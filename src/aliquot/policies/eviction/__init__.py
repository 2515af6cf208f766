"""Who goes first when there is no room: the table."""

from typing import Any

from aliquot.core.interfaces import Eviction
from aliquot.policies.eviction.lru import Lru

EVICTION: dict[str, type[Eviction[Any]]] = {
    "lru": Lru,
}
