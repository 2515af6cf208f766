"""Opens and waits are counted for the right run, whatever the order of the messages."""

from aliquot.storage.agent.accounts import RunAccounts
from aliquot.storage.messages import BeginRun
from aliquot.storage.records import FileKey, Found
from aliquot.storage.view.events import FileOpened, PieceWaited

A, B, C = (FileKey("d", name) for name in "abc")
SESSION = ("ann", "s1")


def books():
    seen = []
    accounts = RunAccounts(lambda run, opened: seen.append((run.message.invocation, opened.key)))
    return accounts, seen


def begin(accounts, sandbox=1, invocation="i1", session="s1", function="f"):
    accounts.begin(BeginRun(sandbox, "ann", function, invocation, session))


def opened(key, found=Found.FETCHED, sandbox=1, waited_s=0.5, size=100):
    return FileOpened(sandbox, key, size, waited_s, found)


def test_opens_are_counted_by_what_they_found():
    accounts, seen = books()
    begin(accounts)
    accounts.opened(opened(A))
    accounts.opened(opened(B, Found.PREFETCHED, waited_s=0))
    accounts.opened(opened(B, Found.CACHED, waited_s=0))
    settled = accounts.end(1, "i1", ())
    assert settled.opened == {Found.FETCHED: 1, Found.PREFETCHED: 1, Found.CACHED: 1}
    assert (settled.data_s, settled.prefetched_bytes, settled.wasted_bytes) == (0.5, 100, 0)
    assert seen == [("i1", A), ("i1", B), ("i1", B)]


def test_what_was_opened_before_a_run_belongs_to_the_first_one():
    accounts, seen = books()
    accounts.opened(opened(A))
    begin(accounts)
    assert seen == [("i1", A)]
    assert accounts.end(1, "i1", ()).opened == {Found.FETCHED: 1}
    begin(accounts, invocation="i2")
    assert accounts.end(1, "i2", ()).opened == {}


def test_what_runs_inside_another_run_has_its_own_account():
    accounts, seen = books()
    begin(accounts, invocation="outer")
    begin(accounts, invocation="inner")
    accounts.opened(opened(A))
    assert accounts.end(1, "inner", ()).opened == {Found.FETCHED: 1}
    accounts.opened(opened(B))
    assert accounts.end(1, "outer", ()).opened == {Found.FETCHED: 1}
    assert seen == [("inner", A), ("outer", B)]


def test_sandboxes_do_not_mix_their_runs():
    accounts, _ = books()
    begin(accounts, 1, "i1")
    begin(accounts, 2, "i2", session="s2")
    accounts.opened(opened(A, sandbox=2))
    assert accounts.end(1, "i1", ()).opened == {}
    assert accounts.end(2, "i2", ()).opened == {Found.FETCHED: 1}


def test_a_run_whose_sandbox_is_gone_is_settled_all_the_same():
    accounts, _ = books()
    begin(accounts)
    accounts.opened(opened(A))
    accounts.close(1)
    assert accounts.end(1, "i1", ()).opened == {Found.FETCHED: 1}


def test_a_run_that_nobody_began_is_settled_with_a_word():
    accounts, _ = books()
    assert accounts.end(1, "i1", ()).error == "the storage agent knows nothing of it"


def test_an_open_that_failed_says_why_and_is_no_access():
    accounts, seen = books()
    begin(accounts)
    accounts.opened(FileOpened(1, A, 0, 0.25, None, "the origin does not answer"))
    accounts.opened(FileOpened(1, B, 0, 0.25, None, "the second is not told"))
    settled = accounts.end(1, "i1", ())
    assert (settled.error, settled.data_s, seen) == ("d/a: the origin does not answer", 0.5, [])


def test_what_was_brought_and_is_expected_no_more_is_wasted_once():
    accounts, _ = books()
    begin(accounts)
    for key in (A, B, C):
        accounts.prefetched(SESSION, key, 100, 2.0)
    accounts.opened(opened(A, Found.PREFETCHED, waited_s=0.5))
    assert accounts.end(1, "i1", [C]).wasted_bytes == 100  # only b: c may still be opened
    begin(accounts, invocation="i2")
    accounts.opened(opened(C, Found.PREFETCHED, waited_s=0))
    assert accounts.end(1, "i2", ()).wasted_bytes == 0
    assert accounts.figures()["wasted_bytes"] == 100
    assert accounts.figures()["hidden_s"] == 3.5


def test_where_there_is_no_session_a_call_that_still_runs_may_open_it():
    accounts, _ = books()
    audience = ("ann", "function/f")
    begin(accounts, 1, "i1", session="")
    begin(accounts, 2, "i2", session="")
    accounts.prefetched(audience, A, 100, 1.0)
    assert accounts.end(1, "i1", [A]).wasted_bytes == 0
    assert accounts.end(2, "i2", [A]).wasted_bytes == 100


def test_what_had_come_of_a_cancelled_prefetch_is_wasted():
    accounts, _ = books()
    begin(accounts)
    accounts.prefetch_cancelled(SESSION, 70)
    assert accounts.end(1, "i1", ()).wasted_bytes == accounts.figures()["wasted_bytes"] == 70
    begin(accounts, invocation="i2")
    assert accounts.end(1, "i2", ()).wasted_bytes == 0


def test_the_record_says_why_a_file_was_there():
    accounts, _ = books()
    begin(accounts)
    accounts.prefetch_started(A, "markov1 expects it with 0.93")
    accounts.prefetch_started(B, "it was not opened")
    accounts.opened(opened(A, Found.PREFETCHED))
    assert accounts.end(1, "i1", ()).reasons == ("d/a: markov1 expects it with 0.93",)


def test_what_a_session_leaves_unopened_is_wasted():
    accounts, _ = books()
    accounts.prefetched(SESSION, A, 100, 1.0)
    accounts.end_session(SESSION)
    assert accounts.figures()["wasted_bytes"] == 100


def test_of_a_prefetch_that_was_overtaken_the_part_before_is_hidden():
    accounts, _ = books()
    begin(accounts)
    accounts.opened(opened(A, Found.PREFETCHED, waited_s=0.5))
    accounts.prefetch_overtaken(A, 2.0)
    accounts.prefetch_overtaken(B, 2.0)
    assert accounts.figures()["hidden_s"] == 1.5


def test_what_comes_after_a_sessions_end_is_wasted_and_nothing_of_it_is_kept():
    accounts, _ = books()
    accounts.end_session(SESSION)
    accounts.prefetched(SESSION, A, 100, 1)
    accounts.prefetch_cancelled(SESSION, 50)
    assert accounts.figures()["wasted_bytes"] == 150
    assert not accounts._unopened.give_up(SESSION)
    assert not accounts._cancelled
    begin(accounts)  # its name is used again
    accounts.prefetched(SESSION, A, 100, 1)
    assert accounts.end(1, "i1", ()).wasted_bytes == 100


def test_what_was_brought_and_had_to_go_again_before_it_was_opened_is_wasted():
    accounts, _ = books()
    accounts.prefetched(SESSION, A, 100, 2.0)
    begin(accounts, sandbox=2, invocation="other", session="s2")
    accounts.opened(opened(A, Found.FETCHED, sandbox=2, waited_s=2.0))
    assert accounts.end(2, "other", ()).wasted_bytes == 0  # it was prefetched for another session
    begin(accounts)
    settled = accounts.end(1, "i1", ())
    assert (settled.prefetched_bytes, settled.wasted_bytes) == (0, 100)
    assert (accounts.figures()["wasted_bytes"], accounts.figures()["hidden_s"]) == (100, 0)


def test_waits_for_parts_of_a_file_count_as_those_for_files_do():
    accounts, _ = books()
    accounts.waited(PieceWaited(1, A, 0.25))  # while its code was imported
    begin(accounts)
    accounts.opened(opened(A, Found.PREFETCHED, waited_s=0.5))
    accounts.waited(PieceWaited(1, A, 1.25))
    accounts.waited(PieceWaited(2, A, 8.0))  # a sandbox that has no run
    accounts.prefetch_overtaken(A, 20.0)
    assert accounts.end(1, "i1", ()).data_s == 2.0
    assert accounts.figures()["waited_s"] == 10.0
    assert accounts.figures()["hidden_s"] == 10.25
