"""The index proxy: an installation reaches the operator's indexes, and learns nothing of the credentials."""

import contextlib
import re
import socket
import threading

import httpx
import pytest
from msgspec.structs import asdict
from package_index import PackageIndex, source_archive
from sandboxes import isolation, play, result, strongest
from wheels import make_wheel

from aliquot.live.node.base import Status
from aliquot.live.node.environments.index_proxy import IndexServer, PageFiles, Upstream, rewrite_page
from aliquot.live.node.environments.pip_settings import DEFAULT_INDEX, IndexSettings, divide_settings

SECRET = "hunter2"  # noqa: S105
USES = "import tiny\ndef main(args):\n    return {'value': tiny.VALUE}"
TINY = make_wheel("tiny", "1.0", "VALUE = 1")
# Looks for the password wherever a build can look.
SPY = """
import os, pathlib
places = ["/proc/self/environ", "/etc/pip.conf", os.path.expanduser("~/.netrc"), {config!r}]
places += [str(path) for kind in ("environ", "cmdline") for path in pathlib.Path("/proc").glob("[0-9]*/" + kind)]
found = [key for key, value in os.environ.items() if {secret!r} in value]
for place in places:
    try:
        if {secret!r} in pathlib.Path(place).read_text(errors="replace"):
            found.append(place)
    except OSError:
        pass
raise SystemExit(f"FOUND {{found}} ADDRESS {{os.environ.get('PIP_INDEX_URL')}}")
"""


@contextlib.contextmanager
def proxy(**settings):
    """Run the proxy in a thread of this process, and yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = IndexServer("token", Upstream(asdict(IndexSettings(**settings))), listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/token"
    finally:
        server.shutdown()
        server.server_close()


def links(page):
    return re.findall(r'href="([^"#]+)', page.text)


def test_pages_and_files_come_through_the_proxy_with_the_operators_password():
    with PackageIndex(TINY, password=SECRET) as index, proxy(indexes=(index.url,)) as url:
        page = httpx.get(f"{url}/index/0/tiny/")
        assert page.status_code == 200
        assert SECRET not in page.text
        (link,) = links(page)
        assert link.startswith("/token/file/")
        assert link.endswith("/tiny-1.0-py3-none-any.whl")
        file = httpx.get(httpx.URL(url).join(link))
        assert file.content == TINY[1]
        assert httpx.get(f"{url}/index/0/other/").status_code == 404


def test_the_password_goes_to_the_operators_server_alone():
    with PackageIndex(TINY) as files:
        with (
            PackageIndex(TINY, password=SECRET, file_host=files.host) as index,
            proxy(indexes=(index.url,)) as url,
        ):
            (link,) = links(httpx.get(f"{url}/index/0/tiny/"))
            assert httpx.get(httpx.URL(url).join(link)).content == TINY[1]
            assert index.authorizations != {None}
        assert files.requests == [f"/files/{TINY[0]}"]
        assert files.authorizations == {None}


@pytest.mark.parametrize(
    "path",
    ["index/0/..%2F..%2Fadmin/", "index/0//", "index/1/tiny/", "links/0/", "file/0/x.whl", "file/-1/x.whl", "x/0/", ""],
)
def test_only_what_pages_list_can_be_requested(path):
    with PackageIndex(TINY, password=SECRET) as index, proxy(indexes=(index.url,)) as url:
        assert httpx.get(f"{url}/{path}").status_code == 404
        assert httpx.get(f"{url[:-5]}other/index/0/tiny/").status_code == 404
        assert index.requests == []


def test_an_index_that_cannot_be_reached_is_named_as_the_cause():
    with proxy(indexes=("http://127.0.0.1:9/simple",)) as url:
        answer = httpx.get(f"{url}/index/0/tiny/")
        assert answer.status_code == 502
        assert "the package index does not answer" in answer.reason_phrase
    with PackageIndex(TINY, password=SECRET) as index, proxy(indexes=(f"{index.host}/simple",)) as url:
        answer = httpx.get(f"{url}/index/0/tiny/")
        assert (answer.status_code, answer.reason_phrase) == (401, "127.0.0.1 answered 401")


def test_a_page_keeps_its_attributes_and_loses_what_is_no_package():
    files = PageFiles()
    page = rewrite_page(
        '<base href="https://x/base/"><a href="../a-1.0.tar.gz#sha256=1" data-yanked="&quot;" data-core-metadata>a</a>'
        '<a href="file:///etc/a-1.0.whl">b</a><a href="/admin">c</a><a href="https://y/a-1.whl?key=1">d</a>',
        "https://index/simple/a/",
        files,
        "/t",
    )
    assert files.urls == ["https://x/a-1.0.tar.gz", "https://y/a-1.whl?key=1"]
    assert '<a href="/t/file/0/a-1.0.tar.gz#sha256=1" data-yanked="&quot;" data-core-metadata="">' in page
    assert '<a href="/t/file/1/a-1.whl">' in page


def test_the_operators_settings_are_divided(tmp_path):
    local = tmp_path / "simple"
    local.mkdir()
    found = divide_settings({
        "PIP_INDEX_URL": f"https://user:{SECRET}@index/simple",
        "PIP_EXTRA_INDEX_URL": f"https://other/simple file://{local}",
        "PIP_FIND_LINKS": f"{tmp_path} https://user:{SECRET}@links/",
        "PIP_CLIENT_CERT": f"/secret/{SECRET}.pem",
        "PIP_PROXY": f"http://user:{SECRET}@proxy",
        "HTTPS_PROXY": f"http://user:{SECRET}@proxy",
        "HTTP_PROXY": "http://proxy",
        "PIP_CONSTRAINT": f"https://user:{SECRET}@x/constraints.txt",
        "PIP_NEW_OPTION": SECRET,
        "PIP_ONLY_BINARY": ":all:",
        "PIP_TRUSTED_HOST": "index:443",
        "PIP_TIMEOUT": "5",
    })  # fmt: skip
    inside = found.through("http://127.0.0.1:1/token")
    assert SECRET not in str(inside)
    assert inside["PIP_INDEX_URL"] == "http://127.0.0.1:1/token/index/0"
    assert inside["PIP_EXTRA_INDEX_URL"] == f"http://127.0.0.1:1/token/index/1 file://{local}"
    assert inside["PIP_FIND_LINKS"] == f"http://127.0.0.1:1/token/links/0/ {tmp_path}"
    assert inside["PIP_ONLY_BINARY"] == ":all:"
    assert inside["HTTP_PROXY"] == "http://proxy"
    assert inside["NO_PROXY"] == "127.0.0.1"
    assert found.visible == (str(tmp_path),)
    assert found.indexes.indexes == (f"https://user:{SECRET}@index/simple", "https://other/simple")
    assert found.indexes.client_cert == f"/secret/{SECRET}.pem"
    assert found.indexes.trusted == ("index",)
    assert found.indexes.timeout_s == 5


def test_without_settings_there_is_the_public_index_and_without_an_index_no_proxy(tmp_path):
    assert divide_settings({}).indexes.indexes == (DEFAULT_INDEX,)
    offline = divide_settings({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)})
    assert not offline.needs_proxy
    assert offline.env["PIP_NO_INDEX"] == "1"
    local = divide_settings({"PIP_INDEX_URL": f"file://{tmp_path}/simple"})
    assert not local.needs_proxy
    assert local.env["PIP_INDEX_URL"] == f"file://{tmp_path}/simple"


@pytest.fixture
def private_index(tmp_path, monkeypatch):
    """An index with a password, which the operator has in pip's configuration."""
    links = tmp_path / "links"  # a directory that builds may read
    links.mkdir()
    config = links / "pip.conf"
    spy = source_archive("spy", "1.0", SPY.format(secret=SECRET, config=str(config)))
    with PackageIndex(TINY, spy, password=SECRET) as index:
        config.write_text(f"[global]\nindex-url = {index.url}\nfind-links =\n    {links}\n    {index.url}/tiny/\n")
        for path in (tmp_path, links, config):
            path.chmod(0o755)
        for name in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
        monkeypatch.setenv("PIP_RETRIES", "0")
        yield index


@pytest.mark.skipif(not strongest().mount, reason="no mount namespaces here")
def test_a_build_uses_the_operators_index_and_cannot_find_the_password(tmp_path, private_index):
    told = []

    async def scene(rig):
        outcome = await rig.not_started("x", requirements=("spy",))
        assert outcome.status == Status.DEVELOPER_ERROR
        assert "FOUND [] ADDRESS index://index/0" in result(outcome)["error"]
        number = await rig.started(USES, requirements=("tiny",))
        assert result(await rig.run(number))["value"] == 1

    play(tmp_path / "data", scene, isolation=isolation(True), progress=lambda _, line: told.append(line))
    assert private_index.authorizations != {None}
    assert not any(SECRET in line for line in told)


@pytest.mark.skipif(not strongest().network, reason="no network namespaces here")
def test_a_build_reaches_no_server_of_the_machine(tmp_path, private_index):
    port = int(private_index.host.rpartition(":")[2])
    knocking = (
        "import socket\n"
        "try:\n"
        f"    socket.create_connection(('127.0.0.1', {port}), 5)\n"
        "    raise SystemExit('REACHED')\n"
        "except OSError as error:\n"
        "    raise SystemExit(f'REFUSED {type(error).__name__}')\n"
    )
    private_index.add(source_archive("knocking", "1.0", knocking))

    async def scene(rig):
        said = result(await rig.not_started("x", requirements=("knocking",)))["error"]
        assert "REFUSED ConnectionRefusedError" in said

    play(tmp_path / "data", scene, isolation=isolation(True))
