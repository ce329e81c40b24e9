"""Dockerfile and Compose file: as far as they can be known to be right without Docker."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # nor does it

from migrator.config import load

ROOT = Path(__file__).resolve().parents[2]
SECRETS = "/run/secrets/"
_ADDRESS = re.compile(r"https?://|--(extra-)?index-url|--trusted-host|PIP_(EXTRA_)?INDEX_URL")


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, each with its arguments in one line."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if line.strip() and not line.startswith("#"))
    parts = [line.split(maxsplit=1) for line in text.replace("\\\n", " ").splitlines()]
    return [(name.upper(), " ".join(rest.split())) for name, rest in parts]


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage."""
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest))
    return found


def of(stage: Sequence[tuple[str, str]], name: str) -> list[str]:
    """Return the arguments of every instruction called *name*."""
    return [rest for each, rest in stage if each == name]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Return the Compose file."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with secrets as they are made up for the Compose file."""
    folder = tmp_path_factory.mktemp("some") / "secrets"
    subprocess.run([ROOT / "dev" / "compose-secrets", folder], check=True, capture_output=True)
    return folder


# ── the image ───────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_sent_but_what_the_wheel_is_built_of() -> None:
    """No history, no test, no settings, and no secret gets near an image; what is copied is."""
    first, *lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()[1:]
    sent = {line[1:] for line in lines if line.startswith("!")}
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, hatch = described["project"], described["tool"]["hatch"]["build"]
    wanted = {"README.md", *project["license-files"], "pyproject.toml"}
    wanted |= {described["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]}
    wanted |= {"requirements/run.txt", "requirements/build.txt"}
    wanted |= {each.strip("/") for each in hatch["targets"]["wheel"]["include"]}
    assert (first, sent) == ("*", wanted)
    assert all((ROOT / name).exists() for name in sent)
    copied = [rest.split()[:-1] for stage in stages() for rest in of(stage, "COPY")]
    assert {name for names in copied if "--from=build" not in names for name in names} == sent
    (image,) = {of(stage, "FROM")[0].split()[0] for stage in stages()}
    version = image.removeprefix("python:").partition("-")[0]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_nothing_is_installed_but_what_is_locked() -> None:
    """By hash, as development has it, or just built; and nobody is told where to get it."""
    runs = [json.loads(rest) for stage in stages() for rest in of(stage, "RUN")]
    installs = [words for words in runs if words[0].endswith("/pip")]
    assert len(installs) == 4
    for words in installs:
        if "wheel" in words:
            assert {"--no-deps", "--no-build-isolation"} <= set(words)
        elif "install" in words:
            assert "--no-deps" in words, "nothing is resolved: the lock names all of it"
            assert "--require-hashes" in words or "--no-index" in words
    locks = {path.stem: path.read_text() for path in (ROOT / "requirements").glob("*.txt")}
    for text in ((ROOT / "Dockerfile").read_text(), *locks.values()):
        assert not _ADDRESS.search(text)
    pins = {name: set(re.findall(r"^[\w.-]+==\S+", locks[name], re.MULTILINE)) for name in locks}
    assert pins["build"] | pins["run"] <= pins["dev"]


def test_the_image_needs_neither_root_nor_a_shell() -> None:
    """The user is a number, so that volumes can be given to it; no command is a text."""
    *_, last = stages()
    (user,) = of(last, "USER")
    assert min(map(int, user.split(":"))) > 1000
    assert of(last, "RUN") == []
    assert json.loads(of(last, "ENTRYPOINT")[0]) == ["migrator"]
    assert json.loads(of(last, "CMD")[0]) == ["run"]
    (check,) = of(last, "HEALTHCHECK")
    *words, where = json.loads(check.partition(" CMD ")[2])
    assert words == ["python", "-m", "migrator.web.probe"]
    assert f"MIGRATOR_WEB__SOCKET={where}" in shlex.split(of(last, "ENV")[0])


# ── the Compose file ────────────────────────────────────────────────────────────────────────────


def test_it_is_valid(compose: dict[str, Any]) -> None:
    """By the schema of the Compose Specification, which comes with a package."""
    path = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))
    assert [error.message for error in schema.iter_errors(compose)] == []


def services() -> list[str]:
    """Return the names of all services."""
    return sorted(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])


def mounted(compose: dict[str, Any], service: str) -> dict[str, Path]:
    """Return what *service* has of the checkout, by where it has it; none is to be written."""
    found = {}
    for volume in compose["services"][service].get("volumes", []):
        source, target, *mode = volume.split(":")
        if source.startswith("."):
            assert mode == ["ro"], volume
            found[target] = ROOT / source
            assert found[target].is_file(), "Docker would make an empty folder of it"
        else:
            assert source in compose["volumes"]
    return found


@pytest.mark.parametrize("name", services())
def test_each_service_is_confined(compose: dict[str, Any], name: str) -> None:
    """No root, no capability, nothing to write to but what is listed, loopback only."""
    service = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & set(service)
    *_, last = stages()
    user = of(last, "USER")[0] if "build" in service else service["user"]
    assert int(user.split(":")[0]) > 0
    assert [port for port in service["ports"] if not port.startswith("127.0.0.1:")] == []
    if "build" not in service:
        assert re.search(r":v?\d", service["image"]), "a version, not the latest"


@pytest.mark.parametrize("name", services())
def test_secrets_are_files(compose: dict[str, Any], secrets: Path, name: str) -> None:
    """Each service names those it has, each is made up, and none is in a variable."""
    service = compose["services"][name]
    has = {each if isinstance(each, str) else each["source"] for each in service.get("secrets", [])}
    for each in has:
        path = Path(compose["secrets"][each]["file"])
        assert path.parts[0] == "secrets"
        assert (secrets / path.name).is_file()
    given = {key: str(value) for key, value in service.get("environment", {}).items()}
    named = {text.removeprefix(SECRETS) for text in given.values() if text.startswith(SECRETS)}
    assert named <= has
    for key, text in given.items():
        assert text.startswith(SECRETS) or not re.search("PASS|TOKEN|URL|SECRET", key), key


def test_secrets_that_are_there_are_left_alone(secrets: Path) -> None:
    """Database and broker remember their first ones; nobody else on the machine reads them."""
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    subprocess.run([ROOT / "dev" / "compose-secrets", secrets], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert len(set(before.values())) == len(before)
    assert all(len(text) > 32 for text in before.values())
    assert "secrets" in {path.strip("/") for path in (ROOT / ".gitignore").read_text().split()}


def test_migrator_takes_its_settings(
    compose: dict[str, Any], secrets: Path, tmp_path: Path
) -> None:
    """Of image and Compose file together: no variable is unknown, every secret is read."""
    *_, last = stages()
    variables = dict(word.split("=", 1) for word in shlex.split(of(last, "ENV")[0]))
    variables |= compose["services"]["migrator"]["environment"]
    ours = {
        key: str(value).replace(SECRETS, f"{secrets}/")
        for key, value in variables.items()
        if key.startswith("MIGRATOR_")
    }
    (tmp_path / "none.toml").touch()
    given = load(file=tmp_path / "none.toml", environ=ours).settings
    assert given.store.url is not None
    assert given.broker.url is not None
    password = (secrets / "postgres-password").read_text().strip()
    assert f"nsb:{password}@postgres/sales" in given.store.url.get_secret_value()
    database = compose["services"]["postgres"]["environment"]
    assert (database["POSTGRES_USER"], database["POSTGRES_DB"]) == ("nsb", "sales")
    user, word = (secrets / "rabbitmq-user.conf").read_text().splitlines()[:2]
    assert user == "default_user = nsb"
    password = word.removeprefix("default_pass = ")
    assert f"nsb:{password}@rabbitmq" in given.broker.url.get_secret_value()
    assert given.web.address == ("0.0.0.0", 9464)  # noqa: S104  # inside a container
    assert given.web.token is not None


def test_prometheus_and_grafana_find_all_they_need(compose: dict[str, Any]) -> None:
    """The job of the rules, with the token, where migrator listens; the dashboard where it is."""
    at = mounted(compose, "prometheus")
    given = yaml.safe_load(at["/etc/prometheus/prometheus.yml"].read_text())
    assert [f"/etc/prometheus/{name}" in at for name in given["rule_files"]] == [True]
    (job,) = given["scrape_configs"]
    token = job["authorization"]["credentials_file"].removeprefix(SECRETS)
    assert token in compose["services"]["prometheus"]["secrets"]
    listens = compose["services"]["migrator"]["environment"]["MIGRATOR_WEB__LISTEN"]
    target = f"migrator:{listens.rpartition(':')[2]}"
    assert (job["job_name"], job["static_configs"]) == ("migrator", [{"targets": [target]}])
    at, folder = mounted(compose, "grafana"), "/etc/grafana/provisioning"
    sources = yaml.safe_load(at[f"{folder}/datasources/migrator.yml"].read_text())
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    providers = yaml.safe_load(at[f"{folder}/dashboards/migrator.yml"].read_text())
    path = providers["providers"][0]["options"]["path"]
    boards = [source for target, source in at.items() if target.startswith(f"{path}/")]
    assert [json.loads(board.read_text())["uid"] for board in boards] == ["migrator"]
