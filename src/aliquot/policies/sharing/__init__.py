"""How a device's compute is divided among those at work: the table."""

from aliquot.core.interfaces import Sharing
from aliquot.policies.sharing.elastic import Elastic
from aliquot.policies.sharing.elastic_guarded import ElasticGuarded
from aliquot.policies.sharing.hard import Hard

SHARING: dict[str, type[Sharing]] = {
    "elastic": Elastic,
    "elastic_guarded": ElasticGuarded,
    "hard": Hard,
}
