"""The parts of a data folder that a backup has."""

from aliquot.cli.backup import PARTS
from aliquot.live.datasets.settings import FABRIC_DIRECTORY, VOLUMES_DIRECTORY
from aliquot.storage.agent.predictions import LOG, MODELS


def test_the_parts_are_where_the_storage_agent_keeps_them():
    assert PARTS.databases == (f"{FABRIC_DIRECTORY}/{LOG}",)
    assert PARTS.folders == (f"{FABRIC_DIRECTORY}/{MODELS}",)
    assert PARTS.volumes == VOLUMES_DIRECTORY
