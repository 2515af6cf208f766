"""The volumes that functions name."""

from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.datasets.volumes import VolumeRegistry
from aliquot.live.store.records import Action


def reason_no_volumes(volumes: VolumeRegistry, action: Action, tenant: str) -> str | None:
    """Return why a function does not get the volumes that it names when this tenant calls it, or None."""
    return volumes.reason_unavailable(action.namespace, parse_needs(action).volumes, tenant)
