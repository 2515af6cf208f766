"""The transport of the npm client: keys, tokens, request ids, TLS, retries, other namespaces."""

import pytest
from certificate import needs_openssl, tls_options
from npm_client import ClientError, NpmClient, needs_node

from aliquot.testing.server import LiveServer

pytestmark = needs_node

ECHO = {"action": "def main(args): return args", "kind": "python:3.11"}


@pytest.mark.parametrize("key", ["no:key", "nothing", ":"])
def test_a_wrong_key_is_refused_in_words(server, key):
    with NpmClient(apihost=server.url, api_key=key) as nobody:
        for resource in ("actions", "activations", "packages", "rules", "triggers", "namespaces"):
            with pytest.raises(ClientError) as error:
                getattr(nobody, resource).list()
            assert error.value.status == 401
            assert set(error.value.body) == {"error", "code"}


def test_the_key_may_come_from_the_environment(server):
    environment = {"__OW_API_HOST": server.url, "__OW_API_KEY": server.key, "__OW_NAMESPACE": "guest"}
    with NpmClient(environment) as client:
        assert client.namespaces.list() == ["guest"]
        assert client.actions.list() == []


def test_a_request_id_is_taken_over(server):
    with NpmClient({"__OW_TRANSACTION_ID": "order-66"}, apihost=server.url, api_key=server.key) as client:
        with pytest.raises(ClientError) as error:
            client.actions.get("missing")
        assert error.value.body["code"] == "order-66"
    with NpmClient({"__OW_TRANSACTION_ID": "sid_order-66"}, apihost=server.url, api_key=server.key) as client:
        with pytest.raises(ClientError) as error:
            client.actions.get("missing")
        assert error.value.body["code"] != "sid_order-66"


def test_the_version_and_the_whole_address_may_be_named(server):
    for options in ({"apihost": server.url, "apiversion": "v1"}, {"api": f"{server.url}/api/v1"}):
        with NpmClient(api_key=server.key, namespace="guest", **options) as client:
            assert client.actions.list() == []


def test_another_namespace_is_refused(server, stranger):
    with NpmClient(apihost=server.url, api_key=server.key, namespace="stranger") as client:
        for resource in ("actions", "activations", "rules", "triggers"):
            with pytest.raises(ClientError) as error:
                getattr(client, resource).list()
            assert error.value.status == 403


def test_a_client_that_retries_is_answered_as_well(server):
    with NpmClient(apihost=server.url, api_key=server.key, retry={"retries": 2}) as client:
        client.actions.create({"name": "again", **ECHO})
        asked = {"name": "again", "blocking": True, "result": True, "params": {"x": "é"}}
        assert client.actions.invoke(asked) == {"x": "é"}
        client.actions.delete("again")


@needs_openssl
def test_tls_with_a_certificate_of_ones_own(tmp_path):
    with LiveServer(tmp_path / "data", *tls_options(tmp_path)) as server:
        assert server.url.startswith("https://")
        with NpmClient(apihost=server.url, api_key=server.key) as client:
            with pytest.raises(ClientError) as error:
                client.namespaces.list()
            assert error.value.status is None  # it does not trust the certificate
        host = server.url.removeprefix("https://")
        for options in ({"ignore_certs": True}, {"environment": {"__OW_IGNORE_CERTS": "true"}}):
            with NpmClient(apihost=host, api_key=server.key, **options) as client:
                client.actions.create({"name": "echo", **ECHO})
                asked = {"name": "echo", "blocking": True, "result": True, "params": {"x": 1}}
                assert client.actions.invoke(asked) == {"x": 1}
                client.actions.delete("echo")
