"""Dockerfile and Compose file: as far as they can be known to be right without Docker."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
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
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    parts = [line.split(maxsplit=1) for line in whole.splitlines() if line.strip()]
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


def is_sent(path: str) -> bool:
    """Return whether *path* goes to the builder: the last line that fits decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        is_exception = pattern.startswith("!")
        if fits(path, pattern.removeprefix("!")):
            sent = is_exception
    return sent


def fits(path: str, pattern: str) -> bool:
    """Return whether *pattern* fits *path* or a folder that it is in."""
    parts = path.split("/")
    above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    if pattern.startswith("**/"):
        return any(fnmatch.fnmatchcase(part, pattern[3:]) for part in parts)
    return any(
        each.count("/") == pattern.count("/") and fnmatch.fnmatchcase(each, pattern)
        for each in above
    )


def tracked() -> list[str]:
    """Return every file of the checkout that is not ignored by git."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Return the Compose file."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with secrets as they are made up for the Compose file."""
    folder = tmp_path_factory.mktemp("some") / "secrets"
    make_secrets(folder)
    return folder


def make_secrets(folder: Path) -> None:
    """Make up secrets."""
    subprocess.run([ROOT / "dev" / "compose-secrets", folder], check=True, capture_output=True)


# ── the image ───────────────────────────────────────────────────────────────────────────────────


def test_everything_that_is_copied_is_there_and_is_sent() -> None:
    """No build ends with a file that is not found."""
    files_now = tracked()
    for rest in (rest for stage in stages() for rest in of(stage, "COPY")):
        *sources, _target = (word for word in shlex.split(rest) if not word.startswith("--"))
        if "--from=" in rest:
            continue
        for source in sources:
            under = [name for name in files_now if name == source or name.startswith(f"{source}/")]
            assert under, source
            assert any(is_sent(name) for name in under), source


def test_what_builds_the_wheel_is_sent_and_nothing_else() -> None:
    """No history, no test, no settings, and no secret gets near an image."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, hatch = described["project"], described["tool"]["hatch"]["build"]
    wanted = [project["readme"], *project["license-files"], "pyproject.toml"]
    wanted += ["requirements/run.txt", "requirements/build.txt"]
    folders = [each.strip("/") for each in hatch["targets"]["wheel"]["include"]]
    sent = {name for name in tracked() if is_sent(name)}
    assert set(wanted) <= sent
    assert {name.partition("/")[0] for name in sent - set(wanted)} == set(folders)
    for never in ("secrets/store-url", "migrator.toml", ".git/config", "migrator/a/__pycache__/b"):
        assert not is_sent(never)


def test_nothing_is_installed_but_what_is_locked() -> None:
    """By hash, or from what was just built; and nobody is told where to get it."""
    runs = [json.loads(rest) for stage in stages() for rest in of(stage, "RUN")]
    installs = [words for words in runs if words[0].endswith("/pip")]
    assert len(installs) == 4
    for words in installs:
        if "wheel" in words:
            assert {"--no-deps", "--no-build-isolation"} <= set(words)
        elif "install" in words:
            assert "--require-hashes" in words or {"--no-index", "--no-deps"} <= set(words)
    for path in (ROOT / "Dockerfile", *(ROOT / "requirements").glob("*.txt")):
        assert not _ADDRESS.search(path.read_text(encoding="utf-8")), path.name


def test_the_wheel_is_built_by_what_development_uses() -> None:
    """The three locks agree."""
    pins = [
        set(re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("build.txt", "run.txt", "dev.txt")
    ]
    assert pins[0] | pins[1] <= pins[2]


def test_the_image_needs_neither_root_nor_a_shell() -> None:
    """The user is a number, so that volumes can be given to it; no command is a text."""
    *_, last = stages()
    (user,) = of(last, "USER")
    number, _, group = user.partition(":")
    assert int(number) > 1000
    assert int(group) > 1000
    assert of(last, "RUN") == []
    assert json.loads(of(last, "ENTRYPOINT")[0]) == ["migrator"]
    assert json.loads(of(last, "CMD")[0]) == ["run"]
    for rest in (rest for stage in stages() for rest in of(stage, "RUN")):
        assert json.loads(rest)
    assert [name for name, _ in instructions() if name == "ADD"] == []


def test_both_stages_have_the_same_supported_python() -> None:
    """A virtual environment does not move from one to another."""
    found = [of(stage, "FROM")[0].split()[0] for stage in stages()]
    assert len(set(found)) == 1
    version = re.match(r"python:(\d\.\d+)-", found[0])
    assert version
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert f"Programming Language :: Python :: {version[1]}" in classifiers


def test_the_health_check_asks_where_the_daemon_listens() -> None:
    """One path in two places; ``tests/unit/web/test_probe.py`` asks a real one."""
    *_, last = stages()
    (check,) = of(last, "HEALTHCHECK")
    words = json.loads(check.partition(" CMD ")[2])
    (given,) = of(last, "ENV")
    variables = dict(word.split("=", 1) for word in shlex.split(given))
    assert words[:-1] == ["python", "-m", "migrator.web.probe"]
    assert words[-1] == variables["MIGRATOR_WEB__SOCKET"]


# ── the Compose file ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    """Return the Compose Specification's schema, which comes with a package."""
    path = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    return Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


def test_it_is_valid(compose: dict[str, Any], schema: Draft202012Validator) -> None:
    """By the schema of the Compose Specification."""
    assert [error.message for error in schema.iter_errors(compose)] == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("readonly", True), ("ports", "9464"), ("tmpfs", {"/tmp": {}}), ("cap_drop", "ALL")],  # noqa: S108  # no file is made
)
def test_a_mistake_would_be_found(
    compose: dict[str, Any], schema: Draft202012Validator, key: str, value: object
) -> None:
    """The schema does look into services."""
    broken = json.loads(json.dumps(compose))
    broken["services"]["migrator"][key] = value
    assert list(schema.iter_errors(broken))


def services() -> Sequence[str]:
    """Return the names of all services."""
    return sorted(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])


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
    named = set()
    for key, value in service.get("environment", {}).items():
        if str(value).startswith(SECRETS):
            named.add(str(value).removeprefix(SECRETS))
        else:
            assert not re.search("PASS|TOKEN|URL|SECRET", key), key
    assert named <= has


def test_every_secret_belongs_to_somebody(compose: dict[str, Any]) -> None:
    """None is declared that no service has."""
    used = {
        each if isinstance(each, str) else each["source"]
        for service in compose["services"].values()
        for each in service.get("secrets", [])
    }
    assert used == set(compose["secrets"])


def test_secrets_that_are_there_are_left_alone(secrets: Path) -> None:
    """Database and broker remember their first ones; nobody else on the machine reads them."""
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    make_secrets(secrets)
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
    assert password in given.store.url.get_secret_value()
    assert "@postgres/sales" in given.store.url.get_secret_value()
    assert "@rabbitmq/" in given.broker.url.get_secret_value()
    assert given.web.address == ("0.0.0.0", 9464)  # noqa: S104  # inside a container
    assert given.web.token is not None


def test_names_of_servers_are_names_of_services(compose: dict[str, Any], secrets: Path) -> None:
    """What the secrets point at is there, and so are its user and its database."""
    for name in ("store-url", "broker-url", "management-url"):
        found = re.search(r"//nsb:\w{32}@(\w+)", (secrets / name).read_text())
        assert found
        assert found[1] in compose["services"]
    environment = compose["services"]["postgres"]["environment"]
    assert (environment["POSTGRES_USER"], environment["POSTGRES_DB"]) == ("nsb", "sales")
    user = (secrets / "rabbitmq-user.conf").read_text().splitlines()
    assert user[0] == "default_user = nsb"
    assert user[1].removeprefix("default_pass = ") in (secrets / "broker-url").read_text()


def mounts(compose: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield service, source and target of everything that is mounted from the checkout."""
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source, target, *mode = volume.split(":")
            if source.startswith("."):
                assert mode == ["ro"], volume
                yield name, source, target
            else:
                assert source in compose["volumes"]


def test_what_is_mounted_is_there(compose: dict[str, Any]) -> None:
    """Docker would make an empty folder of a file that is not."""
    found = list(mounts(compose))
    assert found
    for _, source, _ in found:
        assert (ROOT / source).is_file(), source


def test_prometheus_finds_migrator_and_the_rules(compose: dict[str, Any]) -> None:
    """By the job that the rules expect, with the token, where migrator listens."""
    at = {target: source for name, source, target in mounts(compose) if name == "prometheus"}
    given = yaml.safe_load((ROOT / at["/etc/prometheus/prometheus.yml"]).read_text())
    assert [f"/etc/prometheus/{name}" in at for name in given["rule_files"]] == [True]
    (job,) = given["scrape_configs"]
    assert job["job_name"] == "migrator"
    token = job["authorization"]["credentials_file"].removeprefix(SECRETS)
    assert token in compose["services"]["prometheus"]["secrets"]
    listens = compose["services"]["migrator"]["environment"]["MIGRATOR_WEB__LISTEN"]
    port = listens.rpartition(":")[2]
    assert job["static_configs"] == [{"targets": [f"migrator:{port}"]}]


def test_grafana_finds_prometheus_and_the_dashboard(compose: dict[str, Any]) -> None:
    """The dashboard lies where the provider looks."""
    at = {target: source for name, source, target in mounts(compose) if name == "grafana"}
    folder = "/etc/grafana/provisioning"
    sources = yaml.safe_load((ROOT / at[f"{folder}/datasources/migrator.yml"]).read_text())
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    providers = yaml.safe_load((ROOT / at[f"{folder}/dashboards/migrator.yml"]).read_text())
    path = providers["providers"][0]["options"]["path"]
    boards = [source for target, source in at.items() if target.startswith(f"{path}/")]
    assert [json.loads((ROOT / board).read_text())["uid"] for board in boards] == ["migrator"]
