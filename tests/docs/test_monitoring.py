"""Alert rules, dashboard and definitions name what a daemon really shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types, and this is its only user
from prometheus_client.parser import text_string_to_metric_families

from migrator.throttle.reasons import Signal
from migrator.web.metrics import MEASURES, Instruments, scrape
from tests.docs.test_reference import commands_in, mistakes_in
from tests.support import cannot_run
from tests.support.panel import SALES, MemoryPanel, hold, some_snapshot

ROOT = Path(__file__).resolve().parents[2]
RULES = yaml.safe_load((ROOT / "monitoring" / "alerts.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((ROOT / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))

_SCRAPED_BY_PROMETHEUS = {"job", "instance"}
_NAME = re.compile(r"\b((?:migrator|process)_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
_BY = re.compile(r"\bby \(([^)]*)\)")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def shown() -> Mapping[str, set[str]]:
    """Return every sample's name with its labels, of a daemon that shows everything it can."""
    panel, instruments = MemoryPanel(), Instruments()
    panel.shown = some_snapshot(holds=[hold(Signal.PAUSED, SALES)])
    instruments.batch_settled("Sales", "staged", seconds=1, rows=1)
    instruments.sent("Sales", lateness_s=1)
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(scrape(panel, instruments).decode()):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


SHOWN = shown()


def rules() -> Iterator[dict[str, Any]]:
    """Yield every alert."""
    for group in RULES["groups"]:
        yield from group["rules"]


def panels() -> Iterator[dict[str, Any]]:
    """Yield every panel that draws something."""
    yield from (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> Iterator[str]:
    """Yield every query of rules and dashboard."""
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def mistakes(expression: str) -> Iterator[str]:
    """Yield the metrics and labels of *expression* that no daemon shows."""
    labels = set(_SCRAPED_BY_PROMETHEUS)
    for name, selector in _NAME.findall(expression):
        if name not in SHOWN:
            yield f"no metric {name}"
            continue
        labels |= SHOWN[name]
        known = SHOWN[name] | _SCRAPED_BY_PROMETHEUS
        yield from (
            f"{name} has no {key}" for key, _ in _LABEL.findall(selector) if key not in known
        )
    for grouping in _BY.findall(expression):
        yield from (f"no label {key}" for key in grouping.split(", ") if key not in labels)


def test_every_metric_that_is_asked_for_is_shown() -> None:
    """With the labels it is selected and grouped by; brackets match, and signals exist."""
    for expression in set(expressions()):
        assert list(mistakes(expression)) == []
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing)
        for key, value in _LABEL.findall(expression):
            assert key != "signal" or "$" in value or set(value.split("|")) <= set(Signal)


@pytest.mark.parametrize("rule", [*rules()], ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    """With how urgent it is, a line, and a command that exists where it names one."""
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in {"page", "ticket"}
    summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
    assert summary
    assert [m for call in commands_in(description) for m in mistakes_in(call)] == []
    kept = _SCRAPED_BY_PROMETHEUS.union(*(SHOWN[n] for n, _ in _NAME.findall(rule["expr"])))
    if groupings := _BY.findall(rule["expr"]):
        kept = set(groupings[0].split(", "))
    elif rule["expr"].startswith("max("):
        kept = set()
    assert set(re.findall(r"\$labels\.(\w+)", summary + description)) <= kept


MOVING = 'migrator_endpoint_state{endpoint="Sales",state="moving"}'
FINISHED = 'migrator_endpoint_state{endpoint="Sales",state="finished"}'
MOVED = 'migrator_handed_over_rows{endpoint="Sales"}'
UNSENT = 'migrator_left_rows{endpoint="Sales",due="overdue",sent_by="nobody"}'
SENT = 'migrator_left_rows{endpoint="Sales",due="overdue",sent_by="timeout_manager"}'


@pytest.mark.parametrize(
    ("alert", "series", "fires"),
    [
        ("MigratorLeftUnsent", {UNSENT: "7x60", FINISHED: "1x60"}, True),
        ("MigratorLeftUnsent", {UNSENT: "7x60", FINISHED: "0x60"}, False),
        ("MigratorLeftUnsent", {UNSENT: "0x60", SENT: "7x60", FINISHED: "1x60"}, False),
        ("MigratorLeftUnsent", {UNSENT: "0x54 7x6", FINISHED: "1x60"}, False),
        ("MigratorStandsStill", {MOVING: "1x60", MOVED: "500x60"}, True),
        ("MigratorStandsStill", {MOVING: "1x60"}, True),
        ("MigratorStandsStill", {MOVING: "1x60", MOVED: "500+1x60"}, False),
        ("MigratorStandsStill", {MOVING: "1x60", MOVED: "500x40 501x20"}, False),
        ("MigratorStandsStill", {MOVING: "0x60", FINISHED: "1x60", MOVED: "500x60"}, False),
    ],
    ids=[
        *("left and unsent", "not finished", "the timeout manager sends them", "for minutes only"),
        *("stands still", "nothing was ever moved", "goes on", "went on lately", "is finished"),
    ],
)
def test_an_alert_fires_when_it_should(
    tmp_path: Path, alert: str, series: Mapping[str, str], fires: bool
) -> None:
    """After an hour of samples of two daemons that share a ledger; each value is of a minute."""
    program = shutil.which("promtool")
    if program is None:
        cannot_run("promtool is not installed: apt-get install prometheus")
    shown = [
        {"series": name[:-1] + f',instance="app{number}"}}', "values": values}
        for name, values in series.items()
        for number in range(2)
    ]
    (rule,) = (rule for rule in rules() if rule["alert"] == alert)
    value = {"MigratorLeftUnsent": "7", "MigratorStandsStill": "1"}[alert]
    said = {
        key: text.replace("{{ $labels.endpoint }}", "Sales").replace("{{ $value }}", value)
        for key, text in rule["annotations"].items()
    }
    labels = {**rule["labels"], "endpoint": "Sales"}
    expected = [{"exp_labels": labels, "exp_annotations": said}] if fires else []
    test = {
        "rule_files": [str(ROOT / "monitoring" / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": shown,
                "alert_rule_test": [
                    {"eval_time": "1h", "alertname": alert, "exp_alerts": expected}
                ],
            }
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump(test), encoding="utf-8")
    done = subprocess.run(
        [program, "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_whole() -> None:
    """Ids once, nothing over something else, every query by the chosen data source."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in combinations((panel["gridPos"] for panel in DASHBOARD["panels"]), 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_above
    for panel in panels():
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    known = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(_VARIABLE.findall(json.dumps(DASHBOARD["panels"]))) == known | {"__rate_interval"}


def test_every_metric_that_is_defined_is_shown() -> None:
    """With its labels, and no other; the reference is written from the definitions."""
    plain: dict[str, set[str]] = defaultdict(set)
    for name, labels in SHOWN.items():
        if name.startswith("migrator_") and not name.endswith("_created"):
            plain[re.sub(r"_(bucket|count|sum)$", "", name)] |= labels - {"le"}
    assert {each.name: set(each.labels) for each in MEASURES.values()} == plain
