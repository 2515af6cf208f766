"""Error messages for tenants contain the reason and not the address of the dataset."""

import pytest

from aliquot.storage.addresses import redact_for_tenants, secrets_in, without_secrets
from aliquot.storage.records import Dataset


@pytest.mark.parametrize(
    ("dataset", "text", "told"),
    [
        (
            Dataset("nas", "http://me:word@files.lab:8080/data/"),
            "http://files.lab:8080/data/: a.bin: no answer of files.lab for /data/a.bin",
            "nas/: a.bin: no answer of nas for nas/a.bin",
        ),
        (
            Dataset("nas", "/srv/data"),
            "/srv/data: x cannot be opened: [Errno 13] Permission denied: '/srv/data/x'",
            "nas: x cannot be opened: [Errno 13] Permission denied: 'nas/x'",
        ),
        (
            Dataset("nas", "s3://bucket/folder", {"endpoint_url": "https://minio.lab:9000"}),
            "s3://bucket/folder: cannot be listed: bucket: cannot connect to https://minio.lab:9000/bucket",
            "nas: cannot be listed: nas: cannot connect to nas/nas",
        ),
        (Dataset("nas", "store:/srv/x"), "store:/srv/x: ssh: host store: /srv/x gone", "nas: ssh: host nas: nas gone"),
        (Dataset("nas", "store::module/x"), "store::module/x: has no file f", "nas: has no file f"),
        (
            Dataset("nas", "zip://a.png::https://lab.org:81/f.zip"),
            "zip://a.png::https://lab.org:81/f.zip: no answer of https://lab.org:81/f.zip: lab.org is down",
            "nas: no answer of nas: nas is down",
        ),
        (
            Dataset("nas", "s3://b", {"client_kwargs": '{"endpoint_url": "https://minio.lab:9000"}'}),
            "s3://b: cannot connect to minio.lab:9000",
            "nas: cannot connect to nas",
        ),
        (Dataset("nas", "sftp://lab/x", {"port": "22"}), "sftp://lab/x: [Errno 22]", "nas: [Errno 22]"),
        (Dataset("nas", "/"), "/: is not there", "/: is not there"),
        (Dataset("nas", "http://lab/a"), "the label is not there", "the label is not there"),
    ],
)
def test_a_datasets_name_stands_for_its_address(dataset, text, told):
    assert redact_for_tenants(text, dataset) == told


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("simplecache::s3://key:hunter2@bucket/x", "simplecache::s3://bucket/x"),
        ("zip://a::https://u:hunter2@h/f.zip?sig=hunter2", "zip://a::https://h/f.zip"),
        ("zip://a?k=hunter2::simplecache::ftp://u:hunter2@h/f", "zip://a::simplecache::ftp://h/f"),
        ("http://u:hunter2@[fe80::1]:80/x", "http://[fe80::1]:80/x"),
        ("host::module/x", "host::module/x"),
    ],
)
def test_no_link_of_a_chain_of_addresses_shows_its_secrets(url, shown):
    assert without_secrets(url) == shown
    assert "hunter2" in secrets_in(url) or "hunter2" not in url
