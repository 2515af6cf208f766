"""The table of sharing policies, which divide a device's compute among the running sandboxes."""

from aliquot.core.interfaces import Sharing
from aliquot.policies.sharing.elastic import Elastic
from aliquot.policies.sharing.elastic_guarded import ElasticGuarded
from aliquot.policies.sharing.hard import Hard

SHARING: dict[str, type[Sharing]] = {
    "elastic": Elastic,
    "elastic_guarded": ElasticGuarded,
    "hard": Hard,
}
