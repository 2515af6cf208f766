"""The SDK's own parser of replies does what httptools' parser does, however the bytes are cut."""

import subprocess
import sys

import pytest

from aliquot.sdk.http.parsing import NotHttpError, PlainReplyParser, new_parser

REPLIES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n",
    b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nLate: field\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\n\r\nup to the end",
]


class Reader:
    """Notes what a parser calls. Parts of a body that follow each other are one."""

    def __init__(self, make):
        self.seen = []
        self.parser = make(self)

    def on_header(self, name, value):
        self.seen.append((name.lower(), value))

    def on_headers_complete(self):
        self.seen.append((self.parser.get_status_code(), self.parser.should_keep_alive()))

    def on_body(self, data):
        before = self.seen.pop()[1] if self.seen[-1][0] == "body" else b""
        self.seen.append(("body", before + data))

    def on_message_complete(self):
        self.seen.append(("complete", None))


def read(make, reply, cut):
    reader = Reader(make)
    for part in (reply[:cut], reply[cut:]):
        if part:
            reader.parser.feed_data(part)
    return [one for one in reader.seen if one[0] != b"late"]


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_is_read_as_by_httptools_wherever_it_is_cut(reply):
    for cut in range(1, len(reply) + 1):
        assert read(PlainReplyParser, reply, cut) == read(new_parser, reply, len(reply)), cut


@pytest.mark.parametrize(
    "wrong",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"a" * 300_000,
    ],
)
def test_what_is_no_reply_is_refused(wrong):
    with pytest.raises(NotHttpError):
        read(PlainReplyParser, wrong, len(wrong))


def test_the_sdk_needs_nothing_but_the_standard_library():
    """A sandbox has no packages of the server's."""
    program = "import sys; sys.modules['httptools'] = None; from aliquot.sdk.http import blocking, parsing"
    check = "; assert isinstance(parsing.new_parser(None), parsing.PlainReplyParser)"
    subprocess.run([sys.executable, "-c", program + check], check=True)
