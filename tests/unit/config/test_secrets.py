"""Tests of ``migrator.config.secrets``."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.config import load
from migrator.config.secrets import (
    UntrustedError,
    mask,
    open_trusted,
    passwords_in,
    read_secret,
    remember,
    show_address,
)
from migrator.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://guest:swordfish@localhost:5672/%2F", "amqp://guest:***@localhost:5672/%2F"),
        ("postgresql+psycopg://nsb:p@ss/w:rd@db/sales", "postgresql+psycopg://nsb:***@db/sales"),
        (
            "host=db;username=nsb;password=swordfish;port=1",
            "host=db;username=nsb;password=***;port=1",
        ),
        ("Password = 'sword;fish' host=db", "Password = *** host=db"),
        ("certPassphrase=swordfish", "certPassphrase=***"),
        (
            "postgresql://db/x?user=a&password=swordfish&b=c",
            "postgresql://db/x?user=a&password=***&b=c",
        ),
        (
            "cannot reach amqp://a:b@c, then x://d:e@f",
            "cannot reach amqp://a:***@c, then x://d:***@f",
        ),
        ("http://:swordfish@host", "http://:***@host"),
        ("amqp://a:b@c,amqp://d:e@f", "amqp://a:***@c,amqp://d:***@f"),
        ("amqp://a:sword,x://fish@host", "amqp://a:***@host"),
        ("AccountName=a;AccountKey=c2Vj/+x==;Suffix=b", "AccountName=a;AccountKey=***;Suffix=b"),
        ("a;SharedAccessSignature=sv=1&sig=c2Vj;b", "a;SharedAccessSignature=***&sig=***;b"),
        ("host=db;password=sword fish;port=1", "host=db;password=***;port=1"),
        ("Password=sword fish;Server=db", "Password=***;Server=db"),
        ("Server=db;Password=sword fish", "Server=db;Password=***"),
        ("Server=db;Password=swo;rd fi;sh;User Id=a", "Server=db;Password=***;User Id=a"),
        ("password=swo;rd", "password=***"),
        ("host=db password=swordfish port=1", "host=db password=*** port=1"),
        ("password='sword''fish' b=c", "password=*** b=c"),
        (r"password='sword\' fish' b=c", "password=*** b=c"),
        ('password="sword""fish";b=c', "password=***;b=c"),
        ("PWD={sword}}fish};b=c", "PWD=***;b=c"),
        ("password=swordfish was refused; try again", "password=*** was refused; try again"),
        ("amqp://localhost", "amqp://localhost"),
        ("time 10:00 user@example.org", "time 10:00 user@example.org"),
        ("sqlite:////var/lib/legacy.db", "sqlite:////var/lib/legacy.db"),
        ("", ""),
    ],
)
def test_passwords_are_masked(text: str, expected: str) -> None:
    """In URLs and in key=value pairs, wherever in a text; the rest stays readable."""
    assert mask(text) == expected


@given(
    password=st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=6),
    prefix=st.sampled_from(["cannot reach ", ""]),
)
def test_no_password_of_a_url_survives(password: str, prefix: str) -> None:
    """Not even one that should have been percent-encoded."""
    assert password not in mask(f"{prefix}amqp://q:{password}@ho/vh").replace(
        "amqp://q:***@ho/vh", ""
    )


@pytest.mark.parametrize(
    ("address", "shown", "password"),
    [
        ("amqp://a:sword fish@b", "amqp://a:***@b", "sword fish"),
        ("amqp://a:sword; fish@b,amqp://c@d", "amqp://a:***@b,amqp://c@d", "sword; fish"),
        ("x://db/y?password=sword fish&b=c", "x://db/y?password=***&b=c", "sword fish"),
        ("x://db/y?password=sword;fish&b=c", "x://db/y?password=***&b=c", "sword;fish"),
        ("host=db;password=sword fish", "host=db;password=***", "sword fish"),
        ("password=sword fish;host=db", "password=***;host=db", "sword fish"),
        ("host=db;password=sword; fish;port=1", "host=db;password=***;port=1", "sword; fish"),
        ("password=sword fish", "password=***", "sword fish"),
    ],
)
def test_a_password_ends_neither_at_a_space_nor_at_a_semicolon(
    address: str, shown: str, password: str
) -> None:
    """In an address of the settings all is known: what is between two keys is the value."""
    assert show_address(address) == shown
    assert password in passwords_in(address)
    remember(*passwords_in(address))
    assert "fish" not in mask(f"cannot reach {address} with {password}, says the server")


@pytest.mark.parametrize("content", [b"", b" \n", b"one\ntwo", b"\xff\xfe", b"x" * 100_000, None])
def test_other_content_is_refused_without_quoting_it(tmp_path: Path, content: bytes | None) -> None:
    """The wrong file may hold another secret; a missing one says so."""
    file = tmp_path / "url"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"url (must|cannot be read)") as caught:
        read_secret(file)
    assert "two" not in str(caught.value)


@pytest.mark.parametrize(
    "word",
    ["x", "a://b:", "password", "token='", "pwd= ", "://", "@", ";pwd=a ", "pwd=a;b", ";pwd='a\\"],
)
def test_long_texts_are_masked_in_no_time(word: str) -> None:
    """A log line may hold what a stranger wrote; nothing is gone over again and again."""
    began_s = time.thread_time()  # other processes may have the machine meanwhile
    mask(word * (100_000 // len(word)))
    assert time.thread_time() - began_s < 3


@pytest.mark.parametrize("word", ["amqp://", "amqp://a:", "a://:", "x://y:@ x://z:"])
def test_addresses_one_after_another_are_masked_in_proportion(word: str) -> None:
    """A text of four times the length takes about four times as long."""

    def cost_s(size: int) -> float:
        text = (word * size)[:size]
        costs_s = []
        for _ in range(9):
            began_s = time.thread_time()
            for _ in range(10):
                mask(text)
            costs_s.append(time.thread_time() - began_s)
        return min(costs_s)  # what other processes had of the machine is in the rest

    assert cost_s(1200) < 7 * cost_s(300)


def test_a_secret_that_everybody_can_read_is_refused() -> None:
    """Unless a folder above it keeps them away; the group is the operator's business."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        path = folder / "store-url"
        path.write_text("swordfish\n")
        path.chmod(0o644)
        folder.chmod(0o755)
        with pytest.raises(ValueError, match=f"every user of this machine can read {path}") as told:
            read_secret(path)
        assert "swordfish" not in str(told.value)
        path.chmod(0o640)
        assert read_secret(path) == "swordfish"
        path.chmod(0o644)
        folder.chmod(0o700)
        assert read_secret(path) == "swordfish"


@pytest.mark.parametrize("section", ["BROKER__TLS", "STORE__RAVENDB"])
def test_a_private_key_that_everybody_can_read_is_refused(section: str) -> None:
    """As any other secret; what cannot be looked at, whoever connects with it tells."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        path = folder / "client.key"
        path.write_text("swordfish\n")
        folder.chmod(0o755)
        environ = {
            f"MIGRATOR_{section}__CERT_FILE": "client.pem",
            f"MIGRATOR_{section}__KEY_FILE": str(path),
        }
        path.chmod(0o644)
        key = section.lower().replace("__", ".") + ".key_file"
        why = f"every user of this machine can read {path}: chmod o= {path}"
        with pytest.raises(ConfigError, match=f"{key} .*: {why}") as told:
            load(environ=environ)
        assert "swordfish" not in str(told.value)
        path.chmod(0o640)
        load(environ=environ)
        path.unlink()
        load(environ=environ)


OTHER: Final = 12345
by_root: Final = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def why_not(path: Path) -> str | None:
    """Return why *path* is not trusted."""
    try:
        os.close(open_trusted(path))
    except UntrustedError as exc:
        return str(exc)
    return None


@by_root
def test_only_root_and_we_ourselves_are_trusted(tmp_path: Path) -> None:
    """With a file's owner, and with who may write it."""
    path = tmp_path / "migrator.toml"
    path.write_text("")
    path.chmod(0o664)
    assert why_not(path) is None
    path.chmod(0o646)
    assert why_not(path) == "other users may write it"
    path.chmod(0o664)
    os.chown(path, 0, OTHER)
    assert why_not(path) == "other users may write it"
    path.chmod(0o644)
    assert why_not(path) is None
    os.chown(path, OTHER, 0)
    assert why_not(path) == "it belongs to another user"


@by_root
def test_every_folder_and_link_on_the_way_counts(tmp_path: Path) -> None:
    """Whoever may write to one of them chooses the file; a sticky one keeps what is ours."""
    above = tmp_path / "above"
    folder = above / "folder"
    folder.mkdir(parents=True)
    path = folder / "file"
    path.write_text("")
    link = tmp_path / "link"
    link.symlink_to("above/folder/../folder/file")
    for mode, gid, is_fine in (
        (0o755, OTHER, True),
        (0o775, 0, True),
        (0o775, OTHER, False),
        (0o757, 0, False),
        (0o1777, OTHER, True),
    ):
        above.chmod(mode)
        os.chown(above, 0, gid)
        why = None if is_fine else f"other users may write to the folder {above}"
        assert [why_not(each) for each in (path, link)] == [why] * 2
    above.chmod(0o1777)
    os.chown(folder, OTHER, 0)
    assert why_not(path) == f"{folder} belongs to another user"
    above.chmod(0o755)
    assert why_not(path) == f"the folder {folder} belongs to another user"
    os.chown(folder, 0, 0)
    other = tmp_path / "other"
    other.mkdir()
    (other / "link").symlink_to(path)
    other.chmod(0o1777)
    assert why_not(other / "link") is None
    os.lchown(other / "link", OTHER, OTHER)
    assert why_not(other / "link") == f"{other / 'link'} belongs to another user"
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        open_trusted(tmp_path / "circle")


def test_what_is_a_password_of_ours_is_masked_wherever_it_is_said() -> None:
    """Also where it looks like nothing; not as a part of words, and no user, host or database."""
    load(
        environ={
            "MIGRATOR_STORE__URL": "postgresql+psycopg://sales:Trout%2FSalmon@db/sales",
            "MIGRATOR_BROKER__URL": "amqp://billing1:billing1@broker-9",
            "MIGRATOR_WEB__TOKEN": "sixteen-letters!",
        }
    )
    assert mask("FATAL: Trout/Salmon is wrong") == "FATAL: *** is wrong"
    assert mask("retry with Trout%2FSalmon, sixteen-letters!") == "retry with ***, ***"
    assert mask("Trout/Salmons of billing1 at broker-9") == "Trout/Salmons of billing1 at broker-9"
    assert {*passwords_in("host=h;username=u;password='swordfish'")} == {"swordfish"}
    odbc = "mssql+pyodbc:///?odbc_connect=Server%3Ddb%3BPWD%3D%7Bsword%3Bfish%7D"
    assert "sword;fish" in passwords_in(odbc)
