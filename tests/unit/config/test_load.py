"""Tests of ``migrator.config.load`` and ``describe``."""

from __future__ import annotations

import json
import re
from datetime import UTC, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pydantic import SecretStr

from migrator.config import Hooks, Loaded, Settings, describe, load, show_text
from migrator.config.sources import Option, peek
from migrator.errors import ConfigError
from migrator.service.hooks import HookEvent


@pytest.mark.parametrize("content", [b"[store", b"\xff", b"a = 1\na = 2", None])
def test_a_broken_file_is_named(file: Path, content: bytes | None) -> None:
    """With the reason; a missing one that was named as well."""
    if content is not None:
        file.write_bytes(content)
    assert re.search(r"migrator\.toml (is not|cannot be read: No such file)", complaint(file))


def test_the_environment_is_read_with_nesting() -> None:
    """Two underscores separate keys, whose case does not matter; JSON makes lists and tables."""
    found = loaded(
        MIGRATOR_STORE='{"url": "x", "schema": "s"}',
        MIGRATOR_STORE__URL="y",  # the more exact one wins
        migrator_broker__tls__verify="false",
        MIGRATOR_ENDPOINTS='[{"name": "A"}]',
        MIGRATOR_HANDOVER__DESTINATION_MAP='{"A.B": "C"}',
        MIGRATOR_HANDOVER__HORIZON="",
        MIGRATOR_DISPATCH__RETRY_DELAYS='["2s", "1h"]',
        PATH="/bin",
    )
    settings = found.settings
    assert settings.store.url == SecretStr("y")
    assert (settings.store.schema_name, settings.broker.tls.verify) == ("s", False)
    assert [endpoint.name for endpoint in settings.endpoints] == ["A"]
    assert settings.handover.destination_map == {"A.B": "C"}
    assert settings.handover.horizon is None
    assert settings.dispatch.retry_delays == (timedelta(seconds=2), timedelta(hours=1))
    assert found.origin(("store", "schema")).text == "env MIGRATOR_STORE"
    assert found.origin(("store", "url")).text == "env MIGRATOR_STORE__URL"


@pytest.mark.parametrize(
    "name",
    [
        "FAULT_POINT",
        "EVENT_TEXT",
        "SERVICE_HOST",
        "PORT_8080_TCP_ADDR",
    ],
)
def test_variables_that_are_no_settings_are_left_alone(name: str) -> None:
    """Kubernetes sets some for a service that is called migrator; a hook may call migrator."""
    assert loaded(None, **{f"MIGRATOR_{name}": "x"}).settings == Settings()
    for unknown in ("STORE_URL", "HANDOVER__LANES__X"):
        assert "unknown key" in complaint(None, **{f"MIGRATOR_{unknown}": "x"})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file to write to."""
    return tmp_path / "migrator.toml"


def loaded(file: Path | None = None, *options: Option, **environ: str) -> Loaded:
    """Load with an environment of the test's own."""
    return load(file=file, options=options, environ=environ)


def complaint(file: Path | None = None, *options: Option, **environ: str) -> str:
    """Return what loading complains about; it must complain."""
    with pytest.raises(ConfigError) as caught:
        loaded(file, *options, **environ)
    return str(caught.value)


def test_options_win_over_environment_over_file_over_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value knows where it came from; a table is put together from all of them."""
    file.write_text(
        "[handover]\nlanes = 2\nbatch_size = 20\nwindow = 200\ndestination_map = {A = 'B'}\n"
    )
    given = (
        Option(("handover", "lanes"), 4, "--lanes"),
        Option(("handover", "destination_map"), {"C.D": "E"}, "--map"),
    )
    environ = {"MIGRATOR_HANDOVER__LANES": "3", "MIGRATOR_HANDOVER__BATCH_SIZE": "30"}
    found = loaded(file, *given, **environ)
    handover = found.settings.handover
    assert (handover.lanes, handover.batch_size, handover.window) == (4, 30, 200)
    assert handover.destination_map == {"A": "B", "C.D": "E"}
    keys = ("lanes", "batch_size", "window", "cutoff")
    assert [found.origin(("handover", key)).text for key in keys] == [
        "option --lanes",
        "env MIGRATOR_HANDOVER__BATCH_SIZE",
        f"file {file}",
        "default",
    ]
    assert loaded(MIGRATOR_CONFIG=str(file)).file == file


def test_all_problems_are_reported_at_once(file: Path) -> None:
    """Each with its key, its origin and what is allowed."""
    file.write_text(
        '[store]\nknd = "sql"\n[broker]\ndelays = "v3"\ntls = 4\n'
        '[handover]\nlease = "15s"\ncutoff = 5\nwindow = 70000\n'
        '[[endpoints]]\nname = "Sales"\nmode = "send"\ntabel = "x"\n[[endpoints]]\n'
    )
    text = complaint(
        file,
        Option(("handover", "mode"), "fast", "--mode"),
        MIGRATOR_STORE_URL="x",
        MIGRATOR_HANDOVER__LANES="many",
        MIGRATOR_HANDOVER__DESTINATION_MAP="{bad",
    )
    assert text.splitlines() == [
        "13 wrong settings:",
        "  MIGRATOR_STORE_URL (environment): unknown key; did you mean MIGRATOR_STORE__URL?",
        f"  store.knd (file {file}): unknown key; did you mean store.kind?",
        f"  broker.delays = 'v3' (file {file}): must be v1 or v2",
        f"  broker.tls = 4 (file {file}): must be a table",
        "  handover.mode = 'fast' (option --mode): must be staged or direct",
        "  handover.lanes = 'many' (env MIGRATOR_HANDOVER__LANES): must be a valid integer",
        f'  handover.cutoff = 5 (file {file}): must be a duration in quotes, such as "30s" or "1m"',
        f"  handover.window = 70000 (file {file}): must be less than or equal to 65535",
        f"  handover.lease = '15s' (file {file}): must be longer than 15s",
        "  handover.destination_map = '{bad' (env MIGRATOR_HANDOVER__DESTINATION_MAP): "
        "must be a table",
        f"  endpoints[0].mode = 'send' (file {file}): must be migrate, dispatch or forward",
        f"  endpoints[0].tabel (file {file}): unknown key; did you mean endpoints[0].table?",
        f"  endpoints[1].name (file {file}): must be set",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('[store.nhibernate.columns]\nOwner = "x"', "must name columns among Id, Destination"),
        ('[store.nhibernate.columns]\nTime = " "', "must name columns, none empty"),
        (
            '[handover]\nreceipt_deadline = "6m59s"',
            "must be at least 7m: after a node failure the broker itself tries again",
        ),
        (
            '[store]\nkind = "nhibernate"\n[[endpoints]]\nname = "A"\ntable_prefix = "p"',
            "of their own: A; all are in that of store.nhibernate",
        ),
        ('[store]\nkind = "mongo"', "must be sql, nhibernate, azure or ravendb"),
        ('[handover]\nhorizon = "10000d"', "must be at most 268431855s"),
        (
            '[handover]\nhorizon = "30s"',
            "horizon (30s) must be at least 1m longer than cutoff (1m), or no row is moved",
        ),
        ('[handover]\nhorizon = "90s"', "use a shorter cutoff, or a longer horizon"),
        ('[handover]\ncutoff = "3200d"', "horizon (not set: 268431855s) must be at least 1m"),
        ('[handover]\nsweep_interval = "11s"', "must be at most 10s"),
        ('[handover]\ncutoff = "0s"\nsweep_interval = "2s"', "must be at most 1500ms with cut"),
        ('[handover]\nlease = "11m"', "must be at most 10m"),
        ('[handover.destination_map]\nA = " "', "must map one queue name to another"),
        ('[broker.tls]\ncert_file = "c.pem"', "must have both cert_file and key_file, or neither"),
        ('[[endpoints]]\nname = "A"\ntable = "t"\ntable_prefix = "p"', "not both"),
        ('[[endpoints]]\nname = "A"\n[[endpoints]]\nname = "A"', "repeated: A"),
        (
            '[[endpoints]]\nname = "A"\nmode = "dispatch"\n'
            '[[endpoints]]\nname = "B"\nmode = "forward"\nqueue = "A"',
            "must each have a queue of their own; shared: A",
        ),
        ('[handover]\nmode = "dispatch"', "that is a mode for an endpoint in [[endpoints]]"),
        ('[dispatch]\npoll_interval = "0s"', "must be longer than 0s"),
        ('[dispatch]\npoll_interval = "61s"', "must be at most 1m"),
        (
            '[dispatch]\npoll_interval = "2s"',
            "poll_interval (2s) must be at most 1500ms with look_ahead 1s",
        ),
        (
            '[dispatch]\nerror_queue = "A.Timeouts"\n[[endpoints]]\nname = "A"\nmode = "forward"',
            "the error queue of A must not be A.Timeouts",
        ),
        (
            '[[endpoints]]\nname = "A"\ntable = "T"\n[[endpoints]]\nname = "B"\ntable = "T"',
            "only one of them is served; named twice: T",
        ),
        ("[dispatch]\nbatch_size = 10001", "must be less than or equal to 10000"),
        ('[dispatch]\nretry_delays = "10s"', "must be a list"),
        ("[dispatch]\nretry_delays = [10]", 'must be a duration in quotes, such as "30s"'),
        ('[dispatch]\nretry_delays = ["500ms"]', "whole seconds, each at least 1s"),
        ('[dispatch]\nretry_delays = ["1m", "10s"]', "must be durations in rising order"),
        (
            "[dispatch]\nretry_delays = " + json.dumps([f"{n}s" for n in range(1, 12)]),
            "must be at most 10 durations",
        ),
        ('[probe]\nlevels = "0,28"', "must be levels from 0 to 27 with commas between"),
        ('[probe]\nevery = "8s"', "every must be longer than 8s, the time that the longest probe"),
        ("xyzzy = 1", "xyzzy (file FILE): unknown key"),
        ('[broker]\nmax_message_bytes = "1MB"', "must be a number of bytes"),
        ("[log]\nlevel = 5", "must be debug, info, warning or error"),
        ('[store]\nurl = "a"\n[ledger]\nurl = "b"', "ledger.url must be empty"),
        ('[store]\nkind = "azure"\n[handover]\nnear_due = "dispatch"', "need a SQL store"),
        (
            '[store]\nkind = "azure"\n[[endpoints]]\nname = "A"\nmode = "forward"',
            "(set for: A)",
        ),
        ('[store.azure]\ntable = "1x"', "a letter first"),
        ('[store.azure]\ncontainer = "Upper"', "lower case"),
        ('[store.azure]\npartition_key_scope = "yyMM"', "such as yyyyMMddHH"),
        ('[store.ravendb]\ncert_file = "c.pem"', "must have both cert_file and key_file, or neith"),
        ("[store.ravendb]\ncollections = []", "must name at least one"),
        ('[store.ravendb]\nprefixes = [""]', "at least 1 character"),
        ('[store.ravendb]\nversion = "5"', "must be auto, 3.5 or 4"),
        ('[throttle]\nwindows = ["10pm"]', "22:00-06:00"),
        (
            '[throttle]\ntime_zone = "../../etc/passwd"',
            "must be a time zone that this machine knows",
        ),
        ('[throttle]\nflag_file = "here"', "must be an absolute path"),
        ('[throttle]\nhttp_url = "ftp://a"', "must be an http:// or https:// address"),
        ('[throttle]\nhttp_url = "http://me:secret@a/"', "must not contain a user or password"),
        ('[throttle]\nevery = "20s"', "at least twice as long as every"),
        (
            "[throttle]\nmax_level_depth = 9\ncritical_level_depth = 9",
            "critical_level_depth (9) must be higher than max_level_depth (9)",
        ),
        (
            '[throttle]\nmax_replica_lag = "2s"\ncritical_replica_lag = "1s"',
            "critical_replica_lag (1s) must be higher than max_replica_lag (2s)",
        ),
        ("[throttle]\nmax_level_depth = -1", "must be greater than or equal to 0"),
        (
            '[store]\ntime_zone = "Europe/Berlin"\nurl = "mysql+pymysql://db/x"',
            "only on PostgreSQL",
        ),
        ('[store]\ntime_zone = "Europe/Berlin"\nkind = "ravendb"', "only on PostgreSQL"),
        ('[web]\nsocket = "control.sock"', "must be an absolute path"),
        ('[web]\ntoken = "fifteen letters"', "must have at least 16 characters"),
        ('[web]\ntoken = "größer, und sechzehn"', "all of them ASCII"),
        (
            '[web]\nlisten = "0.0.0.0:9464"\ntoken = "correct horse battery"',
            "if a TLS proxy is in front, set behind_tls = true",
        ),
        ('[web]\nlisten = "[::]:9464"\nbehind_tls = true', "a token is required"),
        ('[web]\nlisten = "migrator.example:9464"', "the daemon has no TLS"),
        (
            '[web]\nlisten = "[::]:9464"\nbehind_tls = true\ntoken = "correct horse battery"\n'
            "open_to_local = true",
            "open_to_local must be false when other machines can reach listen",
        ),
        *(
            (f'[web]\nlisten = "{listen}"', "such as 127.0.0.1:9464")
            for listen in ("9464", "::1:9464", "127.0.0.1:port", "a@127.0.0.1:80", "[::1:80")
        ),
    ],
)
def test_a_single_problem_is_a_single_line(file: Path, content: str, expected: str) -> None:
    """It says what is allowed."""
    file.write_text(content)
    text = complaint(file).replace(str(file), "FILE")
    assert expected in text
    assert text.startswith("wrong setting: ")
    assert "\n" not in text


# ── secrets ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("toml", "environ", "expected"),
    [
        ('url_file = "beside"', {}, "beside"),
        ('url_file = "store-url"', {"CREDENTIALS_DIRECTORY": "credentials"}, "credential"),
        ('url_file = "keys/store-url"', {"CREDENTIALS_DIRECTORY": "credentials"}, "key"),
        ('url_file = "absent"', {"MIGRATOR_STORE__URL": "variable"}, "variable"),
        ('url = "old"', {"MIGRATOR_STORE__URL_FILE": "beside"}, "beside"),
    ],
)
def test_a_secret_comes_from_the_strongest_source(
    file: Path, monkeypatch: pytest.MonkeyPatch, toml: str, environ: dict[str, str], expected: str
) -> None:
    """A file beside the settings, a credential of systemd by its bare name, or a plain value."""
    monkeypatch.chdir(file.parent)
    (file.parent / "credentials").mkdir()
    (file.parent / "credentials" / "store-url").write_text("credential")
    (file.parent / "beside").write_text("beside\n")
    (file.parent / "keys").mkdir()
    (file.parent / "keys" / "store-url").write_text("key")
    file.write_text(f"[store]\n{toml}\n")
    assert loaded(file, **environ).settings.store.url == SecretStr(expected)
    file.write_text('[store]\nurl = "a"\nurl_file = "b"\n[broker]\nurl_file = "absent"\n')
    text = complaint(file)
    assert "store.url is set as well" in text
    assert f"{file.parent / 'absent'} cannot be read" in text


def test_no_complaint_shows_a_secret(file: Path) -> None:
    """Not even one in the wrong place or of the wrong type."""
    secret = "swordfish"
    file.write_text(
        f'[store]\nurl = ["{secret}"]\nkind = "amqp://a:{secret}@b"\n[broker]\nurl = 5\n'
    )
    text = complaint(file)
    assert secret not in text
    assert "store.url (file" in text
    assert "broker.url (file" in text


LISTED = "amqp://a:p,w@one/%2F\namqp://a:pw@two/%2F"


@pytest.mark.parametrize(
    ("toml", "environ"),
    [
        ('url = ["amqp://a:p,w@one/%2F", "amqp://a:pw@two/%2F"]', {}),
        ("", {"MIGRATOR_BROKER__URL": "amqp://a:p,w@one/%2F, amqp://a:pw@two/%2F"}),
        ('url_file = "nodes"', {}),
    ],
)
def test_the_broker_may_be_several_nodes(
    tmp_path: Path, toml: str, environ: dict[str, str]
) -> None:
    """A list in the file, with commas in a variable, or one per line of a secret file."""
    (tmp_path / "nodes").write_text(f"{LISTED}\n")
    file = tmp_path / "migrator.toml"
    file.write_text(f"[broker]\n{toml}\n")
    url = load(file=file, environ=environ).settings.broker.url
    assert url is not None
    assert url.get_secret_value() == LISTED


def test_every_setting_is_shown_once_with_value_and_origin(file: Path) -> None:
    """In the order of the documentation, with what it means; each endpoint with all its keys."""
    file.write_text('[handover]\nhorizon = "30d"\n[[endpoints]]\nname = "Sales"\nschema = "s"\n')
    (file.parent / "url").write_text("amqp://a:swordfish@c")
    options = Option(("handover", "destination_map"), {"A": "B", "C": "D"}, "--map")
    secret = str(file.parent / "url")
    rows = describe(
        loaded(file, options, MIGRATOR_STORE__SCHEMA="x", MIGRATOR_BROKER__URL_FILE=secret)
    )
    found = {row.key: (show_text(row.value), row.origin) for row in rows}
    assert len(found) == len(rows)
    assert [row.key for row in rows if not row.meaning] == []
    assert next(iter(found)) == "store.kind"
    assert found["store.kind"] == ("sql", "default")
    assert found["store.url"] == ("", "default")
    assert found["store.schema"] == ("x", "env MIGRATOR_STORE__SCHEMA")
    assert found["broker.url"] == ("amqp://a:***@c", f"file {secret}")
    assert found["broker.url_file"] == (secret, "env MIGRATOR_BROKER__URL_FILE")
    assert found["handover.horizon"] == ("30d", f"file {file}")
    assert found["handover.cutoff"] == ("1m", "default")
    assert found["handover.destination_map"] == ("A=B, C=D", "option --map")
    assert found["dispatch.retry_delays"] == ("10s, 1m, 5m", "default")
    assert found["web.behind_tls"] == ("false", "default")
    assert found["endpoints[0].name"] == ("Sales", f"file {file}")
    assert found["endpoints[0].schema"] == ("s", f"file {file}")
    assert found["endpoints[0].mode"] == ("migrate", "default")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://nsb:swordfish@rabbit", "amqp://nsb:***@rabbit"),
        ("host=rabbit;password=swordfish", "host=rabbit;password=***"),
        ("some form nobody knows: swordfish", "***"),
        (
            "amqp://a:b,c@one, host=two;passphrase , amqp://a:b@three",
            ["amqp://a:***@one", "***", "amqp://a:***@three"],
        ),
        ("amqp://nsb@rabbit-1:5671/%2Fsales", "amqp://nsb@rabbit-1:5671/%2Fsales"),
        ("host=rabbit; username=nsb;useTls=true", "host=rabbit; username=nsb;useTls=true"),
        ("host=rabbit;username=nsb;sword=fish", "***"),
        ("amqp://nsb:swordfish", "***"),
        ("amqp://rabbit/a@b", "***"),
    ],
)
def test_secrets_are_masked(url: str, expected: object) -> None:
    """Where the password cannot be found, everything is hidden."""
    rows = describe(loaded(MIGRATOR_BROKER__URL=url))
    assert [row.value for row in rows if row.key == "broker.url"] == [expected]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql+psycopg://nsb@db/sales?sslmode=verify-full", None),
        ("postgresql+psycopg://nsb:sword%40fish@db/sales", "postgresql+psycopg://nsb:***@db/sales"),
        (
            "postgresql://db/sales?user=nsb&password=swordfish",
            "postgresql://db/sales?user=nsb&password=***",
        ),
        ("sqlite:////var/lib/legacy.db", None),
        (
            "mssql+pyodbc:///?odbc_connect=Server%3Ddb%3BUID%3Dnsb%3BPWD%3D%7Bsword%3Bfish%7D",
            "mssql+pyodbc:///?odbc_connect=Server%3Ddb%3BUID%3Dnsb%3BPWD%3D***",
        ),
    ],
)
def test_an_address_is_shown_without_its_secret(url: str, expected: str | None) -> None:
    """Host and user are no secret: one sees which server is meant. A token is nothing else."""
    rows = describe(loaded(MIGRATOR_STORE__URL=url, MIGRATOR_WEB__TOKEN="amqp://nsb@rabbit-1"))
    found = {row.key: row.value for row in rows}
    assert (found["store.url"], found["web.token"]) == (expected or url, "***")


def test_every_event_may_have_a_program() -> None:
    """And nothing else may."""
    programs = {str(event): f"/bin/{event}" for event in HookEvent}
    assert {*Hooks.model_validate(programs).programs} == {*programs}
    assert {*Hooks.model_fields} == {*programs, "timeout"}


def test_windows_are_in_a_time_zone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UTC needs no data about time zones, which a small container may not have."""
    file.write_text('[throttle]\nwindows = ["22:00-06:00"]\ntime_zone = "Europe/Vienna"\n')
    throttle = loaded(file).settings.throttle
    assert ([window.text for window in throttle.open_windows], throttle.zone) == (
        ["22:00-06:00"],
        ZoneInfo("Europe/Vienna"),
    )

    def unknown(key: str) -> ZoneInfo:
        raise LookupError(key)

    monkeypatch.setattr("migrator.config.values.ZoneInfo", unknown)
    assert loaded().settings.throttle.zone is UTC
    assert "time zone" in complaint(file)


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.8.8.8:9464", ("127.8.8.8", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("localhost:0", ("localhost", 0)),
        ("", None),
    ],
)
def test_an_address_of_this_machine_is_enough(listen: str, address: tuple[str, int] | None) -> None:
    """Without a token, which only control needs; for others it takes a word and a token."""
    assert loaded(MIGRATOR_WEB__LISTEN=listen).settings.web.address == address
    web = {"LISTEN": "192.0.2.7:80", "BEHIND_TLS": "true", "TOKEN": "correct horse battery"}
    given = loaded(None, **{f"MIGRATOR_WEB__{key}": value for key, value in web.items()})
    assert given.settings.web.address == ("192.0.2.7", 80)


# ── without the models ──────────────────────────────────────────────────────────────────────────

PLACES = (("store", "url"), ("store", "schema"), ("web", "socket"))


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, {("store", "url"): "sqlite:///in-file", ("web", "socket"): "/run/file.sock"}),
        (
            {"MIGRATOR_STORE__URL": "sqlite:///env", "MIGRATOR_WEB": '{"socket": "/run/env.sock"}'},
            {("store", "url"): "sqlite:///env", ("web", "socket"): "/run/env.sock"},
        ),
        (
            {"MIGRATOR_STORE__URL_FILE": "secret", "migrator_store__schema": "old"},
            {
                ("store", "url"): "sqlite:///secret",
                ("store", "schema"): "old",
                ("web", "socket"): "/run/file.sock",
            },
        ),
    ],
)
def test_a_peek_sees_what_loading_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], found: object
) -> None:
    """File, variables, sections and secrets in files: nobody is asked who is not meant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("sqlite:///secret\n")
    file = tmp_path / "migrator.toml"
    file.write_text('[store]\nurl = "sqlite:///in-file"\n[web]\nsocket = "/run/file.sock"\n')
    assert peek(PLACES, file=file, environ=environ) == found
    settings = load(file=file, environ=environ).settings
    assert settings.store.url is not None
    assert peek(PLACES[:1], file=file, environ=environ) == {
        ("store", "url"): settings.store.url.get_secret_value()
    }


def test_a_peek_leaves_what_is_wrong_to_the_models(tmp_path: Path) -> None:
    """They say what, and where."""
    file = tmp_path / "migrator.toml"
    file.write_text("[store")
    assert peek(PLACES, file=file, environ={}) is None
    file.write_text('[store]\nurl_file = "not there"\n')
    assert peek(PLACES, file=file, environ={}) is None
