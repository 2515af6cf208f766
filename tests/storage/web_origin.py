"""A web server for tests, with pages, ranges and entity tags, that can be made to fail."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

from scripted_origin import cache_before

from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset


class WebOrigin:
    def __init__(self, files):
        self.files = dict(files)  # path -> bytes
        self.asked = []  # method, path, range
        self.ranges = True
        self.unranged = set()  # paths without ranges, although `ranges` is set
        self.cut_after = None  # bytes of a body after which the connection ends
        self.cuts_left = 0
        self.status = None  # sent for every request if set
        self.too_much = b""  # sent after the body
        self.gate = threading.Event()  # bodies wait for it after their first half
        self.gate.set()
        self.bodies = 0  # number of bodies that were started
        self.redirects = {}  # path -> address
        self.is_tagged = True
        self.modified = ""  # Last-Modified of all files
        self.pages = {}  # path -> html, instead of the listing

    def page(self, directory):
        if directory in self.pages:
            return self.pages[directory].encode()
        below = [path[len(directory) :] for path in self.files if path.startswith(directory)]
        names = sorted({name.split("/")[0] + ("/" if "/" in name else "") for name in below})
        links = "".join(f'<li><a href="{quote(name)}">{name}</a></li>' for name in names)
        return f'<a href="../">up</a><a href="?C=M">by time</a>{links}'.encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        origin = self.server.origin
        path = unquote(self.path.partition("?")[0]).removeprefix("/data/")
        wanted = self.headers.get("Range")
        origin.asked.append((self.command, path, wanted))
        if origin.status:
            self.send(origin.status, b"trouble", {})
        elif path in origin.redirects:
            self.send(302, b"", {"Location": origin.redirects[path]})
        elif path == "" or path.endswith("/"):
            self.send(200, origin.page(path), {"Content-Type": "text/html"})
        elif path not in origin.files:
            self.send(404, b"", {})
        else:
            self.send_file(origin, path, wanted, body=body)

    def send_file(self, origin, path, wanted, *, body):
        content = origin.files[path]
        headers = {"ETag": f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'} if origin.is_tagged else {}
        headers |= {"Last-Modified": origin.modified} if origin.modified else {}
        status, part = 200, content
        if origin.ranges and path not in origin.unranged:
            headers["Accept-Ranges"] = "bytes"
            if wanted:
                start, end = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
                status, part = 206, content[start : end + 1]
                headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
        self.send(status, part, headers, body=body)

    def rest(self, origin, content):
        """Return the rest of a body, read again after the gate: a real server also reads while it sends."""
        origin.bodies += 1
        if not origin.gate.is_set():
            self.wfile.flush()
            origin.gate.wait(30)
            path = unquote(self.path.partition("?")[0]).removeprefix("/data/")
            if content and path in origin.files:
                return origin.files[path][-len(content) :]
        return content

    def send(self, status, content, headers, *, body=True):
        origin = self.server.origin
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if not body or self.command == "HEAD":
            return
        if origin.cut_after is not None and status in {200, 206} and origin.cuts_left != 0:
            origin.cuts_left -= 1
            self.wfile.write(content[: origin.cut_after])
            self.close_connection = True
            return
        half = len(content) // 2
        self.wfile.write(content[:half])
        self.wfile.write(self.rest(origin, content[half:]) + origin.too_much)

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # a client has disconnected
        pass


@contextmanager
def web_origin(files):
    """Run a server and yield the origin and the address of its root."""
    origin = WebOrigin(files)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.origin = origin
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield origin, f"http://127.0.0.1:{server.server_port}/data"
    finally:
        origin.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def web_cache(directory, files, **settings):
    """Run a web server with these files, and a cache in front of it."""
    with web_origin(files) as (server, url):
        origin = origin_for(Dataset("d", url))
        try:
            with cache_before(directory, origin, **{"chunk_bytes": 100_000, "whole_bytes": 1e9, **settings}) as cache:
                yield server, cache
        finally:
            origin.close()
