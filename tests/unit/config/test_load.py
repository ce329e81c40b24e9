"""Tests of ``migrator.config.load`` and ``describe``."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from migrator.config import EndpointMode, Loaded, describe, load, show_text
from migrator.config.describe import Plain
from migrator.config.load import (
    Option,
    Rank,
    dotted,
    from_environment,
    from_file,
    from_options,
    leaves,
    merged,
    nested,
)
from migrator.errors import ConfigError
from migrator.ledger.states import Mode


def values(flat: object) -> dict[str, object]:
    """Return a source's values by dotted key."""
    assert isinstance(flat, dict)
    return {dotted(path): sourced.value for path, sourced in flat.items()}


@pytest.mark.parametrize("content", [b"[store", b"\xff", b"a = 1\na = 2"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    """With the reason, as far as there is one."""
    file = tmp_path / "migrator.toml"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"migrator\.toml is not"):
        from_file(file)


def test_the_environment_is_read_with_nesting() -> None:
    """Two underscores separate keys; case does not matter; JSON makes lists and mappings."""
    flat, unknown = from_environment(
        {
            "MIGRATOR_STORE__URL": "x",
            "migrator_broker__tls__verify": "false",
            "MIGRATOR_ENDPOINTS": '[{"name": "A"}]',
            "MIGRATOR_HANDOVER__DESTINATION_MAP": '{"A.B": "C"}',
            "PATH": "/bin",
        }
    )
    assert unknown == []
    assert values(flat) == {
        "store.url": "x",
        "broker.tls.verify": "false",
        "endpoints": [{"name": "A"}],
        "handover.destination_map.A.B": "C",
    }
    texts = {dotted(path): sourced.origin.text for path, sourced in flat.items()}
    assert texts["store.url"] == "env MIGRATOR_STORE__URL"
    assert texts["handover.destination_map.A.B"] == "env MIGRATOR_HANDOVER__DESTINATION_MAP"


def test_a_whole_section_may_be_one_variable() -> None:
    """As JSON; a more exact variable wins over it."""
    flat, unknown = from_environment(
        {"MIGRATOR_STORE": '{"url": "x", "schema": "s"}', "MIGRATOR_STORE__URL": "y"}
    )
    assert (values(flat), unknown) == ({"store.url": "y", "store.schema": "s"}, [])


def test_broken_json_is_left_to_the_models() -> None:
    """They complain about it together with everything else."""
    flat, _ = from_environment({"MIGRATOR_ENDPOINTS": "[{"})
    assert values(flat) == {"endpoints": "[{"}


def test_unknown_variables_are_returned() -> None:
    """A typing error must not be passed over."""
    names = ["MIGRATOR_STORE_URL", "MIGRATOR_STORE__ULR", "MIGRATOR_HANDOVER__LANES__X"]
    flat, unknown = from_environment(dict.fromkeys(names, "x"))
    assert (flat, unknown) == ({}, sorted(names))


@pytest.mark.parametrize(
    "name",
    [
        "MIGRATOR_CONFIG",
        "MIGRATOR_FAULT_POINT",
        "MIGRATOR_TEST_SERVER",
        "MIGRATOR_SERVICE_HOST",
        "MIGRATOR_SERVICE_PORT_HTTP",
        "MIGRATOR_PORT",
        "MIGRATOR_PORT_8080_TCP_ADDR",
    ],
)
def test_variables_that_are_no_settings_are_left_alone(name: str) -> None:
    """Kubernetes sets some of its own for a service that is called migrator."""
    assert from_environment({name: "x"}) == ({}, [])


def test_options_and_mappings_are_laid_over_each_other() -> None:
    """A renamed destination is added to those of the file; a plain value is replaced."""
    from_toml = from_options([Option(("handover", "destination_map"), {"A": "B"}, "file")])
    later = from_options(
        [
            Option(("handover", "destination_map"), {"C.D": "E"}, "--map"),
            Option(("handover", "lanes"), 2, "--lanes"),
        ]
    )
    together = merged(from_toml, later)
    assert nested(together) == {"handover": {"destination_map": {"A": "B", "C.D": "E"}, "lanes": 2}}
    assert together["handover", "lanes"].origin.rank is Rank.OPTION


def test_a_scalar_in_place_of_a_table_is_kept_for_the_complaint() -> None:
    """The deeper value of another source has no place then."""
    flat = from_options([Option(("store",), 5, "a"), Option(("store", "url"), "x", "b")])
    assert nested(flat) == {"store": 5}


def test_every_setting_says_what_it_means() -> None:
    """The description is what config show prints."""
    without = [dotted(path) for path, field in leaves() if not field.description]
    assert without == ["endpoints"]


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


def test_nothing_set_means_the_documented_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staged, a thousand rows, one lane, a minute's cutoff, 20 s leases."""
    monkeypatch.chdir(tmp_path)
    settings = loaded().settings
    handover = settings.handover
    assert (handover.mode, handover.batch_size, handover.lanes) == (Mode.STAGED, 1000, 1)
    assert (handover.cutoff, handover.horizon) == (timedelta(minutes=1), None)
    assert handover.lease == timedelta(seconds=20)
    assert (settings.store.url, settings.endpoints) == (None, ())


def test_options_win_over_environment_over_file_over_defaults(file: Path) -> None:
    """And each value knows where it came from."""
    file.write_text("[handover]\nlanes = 2\nbatch_size = 20\nwindow = 200\n")
    found = loaded(
        file,
        Option(("handover", "lanes"), 4, "--lanes"),
        MIGRATOR_HANDOVER__LANES="3",
        MIGRATOR_HANDOVER__BATCH_SIZE="30",
    )
    handover = found.settings.handover
    assert (handover.lanes, handover.batch_size, handover.window) == (4, 30, 200)
    keys = ("lanes", "batch_size", "window", "cutoff")
    assert [found.origin(("handover", key)).text for key in keys] == [
        "option --lanes",
        "env MIGRATOR_HANDOVER__BATCH_SIZE",
        f"file {file}",
        "default",
    ]


def test_a_file_in_the_working_folder_is_found(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, unless another one is named."""
    file.write_text("[handover]\nlanes = 2\n")
    monkeypatch.chdir(file.parent)
    assert loaded().settings.handover.lanes == 2


def test_the_environment_may_name_the_file(file: Path) -> None:
    """MIGRATOR_CONFIG is the twin of --config."""
    file.write_text("[handover]\nlanes = 2\n")
    assert loaded(MIGRATOR_CONFIG=str(file)).file == file


def test_an_empty_horizon_is_the_longest_delay(file: Path) -> None:
    """As the design's example writes it."""
    file.write_text('[handover]\nhorizon = ""\n')
    assert loaded(file).settings.handover.horizon is None
    assert loaded(file, MIGRATOR_HANDOVER__HORIZON="30d").settings.handover.horizon == timedelta(30)


def test_the_canary_is_off_unless_it_is_told_how_often(file: Path) -> None:
    """Its levels are listed as for the command, in any order."""
    off = loaded().settings.canary
    assert (off.every, off.probed_levels) == (None, [0, 1, 2, 3])
    assert off.warn_after == timedelta(seconds=2)
    file.write_text('[canary]\nevery = "1m"\nlevels = "5,0"\n')
    canary = loaded(file, MIGRATOR_CANARY__WARN_AFTER="500ms").settings.canary
    assert (canary.every, canary.probed_levels) == (timedelta(minutes=1), [0, 5])
    assert canary.warn_after == timedelta(milliseconds=500)
    assert loaded(file, MIGRATOR_CANARY__EVERY="").settings.canary.every is None


def test_an_endpoint_may_have_a_timeout_manager_here(file: Path) -> None:
    """Its satellites are named after its queue, which is its name unless told otherwise."""
    file.write_text(
        '[[endpoints]]\nname = "Sales"\nmode = "dispatch"\nqueue = "Sales.In"\n'
        'error_queue = "sales.error"\n[[endpoints]]\nname = "Billing"\nmode = "forward"\n'
    )
    sales, billing = loaded(file).settings.endpoints
    assert (sales.mode, sales.input_queue) == (EndpointMode.DISPATCH, "Sales.In")
    assert sales.error_queue == "sales.error"
    assert (billing.mode, billing.input_queue) == (EndpointMode.FORWARD, "Billing")
    assert billing.error_queue is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("[]", ()), ('["2s", "1h"]', (timedelta(seconds=2), timedelta(hours=1)))],
)
def test_retries_may_come_from_the_environment(text: str, expected: tuple[timedelta, ...]) -> None:
    """As a list in JSON; an empty one means none."""
    found = loaded(MIGRATOR_DISPATCH__RETRY_DELAYS=text)
    assert found.settings.dispatch.retry_delays == expected


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
        f"  endpoints[1].name (file {file}): must be given",
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
            "of its own: A; all are in that of store.nhibernate",
        ),
        ('[store]\nkind = "mongo"', "must be sql, nhibernate, azure or ravendb"),
        ('[handover]\nhorizon = "10000d"', "must be at most 268431855s"),
        ('[handover]\nhorizon = "0s"', "must be longer than 0s"),
        ('[handover.destination_map]\nA = " "', "must map one queue name to another"),
        ('[broker.tls]\ncert_file = "c.pem"', "must have both cert_file and key_file, or neither"),
        ('[[endpoints]]\nname = "A"\ntable = "t"\ntable_prefix = "p"', "not both"),
        ('[[endpoints]]\nname = "A"\n[[endpoints]]\nname = "A"', "repeated: A"),
        (
            '[[endpoints]]\nname = "A"\nmode = "dispatch"\n'
            '[[endpoints]]\nname = "B"\nmode = "forward"\nqueue = "A"',
            "must have a queue each; shared: A",
        ),
        ('[[endpoints]]\nname = "A"\nqueue = ""', "must have at least 1 character"),
        ('[handover]\nmode = "dispatch"', "it is a mode of an endpoint in [[endpoints]]"),
        ("[handover]\nmode = 5", "must be staged or direct"),
        ('[handover]\nnear_due = "keep"', "must be leave or dispatch"),
        ('[dispatch]\npoll_interval = "0s"', "must be longer than 0s"),
        ('[dispatch]\npoll_interval = "61s"', "must be at most 1m"),
        ('[dispatch]\nlook_ahead = "2m"', "must be at most 1m"),
        ("[dispatch]\nbatch_size = 10001", "must be less than or equal to 10000"),
        ("[dispatch]\nprefetch = 65536", "must be less than or equal to 65535"),
        ('[dispatch]\nretry_delays = "10s"', "must be a list"),
        ("[dispatch]\nretry_delays = [10]", 'must be a duration in quotes, such as "30s"'),
        ('[dispatch]\nretry_delays = ["500ms"]', "whole seconds, each at least 1s"),
        ('[dispatch]\nretry_delays = ["1s", "1500ms"]', "whole seconds, each at least 1s"),
        ('[dispatch]\nretry_delays = ["1m", "10s"]', "must be durations in rising order"),
        ('[dispatch]\nretry_delays = ["1m", "60s"]', "must be durations in rising order"),
        (
            "[dispatch]\nretry_delays = " + json.dumps([f"{n}s" for n in range(1, 12)]),
            "must be at most 10 durations",
        ),
        ('[dispatch]\non_critical = "stop"', "must be keep-trying or exit"),
        ('[canary]\nlevels = "0,28"', "must be levels from 0 to 27 with commas between"),
        ('[canary]\nevery = "0s"', "must be longer than 0s"),
        ('[canary]\nevery = "8s"', "every must be longer than 8s, for which the longest probe"),
        ('[canary]\nwarn_after = ""', "must be a duration"),
        ("xyzzy = 1", "xyzzy (file FILE): unknown key"),
        ("[broker]\nmax_message_bytes = 0", "must be greater than or equal to 1"),
        ('[broker]\nmax_message_bytes = "1MB"', "must be a number of bytes"),
        ("[log]\nlevel = 5", "must be debug, info, warning or error"),
    ],
)
def test_a_single_problem_is_a_single_line(file: Path, content: str, expected: str) -> None:
    """It says what is allowed."""
    file.write_text(content)
    text = complaint(file).replace(str(file), "FILE")
    assert expected in text
    assert text.startswith("wrong setting: ")
    assert "\n" not in text


def test_a_missing_file_that_was_named_is_a_problem(tmp_path: Path) -> None:
    """Silently using defaults instead would be worse."""
    assert "cannot be read: No such file" in complaint(tmp_path / "absent.toml")


# ── secrets ─────────────────────────────────────────────────────────────────────────────────


def test_a_secret_is_read_from_a_file_beside_the_settings(file: Path) -> None:
    """And its origin is that file."""
    (file.parent / "url").write_text("amqp://a:b@c\n")
    file.write_text('[broker]\nurl_file = "url"\n')
    found = loaded(file)
    assert found.settings.broker.url is not None
    assert found.settings.broker.url.get_secret_value() == "amqp://a:b@c"
    assert found.origin(("broker", "url")).text == f"file {file.parent / 'url'}"


def test_a_systemd_credential_is_found_by_its_bare_name(file: Path, tmp_path: Path) -> None:
    """In $CREDENTIALS_DIRECTORY."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "store-url").write_text("postgresql://a:b@c/d")
    file.write_text('[store]\nurl_file = "store-url"\n')
    url = loaded(file, CREDENTIALS_DIRECTORY=str(folder)).settings.store.url
    assert url is not None
    assert url.get_secret_value() == "postgresql://a:b@c/d"


def test_a_stronger_url_makes_a_file_moot(file: Path) -> None:
    """The file is not even looked for."""
    file.write_text('[store]\nurl_file = "absent"\n')
    url = loaded(file, MIGRATOR_STORE__URL="x").settings.store.url
    assert url is not None
    assert url.get_secret_value() == "x"


def test_a_stronger_file_wins_over_a_url(file: Path, tmp_path: Path) -> None:
    """The environment's url_file beats the file's url."""
    (tmp_path / "secret").write_text("new")
    file.write_text('[store]\nurl = "old"\n')
    url = loaded(file, MIGRATOR_STORE__URL_FILE=str(tmp_path / "secret")).settings.store.url
    assert url is not None
    assert url.get_secret_value() == "new"


def test_url_and_file_in_one_source_contradict(file: Path) -> None:
    """Nobody could say which is meant."""
    file.write_text('[store]\nurl = "a"\nurl_file = "b"\n')
    assert "store.url is set as well" in complaint(file)


def test_a_missing_secret_file_is_a_problem(file: Path) -> None:
    """With the path that was looked for."""
    file.write_text('[broker]\nmanagement_url_file = "absent"\n')
    assert f"{file.parent / 'absent'} cannot be read" in complaint(file)


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


def test_settings_are_frozen(tmp_path: Path) -> None:
    """Parts may keep them without fear."""
    settings = loaded(MIGRATOR_HANDOVER__LANES="2").settings
    with pytest.raises(ValueError, match="frozen"):
        settings.handover.lanes = 3
    with pytest.raises(ValueError, match="frozen"):
        settings.endpoints = ()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"TIME_ZONE": "Europe/Berln"}, "must be a time zone this machine knows"),
        ({"URL": "mysql+pymysql://db/sales"}, "only on PostgreSQL"),
        ({"KIND": "ravendb"}, "only on PostgreSQL"),
    ],
)
def test_a_time_zone_is_one_that_there_is_and_of_postgresql(more: dict[str, str], why: str) -> None:
    """Elsewhere due times are UTC, and a setting that does nothing would be believed."""
    given = {"TIME_ZONE": "Europe/Berlin", "URL": "postgresql+psycopg://db/sales"}
    environ = {f"MIGRATOR_STORE__{key}": value for key, value in given.items()}
    assert load(environ=environ).settings.store.local_zone == "Europe/Berlin"
    with pytest.raises(ConfigError, match=why):
        load(environ=environ | {f"MIGRATOR_STORE__{key}": value for key, value in more.items()})


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


def test_every_setting_is_shown_once_with_value_and_origin(tmp_path: Path) -> None:
    """In the order of the documentation; each endpoint with all its keys."""
    file = tmp_path / "migrator.toml"
    file.write_text('[handover]\nhorizon = "30d"\n[[endpoints]]\nname = "Sales"\nschema = "s"\n')
    options = [Option(("handover", "destination_map"), {"A": "B"}, "--map")]
    rows = describe(load(file=file, options=options, environ={"MIGRATOR_STORE__SCHEMA": "x"}))
    found = {row.key: (row.value, row.origin) for row in rows}
    assert len(found) == len(rows)
    assert next(iter(found)) == "store.kind"
    assert found["store.kind"] == ("sql", "default")
    assert found["store.schema"] == ("x", "env MIGRATOR_STORE__SCHEMA")
    assert found["handover.horizon"] == ("30d", f"file {file}")
    assert found["handover.cutoff"] == ("1m", "default")
    assert found["handover.destination_map"] == ({"A": "B"}, "option --map")
    assert found["dispatch.retry_delays"] == (["10s", "1m", "5m"], "default")
    assert found["endpoints[0].name"] == ("Sales", f"file {file}")
    assert found["endpoints[0].schema"] == ("s", f"file {file}")
    assert found["endpoints[0].mode"] == ("migrate", "default")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://nsb:swordfish@db/sales", "postgresql://nsb:***@db/sales"),
        ("host=db;password=swordfish", "host=db;password=***"),
        ("some form nobody knows: swordfish", "***"),
    ],
)
def test_secrets_are_masked(url: str, expected: str) -> None:
    """Where the password cannot be found, everything is hidden."""
    found = load(environ={"MIGRATOR_STORE__URL": url}, file=None)
    (row,) = [row for row in describe(found) if row.key == "store.url"]
    assert row.value == expected


def test_each_address_of_a_list_is_masked() -> None:
    """One whose password cannot be found is hidden as a whole, and the others are shown."""
    listed = "amqp://a:b,c@one, host=two;passphrase , amqp://a:b@three"
    found = load(environ={"MIGRATOR_BROKER__URL": listed}, file=None)
    (row,) = [row for row in describe(found) if row.key == "broker.url"]
    assert row.value == ["amqp://a:***@one", "***", "amqp://a:***@three"]


def test_paths_are_shown_as_text(tmp_path: Path) -> None:
    """A secret's file may be shown; its content is not."""
    secret = tmp_path / "url"
    secret.write_text("amqp://a:swordfish@c")
    rows = describe(load(environ={"MIGRATOR_BROKER__URL_FILE": str(secret)}))
    found = {row.key: row.value for row in rows}
    assert found["broker.url_file"] == str(secret)
    assert found["broker.url"] == "amqp://a:***@c"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "true"),
        (3, "3"),
        ("x", "x"),
        ({"a": "b", "c": "d"}, "a=b, c=d"),
        (["1s", "2s"], "1s, 2s"),
    ],
)
def test_values_fit_a_cell(value: Plain, expected: str) -> None:
    """One line each."""
    assert show_text(value) == expected
