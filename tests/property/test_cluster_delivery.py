"""Messages between head and agent arrive once and in order, whenever connections break; and when silence is loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.cluster.delivery import Delivery, DeliveryError
from aliquot.cluster.liveness import Judgement, LivenessLimits, NodeLiveness

STEPS = st.lists(st.sampled_from(["send", "arrive", "acknowledge", "break"]), max_size=60)


@given(STEPS)
def test_messages_arrive_once_and_in_order_whenever_the_connection_breaks(steps):
    ours, theirs = Delivery(1000), Delivery(1000)
    sent, arrived, on_the_way = [], [], []

    def arrive():
        if on_the_way:
            arrived.append(on_the_way.pop(0))
            theirs.count_received()

    for step in steps:
        if step == "send":
            sent.append(b"%d" % len(sent))
            ours.keep(sent[-1], now_s=0.0)
            on_the_way.append(sent[-1])
        elif step == "arrive":
            arrive()
        elif step == "acknowledge":
            ours.acknowledge(theirs.received)
        else:  # what is on the way is lost, and both connect again
            on_the_way = list(ours.resend(theirs.received))
    while on_the_way:
        arrive()
    assert arrived == sent
    ours.acknowledge(theirs.received)
    assert ours.kept_bytes == 0


def test_what_was_never_sent_cannot_be_acknowledged():
    delivery = Delivery(1000)
    delivery.keep(b"1", now_s=0.0)
    with pytest.raises(DeliveryError, match="acknowledges message 2"):
        delivery.acknowledge(2)
    delivery.acknowledge(1)
    with pytest.raises(DeliveryError):
        delivery.resend(0)


def test_too_much_and_too_old_is_known():
    delivery = Delivery(10)
    assert delivery.oldest_s(now_s=5.0) == 0
    delivery.keep(b"x" * 11, now_s=1.0)
    assert delivery.is_over
    assert delivery.oldest_s(now_s=5.0) == 4.0
    delivery.acknowledge(1)
    assert not delivery.is_over


def test_silence_is_suspicion_and_then_loss():
    node = NodeLiveness(LivenessLimits(0.5, 2, 10), now_s=0.0)
    found = [node.judge(tick / 2) for tick in range(1, 21)]
    assert found[:3] == [None] * 3
    assert found[3] is Judgement.SUSPECTED
    assert found[4:19] == [None] * 15
    assert found[19] is Judgement.LOST


def test_a_node_that_speaks_again_is_back():
    node = NodeLiveness(LivenessLimits(0.5, 2, 10), now_s=0.0)
    assert node.disconnected() is Judgement.SUSPECTED
    assert node.disconnected() is None
    assert node.heard(3.0) is Judgement.BACK
    assert node.heard(3.1) is None
    assert [node.judge(3.5), node.judge(4.0)] == [None, None]


def test_a_judge_that_was_late_does_not_judge():
    node = NodeLiveness(LivenessLimits(0.5, 2, 10), now_s=0.0)
    assert node.judge(0.5) is None
    assert node.judge(30.0) is None, "the head itself stood still"
    assert node.heard(30.1) is None
    assert node.judge(30.5) is None
