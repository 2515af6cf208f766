"""Origins list files and return bytes of one version of a file, or an error with the reason."""

import os
import time
from email.utils import formatdate
from urllib.parse import urlsplit

import pytest
from opened_origins import origin_at, sizes
from web_origin import web_origin

from aliquot.core.errors import InputError
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError
from aliquot.storage.origins import connections, http
from aliquot.storage.origins.connections import ConnectionPool
from aliquot.storage.paths import check_path


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    (root / "train").mkdir(parents=True)
    (root / "train" / "1.png").write_bytes(b"one")
    (root / "train" / "ünï code.png").write_bytes(b"two!")
    (root / "README").write_bytes(b"")
    return root


@pytest.fixture
def web():
    with web_origin({"a.bin": bytes(range(200)) * 10, "train/x y.png": b"xy", "train/deep/z": b"z"}) as (server, url):
        yield server, url


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "", "a\0b", "\udcff", "n" * 256])
def test_a_path_that_climbs_or_is_none_is_refused(path):
    with pytest.raises(PathError, match="a path of a dataset is relative"):
        check_path(path)


@pytest.mark.parametrize("url", ["relative/path", "", "imagenet"])
def test_an_address_that_is_none_is_refused_with_what_it_takes(url):
    with pytest.raises(InputError, match="s3://bucket/folder"):
        origin_at(url)


# --- a directory ----------------------------------------------------------------------------------------------


def test_a_directory_lists_its_files(tree):
    assert sizes(origin_at(tree)) == {"README": 0, "train/1.png": 3, "train/ünï code.png": 4}
    assert sizes(origin_at(f"file://{tree}")) == sizes(origin_at(tree))


def test_a_listed_file_is_the_one_that_is_asked_after(tree):
    origin = origin_at(tree)
    time.sleep(0.03)
    assert {file.path: file for file in origin.files()} == {path: origin.stat(path) for path in sizes(origin)}


def test_links_are_followed_within_the_directory_and_not_out_of_it(tree, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    (tree / "inside").symlink_to("train/1.png")
    (tree / "latest").symlink_to("train")
    (tree / "outside").symlink_to(tmp_path / "secret")
    (tree / "folder").symlink_to(tmp_path / "private")
    (tree / "train" / "up").symlink_to("..")
    (tree / "nowhere").symlink_to("no")
    origin = origin_at(tree)
    assert sizes(origin) == {
        "README": 0,
        "inside": 3,
        "latest/1.png": 3,
        "latest/ünï code.png": 4,
        "train/1.png": 3,
        "train/ünï code.png": 4,
    }
    assert origin.read(origin.stat("inside"), 0, 3) == b"one"
    for path in ("outside", "folder/key"):
        with pytest.raises(PathError, match="leaves the dataset"):
            origin.stat(path)


def test_a_link_that_is_turned_outwards_after_it_was_listed_is_refused(tree, tmp_path):
    (tmp_path / "secret").write_bytes(b"abc")
    origin = origin_at(tree)
    listed = origin.stat("train/1.png")
    (tree / "train" / "1.png").unlink()
    (tree / "train" / "1.png").symlink_to(tmp_path / "secret")
    with pytest.raises(PathError):
        origin.read(listed, 0, 3)


def test_what_is_no_file_is_none(tree):
    os.mkfifo(tree / "pipe")
    origin = origin_at(tree)
    assert "pipe" not in sizes(origin)
    for path in ("pipe", "train", "nothing", "README/x"):
        with pytest.raises(AbsentError):
            origin.stat(path)


def test_a_directory_that_is_not_mounted_is_down_and_has_not_lost_its_files(tree):
    origin = origin_at(tree / "no")
    for ask in (origin.check, lambda: list(origin.files()), lambda: origin.stat("train/1.png")):
        with pytest.raises(OriginError, match="is it mounted"):
            ask()


@pytest.mark.parametrize("change", ["longer", "same size", "same size and time", "replaced"])
def test_bytes_of_another_version_are_never_given(tree, change):
    path = tree / "train" / "1.png"
    origin = origin_at(tree)
    listed = origin.stat("train/1.png")
    before = path.stat()
    if change == "replaced":
        (tree / "new").write_bytes(b"new")
        (tree / "new").rename(path)
    else:
        path.write_bytes(b"longer" if change == "longer" else b"ONE")
    if change == "same size and time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ChangedError):
        origin.read(listed, 0, 3)


def test_holes_are_known_without_reading_them(tree):
    with (tree / "sparse").open("wb") as file:
        file.truncate(1 << 34)
        file.seek(1 << 33)
        file.write(b"x")
    origin = origin_at(tree)
    listed = origin.stat("sparse")
    assert origin.empty(listed, 0, 1 << 20)
    assert origin.empty(listed, (1 << 34) - (1 << 16), 1 << 16)
    assert not origin.empty(listed, (1 << 33) - (1 << 16), 1 << 17)
    assert not origin.empty(listed, 0, 4096)  # reading so little is as fast


# --- a web server ---------------------------------------------------------------------------------------------


def test_a_web_server_is_listed_by_its_pages(web):
    _, url = web
    assert sizes(origin_at(url)) == {"a.bin": 2000, "train/x y.png": 2, "train/deep/z": 1}


def test_a_page_that_links_elsewhere_leads_nowhere(web):
    server, url = web
    server.pages[""] = (
        '<a href="a.bin">a</a><a href="../../etc/passwd">b</a><a href="//other.example/data/x">c</a>'
        '<a href="%2e%2e/x">d</a><a href="train%2f..%2f..%2fx">e</a><a href="/data/a.bin">again</a><a href="gone">f</a>'
    )
    assert sizes(origin_at(url)) == {"a.bin": 2000}
    assert not [path for _, path, _ in server.asked if ".." in path]


def test_a_manifest_names_files_with_their_checksums(web):
    server, url = web
    server.files["manifest.jsonl"] = (
        b'{"path": "a.bin", "size": 2000, "checksum": "sha256:00"}\n\n{"path": "b", "size": 1}\n'
    )
    listed = list(origin_at(url, manifest="manifest.jsonl").files())
    assert [(file.path, file.size, file.checksum) for file in listed] == [("a.bin", 2000, "sha256:00"), ("b", 1, "")]
    server.files["manifest.jsonl"] = b'{"path": "a.bin"}\n'
    with pytest.raises(OriginError, match="manifest, line 1"):
        list(origin_at(url, manifest="manifest.jsonl").files())


def test_ranges_of_a_file_on_a_web_server(web):
    server, url = web
    origin = origin_at(url)
    listed = origin.stat("a.bin")
    assert origin.ranged(listed)
    assert origin.read(listed, 150, 100) == server.files["a.bin"][150:250]
    server.files["a.bin"] = b"?" * 2000
    with pytest.raises(ChangedError):
        origin.read(listed, 150, 100)


def test_a_web_server_without_ranges_gives_whole_files(web, tmp_path):
    server, url = web
    server.ranges = False
    origin = origin_at(url)
    listed = origin.stat("a.bin")
    assert not origin.ranged(listed)
    origin.copy(listed, tmp_path / "copy", lambda _: True)
    assert (tmp_path / "copy").read_bytes() == server.files["a.bin"]


def test_whether_parts_are_sent_is_known_file_by_file(web):
    server, url = web
    server.unranged = {"train/x y.png"}
    origin = origin_at(url)
    ranged, unranged = origin.stat("a.bin"), origin.stat("train/x y.png")
    assert (origin.ranged(ranged), origin.ranged(unranged)) == (True, False)
    assert origin_at(url).ranged(ranged)


def test_a_web_server_that_is_down_is_not_one_without_the_file(web):
    server, url = web
    origin = origin_at(url)
    with pytest.raises(AbsentError):
        origin.stat("nothing")
    server.status = 503
    with pytest.raises(OriginError, match="answers 503"):
        origin.stat("a.bin")
    with pytest.raises(OriginError):
        origin_at("http://127.0.0.1:1/data").stat("a.bin")


def test_an_answer_that_is_cut_off_is_an_error(web, tmp_path):
    server, url = web
    origin = origin_at(url)
    listed = origin.stat("a.bin")
    server.cut_after, server.cuts_left = 10, -1
    with pytest.raises(OriginError):
        origin.read(listed, 0, 100)
    with pytest.raises(OriginError):
        origin.copy(listed, tmp_path / "copy", lambda _: True)


def test_a_server_that_sends_more_than_it_said_is_not_listened_to(web):
    server, url = web
    origin = origin_at(url)
    listed = origin.stat("a.bin")
    server.too_much = b"HTTP/1.1 200 OK\r\n\r\nhostile"
    assert origin.read(listed, 0, 100) == server.files["a.bin"][:100]


def test_credentials_are_in_no_error():
    origin = origin_at("http://user:hunter2@127.0.0.1:1/data?token=verysecret", password="alsosecret", username="u")  # noqa: S106
    with pytest.raises(OriginError) as raised:
        origin.stat("a")
    cause = RuntimeError("hunter2 verysecret alsosecret")
    told = f"{raised.value} {origin.shown_url} {origin.failed('x', cause)}"
    deep = origin_at("memory://b", client_kwargs='{"auth": {"key": "nestedsecret"}, "region_name": "here"}')
    told += str(deep.failed("x", RuntimeError("nestedsecret here")))
    assert not [secret for secret in ("hunter2", "verysecret", "alsosecret", "nestedsecret") if secret in told]
    assert "here" in told


def test_another_user_or_query_is_another_place_and_another_password_is_not():
    places = [
        origin_at(url, **options).identity
        for url, options in (
            ("http://h/data", {}),
            ("http://me@h/data", {}),
            ("http://h/data?branch=2", {}),
            ("http://h/data", {"username": "me"}),
        )
    ]
    assert len(set(places)) == 4
    assert origin_at("http://me:one@h/data").identity == origin_at("http://me:two@h/data").identity
    one, two = (origin_at("http://h/data", username="me", password=each) for each in "12")
    assert one.identity == two.identity == places[3]


@pytest.mark.parametrize(
    ("place", "may_know"),
    [
        ("https://h/other", True),
        ("http://h/x", False),
        ("https://h:444/x", False),
        ("https://elsewhere/x", False),
    ],
)
def test_credentials_go_to_no_other_place_and_never_in_the_clear(place, may_know):
    assert connections._may_receive_credentials(urlsplit("https://h/x"), urlsplit(place)) is may_know


def test_a_redirect_to_the_link_or_the_machine_is_refused_unless_the_origin_is_there(web):
    server, url = web
    origin = origin_at(url)
    server.redirects["a.bin"] = "http://169.254.169.254/latest/credentials"
    with pytest.raises(OriginError, match="a redirect to this machine or its link"):
        origin.stat("a.bin")
    server.redirects["a.bin"] = f"{url.replace('127.0.0.1', 'localhost')}/train/deep/z"
    assert origin.stat("a.bin").size == 1
    origin._connections._scope = ""  # pretend that the origin is on another machine
    origin._connections._kept.clear()
    origin._connections._check_address = lambda connection, *, is_redirected: (
        ConnectionPool._check_address(origin._connections, connection, is_redirected=is_redirected)
        if is_redirected
        else None
    )
    with pytest.raises(OriginError, match="a redirect to this machine or its link"):
        origin.stat("a.bin")


def test_a_file_without_a_version_on_a_web_server_is_of_another_at_each_question(web, tmp_path):
    server, url = web
    server.is_tagged = False
    origin = origin_at(url)
    first, second = origin.stat("a.bin"), origin.stat("a.bin")
    assert first.version != second.version
    assert not origin.ranged(first)  # parts might belong to two versions
    origin.copy(first, tmp_path / "copy", lambda _: True)
    assert (tmp_path / "copy").read_bytes() == server.files["a.bin"]
    origin.confirm(first)
    assert {file.version for file in origin.files()} == {""}
    server.files["a.bin"] = b"shorter"
    with pytest.raises(ChangedError):
        origin.confirm(first)


def test_a_file_written_within_this_second_is_waited_for(web):
    server, url = web
    server.is_tagged = False
    for _ in range(20):  # on a busy machine the second may be over before the first answer
        server.modified = formatdate(time.time(), usegmt=True)
        server.asked.clear()
        listed = origin_at(url).stat("a.bin")
        assert time.time() - listed.mtime_s >= 1.1
        if len(server.asked) > 1:
            break
    assert len(server.asked) == 2


def test_pages_that_lead_on_without_an_end_are_given_up(web, monkeypatch):
    server, url = web
    monkeypatch.setattr(http, "MAX_PAGES", 50)
    server.page = lambda directory: f'<a href="{directory.count("/")}/">on</a>'.encode()
    with pytest.raises(OriginError, match="lead on without an end"):
        list(origin_at(url).files())
    assert len(server.asked) <= 50


def test_a_line_of_a_manifest_that_does_not_end_is_given_up(web):
    server, url = web
    server.files["manifest.jsonl"] = b'{"path": "' + b"x" * 200_000
    with pytest.raises(OriginError, match="line 1: it is longer"):
        list(origin_at(url, manifest="manifest.jsonl").files())
