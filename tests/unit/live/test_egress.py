"""`aliquot up --egress`, the rules that it sets, and the relay's answers to DNS queries."""

import asyncio
import ipaddress
import socket
import struct

import pytest

from aliquot.core.errors import InputError
from aliquot.live.node.network.egress import EgressPolicy, EgressRule, EgressRules, parse_egress
from aliquot.live.node.network.names import HostNames, read_question
from aliquot.runtime.network import SteeredPort

ip = ipaddress.ip_address


def rules(text):
    return EgressRules(parse_egress(text, "--egress"))


def allows(text, address, port=443, *, names=(), own=False):
    return rules(text).allows(ip(address), port, names, own=own)


def test_a_list_has_hosts_and_networks_with_and_without_ports():
    assert parse_egress("all", "--egress") == EgressPolicy()
    assert parse_egress("none", "--egress") == EgressPolicy(open=False)
    assert parse_egress("DB.example.org:5432, *.example.org,10.0.0.0/8,[fd00::1]:80,fd00::/8,all", "--egress") == (
        EgressPolicy(
            open=True,
            rules=(
                EgressRule(host="db.example.org", port=5432),
                EgressRule(host="*.example.org"),
                EgressRule(network="10.0.0.0/8"),
                EgressRule(network="fd00::1/128", port=80),
                EgressRule(network="fd00::/8"),
            ),
        )
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not understood; it takes all, none, or a list"),
        ("none,10.0.0.0/8", "'none,10.0.0.0/8' is not understood"),
        ("10.0.0.0/33", "'10.0.0.0/33' is neither a host nor a network"),
        ("300.0.0.1", "'300.0.0.1' is neither a host nor a network"),
        ("a b", "'a b' is neither a host nor a network"),
        ("example.org:", "'example.org:' has no port after the colon"),
        ("example.org:http", "a port is a number from 1 to 65535, not 'http'"),
        ("example.org:70000", "a port is a number from 1 to 65535, not '70000'"),
        ("[::1", "an address of IPv6 with a port is [::1]:5432"),
        ("localhost", "name one address and port, such as 127.0.0.1:5432"),
        ("127.0.0.0/8:80", "name one address and port, such as 127.0.0.0:5432"),
    ],
)
def test_a_list_that_is_not_understood_is_refused_with_a_reason(text, said):
    with pytest.raises(InputError, match=r"^--egress: ") as refused:
        parse_egress(text, "--egress")
    assert said in str(refused.value)


def test_all_is_everything_outside_of_the_machine():
    assert allows("all", "192.0.2.1")
    assert allows("all", "10.0.0.1")
    assert allows("all", "2001:db8::1")
    assert not allows("all", "192.0.2.1", own=True)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "169.254.169.254", "169.254.0.1", "100.100.100.200", "0.0.0.0", "224.0.0.1"),  # noqa: S104
        *("255.255.255.255", "::1", "fe80::1", "fd00:ec2::254", "ff02::1", "::"),
    ],
)
def test_the_machine_and_what_is_near_it_must_be_listed(address):
    assert not allows("all", address)
    if not ip(address).is_loopback:
        assert allows(f"all,{address}", address)
    assert allows(f"[{address}]:443", address)


def test_only_what_is_listed_is_reached():
    assert allows("10.0.0.0/8:443", "10.1.2.3")
    assert not allows("10.0.0.0/8:443", "10.1.2.3", 80)
    assert not allows("10.0.0.0/8", "11.0.0.1")
    assert allows("db.example.org:5432", "192.0.2.1", 5432, names=("db.example.org",))
    assert not allows("db.example.org:5432", "192.0.2.1", 443, names=("db.example.org",))
    assert not allows("db.example.org", "192.0.2.1")
    assert allows("*.example.org", "192.0.2.1", names=("a.b.example.org",))
    assert not allows("*.example.org", "192.0.2.1", names=("example.org", "badexample.org"))
    assert not allows("none", "192.0.2.1")


def test_listed_loopback_ports_lead_out_of_the_sandbox():
    listed = rules("all,localhost:5432,[::1]:80,10.0.0.1:81")
    assert listed.steered_ports() == [SteeredPort(ip("127.0.0.1"), 5432), SteeredPort(ip("::1"), 80)]


# --- names ----------------------------------------------------------------------------------------------------


def query(name, kind=1, number=77):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def answer(text, data):
    return asyncio.run(HostNames(rules(text)).answer(data))


def test_a_query_is_read_and_a_damaged_one_is_not():
    whole = query("WWW.example.org", 28)
    assert read_question(whole) == ("www.example.org", 28, len(whole))
    for end in range(len(whole)):
        assert read_question(whole[:end]) is None
    assert read_question(whole[:12] + b"\xc0\x0c\0\x01\0\x01") is None
    assert answer("example.org", b"\1\2") == b"\1\2" + struct.pack("!HHHHH", 0x8181, 0, 0, 0, 0)


def test_a_listed_name_is_looked_up_and_its_addresses_can_be_reached():
    async def scene():
        names = HostNames(EgressRules(EgressPolicy(open=False, rules=(EgressRule(host="localhost"),))))
        assert names.of(ip("127.0.0.1")) == ()
        reply = await names.answer(query("localhost"))
        assert names.of(ip("127.0.0.1")) == ("localhost",)
        return reply

    reply = asyncio.run(scene())
    number, flags, questions, answers, _, _ = struct.unpack_from("!HHHHHH", reply)
    assert (number, flags, questions, answers) == (77, 0x8180, 1, 1)
    assert reply.endswith(socket.inet_aton("127.0.0.1"))


def test_other_names_do_not_exist():
    for name in ("secret.attacker.example", "example.org.evil.example"):
        reply = answer("example.org", query(name))
        assert struct.unpack_from("!HHHHHH", reply)[1:4] == (0x8183, 1, 0)
