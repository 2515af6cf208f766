"""Addresses of origins: what of them may be shown, what may not, and what tells one place from another."""

import re
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

# `simplecache::s3://bucket/x`, `zip://a.png::https://host/f.zip`: another address follows. Two colons may also be of an
# IPv6 address, or of an rsync module.
_LINK = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*(?:://|::))")


def without_secrets(url: str) -> str:
    """The address without user, password, query and fragment, in every link of a chain."""
    return "::".join(_shown(link) for link in _LINK.split(url))


def secrets_in(url: str) -> list[str]:
    """Every text in it that nobody is to see."""
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
    """All of the address but passwords: with another user or query it may lead to other files."""
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
