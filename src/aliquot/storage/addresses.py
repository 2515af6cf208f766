"""Addresses of origins, as they may be shown."""

from urllib.parse import urlsplit, urlunsplit


def without_secrets(url: str) -> str:
    """The address without user, password, query and fragment."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
