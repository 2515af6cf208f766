"""Frames, tokens, names and the code store of a cluster."""

import struct
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.cluster.agent.code_store import CodeStore
from aliquot.cluster.agent.settings import HeadAddress, parse_address
from aliquot.cluster.certificates import Authority, agent_context, digest_of, fingerprint_of, head_context, make_request
from aliquot.cluster.frames import MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, FrameError, FrameReader, frame_message
from aliquot.cluster.messages import Stop, decode_from_agent, decode_from_head, encode
from aliquot.cluster.names import check_node_name, local_place, scheduler_device
from aliquot.cluster.tokens import JoinToken, node_secret, parse_token, proof_of, proves
from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.core.places import is_cpu, node_of


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_messages_arrive_whole_however_their_bytes_are_cut(messages, size):
    sent = b"".join(part for message in messages for part in frame_message(message))
    reader = FrameReader()
    found = [each for at in range(0, len(sent), size) for each in reader.feed(sent[at : at + size])]
    assert found == messages


def test_a_large_message_is_sent_in_frames():
    message = bytes(range(256)) * (MAX_FRAME_BYTES // 100)
    parts = list(frame_message(message))
    assert len(parts) == 3
    reader = FrameReader()
    reader.max_message_bytes = MAX_MESSAGE_BYTES
    assert list(reader.feed(b"".join(parts))) == [message]


@pytest.mark.parametrize("length", [MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_a_length_that_is_garbage_takes_no_memory(length):
    with pytest.raises(FrameError, match="at most"):
        list(FrameReader().feed(struct.pack("<I", length)))


def test_a_stranger_may_send_little():
    reader = FrameReader()
    with pytest.raises(FrameError, match="more than 65536 bytes"):
        list(reader.feed(b"".join(frame_message(b"x" * 70_000))))


def test_commands_and_reports_are_told_apart():
    assert decode_from_head(encode(Stop(7))) == Stop(7)
    with pytest.raises(ValueError, match="Invalid value"):
        decode_from_agent(encode(Stop(7)))


def test_a_token_says_the_authority_and_the_secret():
    token = JoinToken(b"a" * 32, b"s" * 24)
    assert parse_token(token.text()) == token
    assert parse_token(JoinToken(b"", b"s" * 24).text()).authority == b""
    for wrong in ("", "alq1.", "alq1.AAAA", token.text().replace("alq1.", "alq2.")):
        with pytest.raises(InputError, match="no join token"):
            parse_token(wrong)


def test_a_proof_holds_for_its_purpose_alone():
    secret = node_secret(b"s" * 24, "n1", "me")
    proof = proof_of(secret, b"nonce", "hello", "n1", "me")
    assert proves(proof, secret, b"nonce", "hello", "n1", "me")
    assert not proves(proof, secret, b"other", "hello", "n1", "me")
    assert not proves(proof, secret, b"nonce", "relay", "n1", "me")
    assert not proves(proof, node_secret(b"s" * 24, "n2", "me"), b"nonce", "hello", "n1", "me")


def test_names_of_nodes_are_names_of_hosts():
    assert check_node_name("gpu-7.lab", "--name") == "gpu-7.lab"
    for wrong in ("", "head", "a/b", "Upper", "-a", "a" * 64):
        with pytest.raises(InputError, match="--name"):
            check_node_name(wrong, "--name")


def test_devices_have_their_nodes_name_in_the_scheduler():
    device = scheduler_device("n1", DeviceSpec("host-1", "host", movable=True))
    assert (device.name, device.node, device.remote, device.movable) == ("n1/host-1", "n1", True, False)
    assert local_place((device.name,)) == ("host-1",)
    assert node_of((device.name,)) == "n1"
    assert node_of(("host-1",)) == ""
    assert is_cpu(("n1/cpu",))
    assert not is_cpu(("n1/host-1",))


def test_addresses_of_heads():
    assert parse_address("lab:4000", 3235, tls=True) == HeadAddress("lab", 4000)
    assert parse_address("https://lab/", 3235, tls=True) == HeadAddress("lab", 3235)
    assert parse_address("[::1]:4000", 3235, tls=False) == HeadAddress("::1", 4000, tls=False)
    assert str(parse_address("[fe80::1]", 3235, tls=True)) == "[fe80::1]:3235"
    for wrong in ("", "lab:x", "lab:0", "lab:70000"):
        with pytest.raises(InputError, match="no address of a head"):
            parse_address(wrong, 3235, tls=True)


def test_code_is_kept_by_digest_and_checked(tmp_path):
    store = CodeStore(tmp_path / "code")
    body = b"def main(args): return args"
    digest = sha256(body).hexdigest()
    assert store.get(digest) is None
    store.add(digest, body)
    assert store.get(digest) == body.decode()
    (tmp_path / "code" / digest).write_bytes(b"damaged")
    assert store.get(digest) is None
    store.add(digest, body)
    assert CodeStore(tmp_path / "code", max_bytes=10).get(digest) is None


def test_the_authority_outlives_the_head_and_signs_nodes(tmp_path):
    authority = Authority(tmp_path / "head")
    again = Authority(tmp_path / "head")
    assert authority.digest == again.digest == digest_of(authority.pem)
    _, request = make_request("n1")
    certificate = again.sign_node("n1", request)
    assert len(fingerprint_of(certificate)) == 64
    assert head_context(authority.files).minimum_version.name == "TLSv1_3"
    assert agent_context(authority.files).check_hostname
    with pytest.raises(ValueError):  # noqa: PT011 - of the library
        again.sign_node("n1", b"no request")
