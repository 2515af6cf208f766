"""The gateway's sockets: both loopback addresses, or a clear refusal."""

import socket

import pytest

from aliquot.core.errors import InputError
from aliquot.live.gateway.http.listeners import listen, url_of


def close(sockets):
    for one in sockets:
        one.close()


@pytest.mark.parametrize(
    ("host", "addresses", "url"),
    [
        ("127.0.0.1", ["127.0.0.1", "::1"], "http://127.0.0.1:{}"),
        ("localhost", ["127.0.0.1", "::1"], "http://127.0.0.1:{}"),
        ("0.0.0.0", ["0.0.0.0", "::1"], "http://127.0.0.1:{}"),  # noqa: S104 - closed at once
        ("::1", ["::1", "127.0.0.1"], "http://[::1]:{}"),
        ("::", ["::"], "http://[::1]:{}"),
        ("127.0.0.7", ["127.0.0.7"], "http://127.0.0.7:{}"),
    ],
)
def test_both_loopback_addresses_have_the_same_port(host, addresses, url):
    sockets = listen(host, 0)
    try:
        assert [one.getsockname()[0] for one in sockets] == addresses
        ports = {one.getsockname()[1] for one in sockets}
        assert len(ports) == 1
        assert url_of(sockets[0], tls=False) == url.format(ports.pop())
    finally:
        close(sockets)


@pytest.mark.parametrize(("taken", "host"), [("::1", "127.0.0.1"), ("127.0.0.1", "::1")])
def test_a_port_that_another_program_has_on_the_other_address_is_refused(taken, host):
    family = socket.AF_INET6 if ":" in taken else socket.AF_INET
    with socket.create_server((taken, 0), family=family) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=rf"--port: \[?{taken}\]?:{port} cannot be listened on.*localhost"):
            listen(host, port)
        close(listen("127.0.0.7", port))  # an address that is no other name of localhost needs no second one


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(InputError, match="give another with --port"):
        listen("127.0.0.1", other.getsockname()[1])
