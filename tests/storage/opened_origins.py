"""Origins that are closed when their test ends."""

from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset

made = []


def origin_at(url, **options):
    """Return the origin of an address. The fixture `closed_origins` closes it."""
    made.append(origin_for(Dataset("d", str(url), options)))
    return made[-1]


def sizes(origin):
    return {file.path: file.size for file in origin.files()}
