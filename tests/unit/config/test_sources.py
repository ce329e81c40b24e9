"""Tests of ``migrator.config.sources``."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.sources import (
    Option,
    Rank,
    dotted,
    from_environment,
    from_file,
    from_options,
    leaves,
    merged,
    nested,
    variable,
)


def values(flat: object) -> dict[str, object]:
    """Return a source's values by dotted key."""
    assert isinstance(flat, dict)
    return {dotted(path): sourced.value for path, sourced in flat.items()}


def test_a_file_is_taken_apart_into_single_values(tmp_path: Path) -> None:
    """Tables are flattened, lists stay whole, and each value names the file."""
    file = tmp_path / "migrator.toml"
    file.write_text('[store]\nurl = "x"\n[broker.tls]\nverify = false\n[[endpoints]]\nname = "A"\n')
    flat = from_file(file)
    assert values(flat) == {
        "store.url": "x",
        "broker.tls.verify": False,
        "endpoints": [{"name": "A"}],
    }
    assert {sourced.origin.text for sourced in flat.values()} == {f"file {file}"}


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


def test_every_setting_has_its_variable() -> None:
    """Names follow from the keys."""
    names = {variable(path) for path, _ in leaves()}
    assert {
        "MIGRATOR_STORE__SCHEMA",
        "MIGRATOR_BROKER__TLS__CA_FILE",
        "MIGRATOR_ENDPOINTS",
    } <= names


def test_every_setting_says_what_it_means() -> None:
    """The description is what config show prints."""
    without = [dotted(path) for path, field in leaves() if not field.description]
    assert without == ["endpoints"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [(("store", "url"), "store.url"), (("endpoints", 0, "name"), "endpoints[0].name"), ((), "")],
)
def test_paths_are_written_as_people_do(path: tuple[str | int, ...], expected: str) -> None:
    """Dots between keys, brackets round positions."""
    assert dotted(path) == expected
