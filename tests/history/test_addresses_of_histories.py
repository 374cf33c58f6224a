"""What is an address of a store, what a path, and what a person reads of either."""

import pickle
from pathlib import Path

import pytest

from ray_snapshot.addresses import StorePath, absolute, given, is_address, parse, shown_address
from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError, MissingExtraError
from ray_snapshot.history import History, HistoryWriter, stores, tables


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        ("s3a://bucket", "s3://bucket"),
        ("gs://bucket/a b/c", "gs://bucket/a b/c"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
        ("abfss://container@account.dfs.core.windows.net/a", "abfss://container@account.dfs.core.windows.net/a"),
        (Path("s3://bucket/a"), "s3://bucket/a"),
    ],
)
def test_an_address_is_one_place_however_it_is_written(text: str | Path, found: str) -> None:
    assert is_address(text)
    assert str(parse(text, ValueError)) == found  # type: ignore[type-var]
    assert absolute(text, ValueError) == found  # type: ignore[type-var]


@pytest.mark.parametrize("text", ["history", "./s3", "/tmp/a:b", "s3:/", "~/x", "file:///tmp/x", "C:\\x"])
def test_all_else_is_a_path(text: str) -> None:
    assert not is_address(text)
    assert isinstance(given(text, HistoryNotFoundError), Path)


def test_a_path_may_be_written_as_an_address() -> None:
    assert given("file:///tmp/a%20b", HistoryNotFoundError) == Path("/tmp/a b")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hdfs://x/y", "history hdfs://x/y: hdfs:// is the address of no store that is known here: give a folder, or"),
        ("http://x/y?token=s3cr3t", "history http://x/y: http:// is the address of no store"),
        ("s3://me:s3cr3t@bucket/y", "history s3://...@bucket/y: an address holds no user and no password"),
        ("az://s3cr3t@bucket/y", "history az://...@bucket/y: an address holds no user and no password"),
        ("s3://", "it names no place in a store"),
        ("s3://bucket/../x", "it names no place in a store"),
        ("s3://bucket/a?versionId=s3cr3t", "history s3://bucket/a: it names no place in a store"),
        ("s3://bucket/a\nb", "it names no place in a store"),
    ],
)
def test_an_address_that_cannot_be_is_refused_in_a_line_without_its_secrets(text: str, said: str) -> None:
    for use in (History, HistoryWriter):
        with pytest.raises((HistoryNotFoundError, OSError)) as caught:
            use(text)
        assert said in str(caught.value)
        assert "s3cr3t" not in str(caught.value) + repr(vars(caught.value))


def test_what_people_read_of_an_address_holds_no_user() -> None:
    assert shown_address("s3://me:pw@bucket/x?sig=1#2") == "s3://...@bucket/x"
    assert shown_address("a folder") == "a folder"


def test_a_place_is_used_like_a_path() -> None:
    place = StorePath("s3://bucket", "a")
    inner = place / "machines/system=x" / "part.parquet"
    assert (str(inner), inner.name, inner.suffix) == (
        "s3://bucket/a/machines/system=x/part.parquet",
        "part.parquet",
        ".parquet",
    )
    assert (inner.parent.name, inner.with_name("b").name, place.parent.parent) == (
        "system=x",
        "b",
        StorePath("s3://bucket"),
    )
    assert str(inner.relative_to(place)) == "machines/system=x/part.parquet"
    assert inner.relative_to(place).parts[0] == "machines"
    for other in (StorePath("s3://bucket", "b"), StorePath("s3://other", "a")):
        with pytest.raises(ValueError, match="not"):
            inner.relative_to(other)
    assert pickle.loads(pickle.dumps(inner)) == inner
    assert sorted([inner, place]) == [place, inner]
    with pytest.raises(TypeError):
        Path(place)  # type: ignore[arg-type]


def test_without_the_extra_a_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "find_spec", lambda name: None)
    stores._client.cache_clear()
    with pytest.raises(MissingExtraError, match=r"s3://bucket needs obstore: pip install 'ray-snapshot\[stores\]'"):
        History("s3://bucket/a")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("<Code>NoSuchBucket</Code>", "there is no bucket s3://b: make it first"),
        ("Error performing PUT http://169.254.169.254/latest/api/token", "there are no credentials for s3://b: set AWS_"),
        ("403 Forbidden: <Code>InvalidAccessKeyId</Code><AWSAccessKeyId>AKIA1</AWSAccessKeyId>", "the store refuses what"),
        ("Error performing GET http://h:1/b?X=s3cr3t - HTTP error: error sending request", "cannot be reached at h:1: look"),
        ("HTTP error: error sending request for url (http://carol:s3cr3t@h:1/b)", "cannot be reached at h:1: look"),
        ("\x1b[31modd\x1b[0m thing at https://carol:s3cr3t@h/b", "odd thing at https://h/b"),
        ("<Code>SlowDown</Code><Message>Please reduce your request rate.</Message>", "the store says: Please reduce your"),
        ("Generic S3 error: odd http://h/b?sig=s3cr3t thing s3cr3t-of-env\nDebug source: s3cr3t", "odd http://h/b thing ..."),
    ],
)  # fmt: skip
def test_a_fault_is_told_in_words_and_without_secrets(monkeypatch: pytest.MonkeyPatch, text: str, meant: str) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-of-env")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA1")
    found = stores.meaning(StorePath("s3://b", "k"), text)
    assert meant in found
    assert "s3cr3t" not in found
    assert "AKIA1" not in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("fault", "is_damage"),
    [
        (OSError("error sending request for url (http://carol:s3cr3t@h:1/b)"), False),
        (stores.StoreFault("the store cannot be reached"), False),
        (ValueError("Invalid JSON in log"), True),
    ],
)
def test_what_the_network_does_is_not_told_as_damage(fault: Exception, is_damage: bool) -> None:
    with (
        pytest.raises(HistoryFormatError) as told,
        tables.faults(StorePath("s3://b", "k"), "snapshots", "opened", HistoryFormatError),
    ):
        raise fault
    assert ("put back the folder from a copy" in str(told.value)) == is_damage
    assert "s3cr3t" not in str(told.value)
