"""Tests of ``migrator.config.web``."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import config
from migrator.config import Web
from migrator.config.web import AUTO
from migrator.errors import ConfigError

TOKEN = "correct horse battery"


def loaded(tmp_path: Path, **values: str) -> Web:
    """Return the section, with *values* from the environment."""
    file = tmp_path / "migrator.toml"
    file.write_text("")
    environ = {f"MIGRATOR_WEB__{key.upper()}": value for key, value in values.items()}
    return config.load(file=file, environ=environ).settings.web


def test_no_port_is_listened_on_unless_told(tmp_path: Path) -> None:
    """A socket is in the usual place; an empty text is nothing."""
    web = loaded(tmp_path)
    assert (web.socket, web.address, web.token) == ("auto", None, None)
    web = loaded(tmp_path, socket="", listen="")
    assert (web.socket, web.address) == (None, None)
    assert loaded(tmp_path, socket="auto").socket == AUTO


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("localhost:0", ("localhost", 0)),
        ("127.8.8.8:80", ("127.8.8.8", 80)),
    ],
)
def test_an_address_of_this_machine_is_enough(
    tmp_path: Path, listen: str, address: tuple[str, int]
) -> None:
    """Without a token, which only control needs."""
    assert loaded(tmp_path, listen=listen).address == address


@pytest.mark.parametrize(
    "listen",
    [
        *("127.0.0.1", "9464", ":9464", "::1:9464", "127.0.0.1:port", "127.0.0.1:70000"),
        *("http://127.0.0.1:80", "a@127.0.0.1:80", "127.0.0.1:80/metrics", "[::1:80"),
    ],
)
def test_what_is_no_address_is_refused(tmp_path: Path, listen: str) -> None:
    """With an example of one."""
    with pytest.raises(ConfigError, match=r"such as 127\.0\.0\.1:9464"):
        loaded(tmp_path, listen=listen)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "migrator.example"])  # noqa: S104 - that is the point
def test_others_reach_it_on_purpose_only(tmp_path: Path, host: str) -> None:
    """It takes a word and a token."""
    listen = f"{host}:9464"
    with pytest.raises(ConfigError, match="unless allow_remote is true"):
        loaded(tmp_path, listen=listen, token=TOKEN)
    with pytest.raises(ConfigError, match="without a token"):
        loaded(tmp_path, listen=listen, allow_remote="true")
    assert loaded(tmp_path, listen=listen, allow_remote="true", token=TOKEN).address is not None


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "größer, und sechzehn", "x" * 16 + "\t"])
def test_a_poor_token_is_refused_and_not_shown(tmp_path: Path, token: str) -> None:
    """Sixteen characters at least."""
    with pytest.raises(ConfigError, match="at least 16 characters") as caught:
        loaded(tmp_path, token=token)
    assert not token or token not in str(caught.value)


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    """And is shown nowhere."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    web = loaded(tmp_path, token_file=str(tmp_path / "token"))
    assert web.token is not None
    assert web.token.get_secret_value() == TOKEN
    found = config.load(file=tmp_path / "migrator.toml", environ={"MIGRATOR_WEB__TOKEN": TOKEN})
    (row,) = [row for row in config.describe(found) if row.key == "web.token"]
    assert row.value == "***"


def test_a_socket_is_the_same_file_for_everybody(tmp_path: Path) -> None:
    """Wherever they are started."""
    with pytest.raises(ConfigError, match="must be an absolute path"):
        loaded(tmp_path, socket="control.sock")
    assert loaded(tmp_path, socket="/run/migrator/control.sock").socket is not None
