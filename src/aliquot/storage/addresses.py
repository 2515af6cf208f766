"""Addresses of origins: hide their secrets, hide them from tenants, and tell one place from another."""

import re
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from aliquot.storage.records import Dataset

# The separator in `simplecache::s3://bucket/x` and `zip://a.png::https://host/f.zip`. Two colons may also belong to an
# IPv6 address or an rsync module.
_LINK = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*(?:://|::))")
_ADDRESS = re.compile(r"""[a-z][a-z0-9+.-]*://[^\s"'{}:]+(?::\d+[^\s"'{}:]*)?""")  # inside a chain or an option
# Options that are part of the place: with another value the same address may have other files.
PLACE_OPTIONS = (
    "account_name",
    "client_kwargs",
    "endpoint_url",
    "host",
    "manifest",
    "port",
    "project",
    "user",
    "username",
)


def without_secrets(url: str) -> str:
    """Return the address without user, password, query and fragment, in every link of a chain."""
    return "::".join(_shown(link) for link in _LINK.split(url))


def secrets_in(url: str) -> list[str]:
    """Return every secret text in an address."""
    found: list[str] = []
    for link in _LINK.split(url):
        if "://" not in link:
            continue
        parts = urlsplit(link)
        values = [value for _, value in parse_qsl(parts.query)]
        password = parts.password or ""
        found += [link, parts.query, parts.fragment, parts.netloc.rpartition("@")[0], password, unquote(password)]
        found += values
    return found


def place(url: str) -> str:
    """Return the address without passwords. Another user or query may lead to other files, so these stay."""
    return "::".join(_without_password(link) for link in _LINK.split(url))


def _shown(link: str) -> str:
    if "://" not in link:
        return link
    parts = urlsplit(link)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _without_password(link: str) -> str:
    if "://" not in link:
        return link
    parts = urlsplit(link)
    who, _, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, f"{who.partition(':')[0]}@{host}", parts.path, parts.query, ""))


def redact_for_tenants(text: str, dataset: Dataset) -> str:
    """Replace the dataset's address, and parts of it, by the dataset's name: only the operator may see them."""
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
    if not scheme:  # rsync's host:/folder or host::module
        host, _, path = address.partition(":")
        return [host.rpartition("@")[2], path.lstrip(":")]
    host, slash, path = rest.partition("/")
    return [rest, host, host.partition(":")[0], slash + path]
