"""A collector of OpenTelemetry's protocol over HTTP, which keeps the spans that it gets."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aliquot.testing.waiting import wait_until


class OtlpCollector:
    """Listens on a free port. `status` is the answer to each request, and `gate` holds the answers back."""

    def __init__(self):
        self.requests = []  # decoded
        self.paths = []
        self.headers = []
        self.status = 200
        self.gate = threading.Event()
        self.gate.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.gate.wait(60)
                if collector.status == 200:
                    collector.paths.append(self.path)
                    collector.headers.append(dict(self.headers))
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def spans(self):
        return [
            span
            for request in list(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def wait_for(self, count):
        return wait_until(lambda: self.spans, lambda spans: len(spans) >= count, what=f"{count} spans")

    def close(self):
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def attributes_of(span):
    """Return the attributes of a decoded span."""
    return {pair.key: _value_of(pair.value) for pair in span.attributes}


def _value_of(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value_of(one) for one in value.array_value.values]
    return getattr(value, kind)
