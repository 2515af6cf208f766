"""What went wrong with an origin, as tenants may read it: where a dataset comes from is the operator's business."""

import re

from aliquot.storage.addresses import without_secrets
from aliquot.storage.origins.base import PLACE_OPTIONS
from aliquot.storage.records import Dataset

_ADDRESS = re.compile(r"""[a-z][a-z0-9+.-]*://[^\s"'{}:]+(?::\d+[^\s"'{}:]*)?""")  # of a chain, or within an option


def redact_for_tenants(text: str, dataset: Dataset) -> str:
    """With the dataset's name wherever the text tells its address, or a part that says where it is."""
    places = {place.rstrip("/") for place in _places(dataset)}
    longest_first = sorted((place for place in places if len(place) > 1 and not place.isdigit()), key=len, reverse=True)
    pattern = "|".join(rf"(?<![\w-]){re.escape(place)}/?(?![\w-])" for place in longest_first)
    return re.sub(pattern, lambda found: dataset.name + "/" * found[0].endswith("/"), text) if pattern else text


def _places(dataset: Dataset) -> list[str]:
    url = without_secrets(dataset.url)
    texts = [url, *(dataset.options[name] for name in PLACE_OPTIONS if name in dataset.options)]
    addresses = [*texts, *(link for text in texts for link in _ADDRESS.findall(text))]
    return [place for address in addresses for place in (address, *_parts(address))]


def _parts(address: str) -> list[str]:
    if address.startswith("/"):
        return []
    _, scheme, rest = address.partition("://")
    if not scheme:  # host:/folder or host::module, as rsync writes them
        host, _, path = address.partition(":")
        return [host.rpartition("@")[2], path.lstrip(":")]
    host, slash, path = rest.partition("/")
    return [rest, host, host.partition(":")[0], slash + path]
