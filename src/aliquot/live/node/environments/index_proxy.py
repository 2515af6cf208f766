"""A proxy for package indexes, so that an installation reaches them without the operator's credentials.

It is run by file path, outside of the isolation: `python -I index_proxy.py`. Its first line of input is a JSON object
(`IndexSettings` in `pip_settings.py`, and a socket that listens in the network of the build). It prints a line when it
is ready, and ends with its input. It answers these requests:

    /TOKEN/index/N/PROJECT/     the files of a project in the index with number N
    /TOKEN/links/N/             the files that the page with number N links to
    /TOKEN/file/ID/NAME         a file that one of these pages has listed, or its metadata if `.metadata` follows

Nothing else can be requested through it. Credentials are sent only to the servers that the settings name.
"""

from __future__ import annotations

import base64
import contextlib
import html
import json
import netrc
import os
import re
import shutil
import socket
import ssl
import sys
import threading
import urllib.request
from email.message import Message
from html.parser import HTMLParser
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit, urlunsplit

MAX_PAGE_BYTES = 64 << 20
MAX_REQUESTS = 32  # at once
MAX_FILES = 1_000_000  # that pages have listed
_COPY_BYTES = 256 * 1024
_MAX_REASON_CHARS = 300
_BAD_GATEWAY, _NOT_FOUND, _TOO_MANY = 502, 404, 503
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz", ".tlz", ".tar.lz", ".tar.lzma")
_ACCEPT = "application/vnd.pypi.simple.v1+html, text/html;q=0.9, */*;q=0.1"
_KEPT_ATTRIBUTES = ("data-requires-python", "data-yanked", "data-dist-info-metadata", "data-core-metadata")
_KEPT_HEADERS = ("Content-Type", "Content-Length", "ETag", "Last-Modified")


class LinkParser(HTMLParser):
    """Collects the links of a page with their attributes, and its base."""

    def __init__(self) -> None:
        super().__init__()
        self.base: str | None = None
        self.links: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        if tag == "base" and self.base is None:
            self.base = found.get("href")
        elif tag == "a" and found.get("href"):
            self.links.append(found)


def origin_of(url: str) -> tuple[str, str, int]:
    """Return what two addresses of one server have in common."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def without_credentials(url: str) -> tuple[str, str]:
    """Return the address without user and password, and these two as an `Authorization` header, or an empty text."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    plain = urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))
    return plain, _basic(*(unquote(word) for word in user.partition(":")[::2])) if at else ""


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Upstream:
    """Requests to the operator's indexes, with the operator's credentials, certificates and proxies."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._timeout_s = settings["timeout_s"]
        self.indexes = [without_credentials(url)[0] for url in settings["indexes"]]
        self.links = [without_credentials(url)[0] for url in settings["links"]]
        self._authorizations: dict[tuple[str, str, int], str] = {}
        for url in (*settings["indexes"], *settings["links"]):
            if authorization := without_credentials(url)[1] or _netrc_authorization(urlsplit(url).hostname or ""):
                self._authorizations.setdefault(origin_of(url), authorization)
        handlers: list[urllib.request.BaseHandler] = [_VerifiedHttps(settings), _Redirects(self)]
        if settings["proxy"]:
            handlers.append(urllib.request.ProxyHandler(dict.fromkeys(("http", "https"), settings["proxy"])))
        self._opener = urllib.request.build_opener(*handlers)
        self._opener.addheaders = [("User-Agent", "aliquot")]

    def open(self, url: str, accept: str = "*/*") -> HTTPResponse:
        """Request an address. Raises `HTTPError`, or another `OSError` or `HTTPException`."""
        plain, own = without_credentials(url)
        request = urllib.request.Request(plain, headers={"Accept": accept, "Accept-Encoding": "identity"})  # noqa: S310
        self.authorize(request, own)
        opened: HTTPResponse = self._opener.open(request, timeout=self._timeout_s)
        return opened

    def authorize(self, request: urllib.request.Request, own: str = "") -> None:
        """Add the credentials for the request's server. They are not sent to another one after a redirection."""
        authorization = own or self._authorizations.get(origin_of(request.full_url), "")
        if authorization:
            request.add_unredirected_header("Authorization", authorization)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections, and gives each server only its own credentials."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise URLError(f"redirected to {urlsplit(newurl).scheme}:")
        found = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type] # typeshed
        if found is not None:
            self._upstream.authorize(found)
        return found


class _VerifiedHttps(urllib.request.HTTPSHandler):
    """Verifies the certificates of all hosts but the trusted ones."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self._trusted = settings["trusted"]
        self._verifying, self._unverifying = (ssl.create_default_context(cafile=settings["cert"] or None) for _ in "12")
        if not settings["cert"]:
            with contextlib.suppress(ImportError):
                import certifi  # noqa: PLC0415 - if it is there, as pip's own copy would be

                self._verifying.load_verify_locations(certifi.where())
        self._unverifying.check_hostname = False
        self._unverifying.verify_mode = ssl.CERT_NONE
        for context in (self._verifying, self._unverifying):
            if settings["client_cert"]:
                context.load_cert_chain(settings["client_cert"])

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        trusted = urlsplit(req.full_url).hostname in self._trusted
        context = self._unverifying if trusted else self._verifying
        return self.do_open(HTTPSConnection, req, context=context)


def _netrc_authorization(host: str) -> str:
    try:
        found = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return ""
    return _basic(found[0], found[2]) if found else ""


class PageFiles:
    """The files that pages have listed, by number. Only these can be requested."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, url: str) -> int:
        with self._lock:
            number = self._numbers.get(url)
            if number is None:
                if len(self.urls) >= MAX_FILES:
                    raise URLError("too many files")
                number = self._numbers[url] = len(self.urls)
                self.urls.append(url)
            return number


def rewrite_page(page: str, url: str, files: PageFiles, prefix: str) -> str:
    """Return a page with the same files, whose links lead through the proxy."""
    parser = LinkParser()
    parser.feed(page)
    base = urljoin(url, parser.base or "")
    lines = ["<!DOCTYPE html><html><body>"]
    for link in parser.links:
        target, fragment = urldefrag(urljoin(base, link["href"]))
        parts = urlsplit(target)
        name = unquote(parts.path.rpartition("/")[2])
        if parts.scheme not in ("http", "https") or not name.endswith(_ARCHIVES):
            continue
        here = f"{prefix}/file/{files.add(target)}/{quote(name)}" + (f"#{fragment}" if fragment else "")
        kept = "".join(f' {key}="{html.escape(link[key])}"' for key in _KEPT_ATTRIBUTES if key in link)
        lines.append(f'<a href="{html.escape(here)}"{kept}>{html.escape(name)}</a><br>')
    return "\n".join([*lines, "</body></html>"])


class IndexServer(ThreadingHTTPServer):
    """Answers connections to a socket that already listens."""

    daemon_threads = True

    def __init__(self, token: str, upstream: Upstream, listener: socket.socket) -> None:
        super().__init__(listener.getsockname(), IndexRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.prefix = f"/{token}"
        self.upstream = upstream
        self.files = PageFiles()
        self.places = threading.BoundedSemaphore(MAX_REQUESTS)


class IndexRequestHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: IndexServer
    timeout = 60

    def do_GET(self) -> None:
        if not self.server.places.acquire(blocking=False):
            self.send_error(_TOO_MANY, "too many requests at once")
            return
        try:
            self._route()
        except HTTPError as error:
            with error:
                self._fail(error.code, f"{_host(error.url)} answered {error.code}")
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            self._fail(_BAD_GATEWAY, f"the package index does not answer: {type(reason).__name__}: {reason}")
        finally:
            self.server.places.release()

    def _fail(self, status: int, why: str) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client has gone
            self.send_error(status, "".join(each for each in why if each.isprintable())[:_MAX_REASON_CHARS])

    def _route(self) -> None:
        _, token, kind, number, name, *_ = [*urlsplit(self.path).path.split("/"), "", "", ""]
        url = self._upstream_url(kind, number, unquote(name)) if f"/{token}" == self.server.prefix else None
        if url is None:
            self._fail(_NOT_FOUND, "there is no such page")
        elif kind == "file":
            self._send_file(url)
        else:
            self._send_page(url)

    def _upstream_url(self, kind: str, number: str, name: str) -> str | None:
        """Return the address that a request stands for, or None if it may not be requested."""
        upstream = self.server.upstream
        known = {"index": upstream.indexes, "links": upstream.links, "file": self.server.files.urls}.get(kind, [])
        if not number.isdecimal() or int(number) >= len(known):
            return None
        url = known[int(number)]
        if kind == "index":
            return f"{url.rstrip('/')}/{name}/" if _PROJECT.fullmatch(name) else None
        if kind == "file" and name.endswith(".metadata"):
            parts = urlsplit(url)
            return urlunsplit(parts._replace(path=parts.path + ".metadata"))
        return url

    def _send_page(self, url: str) -> None:
        with self.server.upstream.open(url, _ACCEPT) as answer:
            content = answer.read(MAX_PAGE_BYTES + 1)
            if len(content) > MAX_PAGE_BYTES:
                raise ValueError(f"a page of more than {MAX_PAGE_BYTES} bytes")
            text = content.decode(answer.headers.get_content_charset() or "utf-8", errors="replace")
            page = rewrite_page(text, answer.url, self.server.files, self.server.prefix).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def _send_file(self, url: str) -> None:
        with self.server.upstream.open(url) as answer:
            self.send_response(200)
            for name in _KEPT_HEADERS:
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("Connection", "close")  # the length may be unknown
            self.end_headers()
            shutil.copyfileobj(answer, self.wfile, _COPY_BYTES)

    def log_message(self, *_: object) -> None:
        """Print nothing about requests."""


def _host(url: str | None) -> str:
    return urlsplit(url or "").hostname or "the package index"


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    for procs in settings["cgroup_fds"]:
        os.write(procs, b"0")  # its resources count for the build
        os.close(procs)
    server = IndexServer(settings["token"], Upstream(settings), socket.socket(fileno=settings["listener"]))
    if settings["uid"] is not None:
        os.setgroups([])
        os.setresgid(settings["uid"], settings["uid"], settings["uid"])
        os.setresuid(settings["uid"], settings["uid"], settings["uid"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()  # until the server or the build has ended
    os._exit(0)


if __name__ == "__main__":
    main()
