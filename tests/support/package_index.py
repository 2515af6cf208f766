"""A package index made by the test: a small HTTP server with wheels and source archives made on the spot."""

import base64
import contextlib
import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# A build backend in the package itself: it needs nothing else to be installed first.
PROJECT = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"


def source_archive(name: str, version: str, backend: str) -> tuple[str, bytes]:
    """Return the file name and the contents of a source archive, whose code `backend` runs when it is installed."""
    files = {
        "backend.py": backend,
        "pyproject.toml": PROJECT,
        "PKG-INFO": f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return f"{name}-{version}.tar.gz", buffer.getvalue()


class PackageIndex:
    """Serves packages at `url`. With a password it answers only requests that have it. Some projects never answer.

    Files are at `file_host`, if it is given.
    """

    def __init__(self, *files: tuple[str, bytes], password: str = "", stuck: tuple[str, ...] = (), file_host: str = ""):
        self.files = dict(files)
        self.authorizations: set[str | None] = set()
        self.requests: list[str] = []
        self.released = threading.Event()  # lets requests for stuck projects fail
        index = self

        def digest(file):
            return hashlib.sha256(index.files[file]).hexdigest()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                index.requests.append(self.path)
                index.authorizations.add(self.headers.get("Authorization"))
                expected = base64.b64encode(f"operator:{password}".encode()).decode()
                if password and self.headers.get("Authorization") != f"Basic {expected}":
                    self._answer(401, b"", "text/plain", **{"WWW-Authenticate": "Basic"})
                    return
                if any(f"/{project}/" in self.path for project in stuck):
                    index.released.wait(120)
                    self._answer(503, b"", "text/plain")
                    return
                kind, _, name = self.path.strip("/").partition("/")
                if kind == "files" and name in index.files:
                    self._answer(200, index.files[name], "application/octet-stream")
                    return
                project = [file for file in index.files if file.startswith(f"{name.rstrip('/')}-")]
                links = "".join(
                    f'<a href="{file_host}/files/{file}#sha256={digest(file)}">{file}</a>' for file in project
                )
                self._answer(200 if links else 404, f"<!DOCTYPE html>{links}".encode(), "text/html")

            def _answer(self, status, body, kind, **headers):
                with contextlib.suppress(OSError):  # the client has gone
                    self.send_response(status)
                    for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                        self.send_header(key, value)
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                """Print no line for each request."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"http://127.0.0.1:{self._server.server_port}"
        secret = f"operator:{password}@" if password else ""
        self.url = f"http://{secret}127.0.0.1:{self._server.server_port}/simple"

    def add(self, file: tuple[str, bytes]) -> None:
        self.files[file[0]] = file[1]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
