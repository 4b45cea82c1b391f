"""docs/reference/metrics.md has every metric as it is; the dashboard and the alerts use none that does not exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from daemons.config.controller import ControllerConfig
from shared.config.toml import parse
from shared.metrics.values import Metric, MetricKind
from tests.architecture.sources import ROOT
from tests.integration.debian import need_programs
from tests.support.metric_tables import SECTIONS, with_tables

MONITORING = ROOT / "examples/monitoring"
RULES = MONITORING / "trimtab.rules.yml"
RULE_TESTS = MONITORING / "trimtab.rules.test.yml"
DASHBOARD = MONITORING / "grafana-dashboard.json"
# What the library exports for a process, and Prometheus for a target.
OTHERS = frozenset({"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"})
NAMED = re.compile(r"\b(?:trimtab|process)_[a-z0-9_]+\b|\bup(?=\{)")
LABELLED = re.compile(r"\b(trimtab_[a-z0-9_]+)\{([^}]*)\}")
TARGET = ("job", "instance", "le")


def everything() -> dict[str, Metric]:
    """Every metric by its name."""
    return {metric.name: metric for metrics in SECTIONS.values() for metric in metrics}


def unknown(text: str, known: Iterable[Metric]) -> list[str]:
    """Series that a text names and that no metric has, or that a metric has no such label of."""
    series: dict[str, Metric] = {}
    for metric in known:
        ends = ("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",)
        series |= {metric.name + end: metric for end in ends}
    found = [name for name in NAMED.findall(text) if name not in series and name not in OTHERS]
    for name, inside in LABELLED.findall(text):
        labels = re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", inside)
        allowed = (*series[name].labels, *TARGET) if name in series else TARGET
        found += [f"{name}: {label}" for label in labels if label not in allowed]
    return sorted({*found})


def expressions(dashboard: Path) -> list[str]:
    """What the panels of a dashboard ask for."""
    panels = json.loads(dashboard.read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


@pytest.fixture
def promtool() -> str:
    """Prometheus's own judge."""
    need_programs(["promtool"], ["prometheus"])
    return shutil.which("promtool") or ""


def judged(*command: str) -> str:
    """What a command says; it must find nothing wrong."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, cwd=MONITORING, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_metric_is_documented() -> None:
    """Each row says name, kind, unit, labels and meaning as the code does; `make reference` writes them."""
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")

    assert page == with_tables(page)


def test_a_page_without_a_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="has no line"):
        with_tables("# Metrics\n")


def test_names_are_unique() -> None:
    assert len(everything()) == sum(map(len, SECTIONS.values()))


def test_the_documented_key_is_one_of_the_configuration() -> None:
    """The example of docs/reference/metrics.md is what a file may say, and the default."""
    text = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    example = re.search(r"```toml\n(.*?)```", text, re.DOTALL)

    assert example is not None
    assert parse(example[1], ControllerConfig).metrics == ControllerConfig().metrics


def test_the_alerts_use_metrics_that_exist() -> None:
    assert unknown(RULES.read_text("utf-8"), everything().values()) == []
    assert unknown(RULE_TESTS.read_text("utf-8"), everything().values()) == []


def test_the_dashboard_uses_metrics_that_exist() -> None:
    asked = expressions(DASHBOARD)

    assert len(asked) > 40
    assert unknown("\n".join(asked), everything().values()) == []


def test_what_does_not_exist_is_found() -> None:
    """Given an unknown metric, a label that a metric has not, and a histogram without its suffix, all are named."""
    text = 'trimtab_gone > 1 and trimtab_nodes{condition="up",colour="red"} and rate(trimtab_loop_lag_seconds[5m])'

    assert unknown(text, everything().values()) == [
        "trimtab_gone",
        "trimtab_loop_lag_seconds",
        "trimtab_nodes: colour",
    ]


def test_every_alert_is_tried() -> None:
    alerts = set(re.findall(r"^ *- alert: (\w+)$", RULES.read_text("utf-8"), re.MULTILINE))
    tried = set(re.findall(r"name: (\w+) fires$", RULE_TESTS.read_text("utf-8"), re.MULTILINE))

    assert len(alerts) > 20
    assert tried == alerts


def test_prometheus_takes_the_configuration_and_the_alerts(promtool: str) -> None:
    assert "SUCCESS" in judged(promtool, "check", "config", "prometheus.yml")


def test_alerts_fire_when_they_must_and_only_then(promtool: str) -> None:
    """Each in an hour that is bad in its way; none in one in which all is well."""
    assert "SUCCESS" in judged(promtool, "test", "rules", RULE_TESTS.name)
