"""Checks of the browser's requests, and the headers that keep other pages away from the console.

A tenant's web actions may serve pages from the gateway's port of the same machine. A browser sends the console's cookie
to a path below `/console` on every port, and a page there may send requests here. So the cookie alone proves nothing: a
request must come from a page of this origin, and all but reading requires the session's token.

Such a page may also add a cookie of the same name, with a session of its own, to show its user another namespace than
the own one. So the console's page names its session by the token whenever it can, and two sessions without a token are
none. The page keeps the token where only pages of this origin can write.
"""

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from aliquot.live.gateway.http.names import CONSOLE_COOKIE as COOKIE
from aliquot.live.gateway.http.responses import Headers

MAX_COOKIES = 8  # that may name a session
CSRF = b"x-aliquot-csrf"
READING = frozenset(["GET", "HEAD"])
_CSP = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'; trusted-types 'none'; require-trusted-types-for 'script'"
)
SECURITY: Headers = (
    (b"content-security-policy", _CSP),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
_LOCAL = ("127.0.0.1", "localhost", "[::1]")


class RequestGuard:
    """Decides whether a request comes from a page of the console."""

    def __init__(self, hosts: Iterable[str], *, secure: bool) -> None:
        """Take the values of `Host` that are the console's own, and whether browsers reach it by HTTPS."""
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._scheme = b"https" if secure else b"http"
        self.secure = secure

    def has_own_name(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether the request names the console, and not a name that an attacker has led to it."""
        return headers.get(b"host", b"").lower() in self._hosts

    def is_own_page(self, method: str, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether the request comes from a page of the console, or was typed by the user."""
        site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
        if origin is not None and origin.lower() != self._scheme + b"://" + headers.get(b"host", b"").lower():
            return False
        if site is not None:
            return site in {b"same-origin", b"none"}
        return method in READING or origin is not None

    def is_linked(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a page of somebody else has led the browser here, and not the user or the console itself."""
        return headers.get(b"sec-fetch-site", b"none") not in {b"none", b"same-origin"}

    def cookie(self, text: str, max_age_s: int) -> tuple[bytes, bytes]:
        """Return the header that sets the session's cookie. An age of 0 removes it."""
        secure = "; Secure" if self.secure else ""
        value = f"{COOKIE}={text}; Path=/console; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}"
        return (b"set-cookie", value.encode())


def session_ids(headers: Mapping[bytes, bytes]) -> list[str]:
    """Return the ids of sessions in the cookies. A page of another port can add some, but not remove the right one."""
    pairs = (pair.strip().partition("=") for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    return list(dict.fromkeys(value for name, _, value in pairs if name == COOKIE))[:MAX_COOKIES]


def has_token(headers: Mapping[bytes, bytes], csrf: str) -> bool:
    return hmac.compare_digest(headers.get(CSRF, b""), csrf.encode())


def own_hosts(address: str, port: int, url: str | None) -> list[str]:
    """Return the values of `Host` that name the console: this machine's names, and that of the given address."""
    shown = f"[{address}]" if ":" in address else address
    hosts = [f"{name}:{port}" for name in dict.fromkeys((*_LOCAL, shown))]
    if url is not None:
        hosts.append(urlsplit(url).netloc)
    return hosts
