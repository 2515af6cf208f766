"""The demonstration's verdict on a borrow, computed from the windows of both functions."""

import pytest
from rich.console import Console

from aliquot.testing.server import LiveServer
from aliquot_bench.demo.loop import main
from aliquot_bench.demo.slices import BorrowResult, borrow_table, draw_borrow

BORROW = BorrowResult(
    {
        "borrower": {window: 10 if 20 <= window < 40 else 100 for window in range(60)},
        "owner": dict.fromkeys(range(20, 40), 90),
    },
    enforced=True,
)


def test_paces_are_of_the_windows_in_which_the_owner_is_idle_at_work_and_idle_again():
    phases = BORROW.phases()
    assert list(phases.values()) == [range(2, 18), range(22, 37), range(42, 57)]
    paces = [[BORROW.pace(name, windows) for name in ("borrower", "owner")] for windows in phases.values()]
    assert paces == [[pytest.approx(100), 0], [pytest.approx(10), pytest.approx(90)], [pytest.approx(100), 0]]


def borrowing(at_work, again, *, enforced=True):
    paces = {window: at_work if 20 <= window < 40 else 100 if window < 20 else again for window in range(60)}
    return BorrowResult({"borrower": paces, "owner": dict.fromkeys(range(20, 40), 90)}, enforced=enforced)


@pytest.mark.parametrize(
    ("at_work", "again", "ok"), [(10, 100, True), (14, 90, True), (100, 100, False), (2, 100, False), (10, 10, False)]
)
def test_it_is_a_success_when_what_is_idle_is_lent_and_given_back(at_work, again, ok):
    assert borrowing(at_work, again).ok is ok
    assert borrowing(at_work, again, enforced=False).ok


def test_it_is_a_table_and_a_picture(tmp_path):
    console = Console(width=120, record=True)
    console.print(borrow_table(BORROW))
    shown = console.export_text()
    assert "borrower, asks for 10%" in shown
    (at_work,) = [line for line in shown.splitlines() if "the owner is at work" in line]
    assert "10 %" in at_work
    assert "90 %" in at_work
    draw_borrow(BORROW, tmp_path / "borrow.png")
    assert (tmp_path / "borrow.png").stat().st_size > 1000


def test_the_loop_counts_in_windows_of_the_machines_clock():
    windows = main({"seconds": 0.35})["windows"]
    assert 4 <= len(windows) <= 5
    assert all(count > 0 for _, count in windows)
    assert main({}) == {"windows": []}


def test_the_status_says_that_slices_are_enforced_unless_the_server_warned_at_its_start(tmp_path):
    with LiveServer(tmp_path / "data", "--devices", "host:1") as server:
        devices = server.operate("GET", "status")["devices"]
        warned = "not enforced" in server.log.read_text()
    assert {device["name"]: device["enforced"] for device in devices} == {"cpu": None, "host-1": not warned}
