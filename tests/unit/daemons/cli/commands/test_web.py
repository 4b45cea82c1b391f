"""`trimtab web` against a real controller, over the in-process bus in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemons.values.settings import BalancerSettings, PolicyChoice
from shared.values.web_app import ModelForm
from sim_backend.world.demand import constant
from sim_backend.world.web_site import TrueFlow, TrueWeb
from tests.support.operator_harness import Rig

APP = """
name = "shop"
memory_mib = 500
max_mhz = 2_000
vcpus = 2
max_instances = 2
[[flows]]
name = "browse"
mean_s = 0.5
work_mcycles = 50
"""


@pytest.fixture
def rig() -> Rig:
    made = Rig(placement=PolicyChoice("first-fit"))
    made.run(30.0)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.toml"
    path.write_text(APP)
    return path


def replicas(rig: Rig) -> dict[str, str]:
    """Where instances truly run."""
    return {
        vm: name
        for name, hypervisor in rig.loop.cluster.hypervisors.items()
        for vm, domain in hypervisor.domains.items()
        if vm.startswith("shop#") and domain.state == "running"
    }


def only(data: dict[str, Any], key: str) -> dict[str, Any]:
    """The one row of a list."""
    (row,) = data[key]
    return dict(row)


def test_an_application_is_submitted_changed_and_removed(rig: Rig, file: Path) -> None:
    """Given a file, then as many instances run as must; another file under the name changes that; then all go."""
    submitted = rig.asked("web", "submit", file)
    assert (submitted["done"], submitted["app"]["flows"][0]["goal"]) == (True, "answered within 0.5 s on average")
    rig.run(30.0)
    assert set(replicas(rig)) == {"shop#0"}

    file.write_text(APP.replace("vcpus = 2", "vcpus = 2\nmin_instances = 2"))
    rig.asked("web", "submit", file)
    rig.run(60.0)
    assert sorted(replicas(rig).values()) == ["n1", "n2"]
    assert only(rig.asked("web", "list"), "apps")["running"] == 2

    assert rig.asked("web", "remove", "shop") == {"done": ["shop"], "refused": []}
    rig.run(60.0)
    assert replicas(rig) == {}
    assert rig.asked("web", "list")["apps"] == []


def test_what_is_measured_is_shown(rig: Rig, file: Path) -> None:
    rig.asked("web", "submit", file)
    truth = TrueWeb((TrueFlow("browse", constant(10.0), 50.0),), ModelForm.PROCESSOR_SHARING, noise_frac=0.0)
    rig.loop.measure_web("shop", truth)
    rig.run(120.0)

    app = rig.asked("web", "show", "shop")["app"]

    (flow,) = app["flows"]
    assert flow["rate_per_s"] == pytest.approx(10.0, rel=0.3)
    assert flow["measured"]["mean_s"] == pytest.approx(50.0 / (2_000.0 - 10.0 * 50.0), rel=0.15)
    assert app["utility"] == pytest.approx(1.0 - flow["measured"]["mean_s"] / 0.5)
    for words in (("list",), ("show", "shop")):
        outcome = rig.trimtab("web", *words)
        assert outcome.exit_code == 0
        assert "shop" in outcome.stdout
        assert "declared" in outcome.stdout


def test_what_a_balancer_serves_lets_in_and_measures_is_shown(file: Path) -> None:
    rig = Rig(placement=PolicyChoice("first-fit"), balancer=BalancerSettings("fake", measures=True))
    rig.run(30.0)
    file.write_text(APP + "[serving]\nport = 8080\nlisten = 8001\nqueue_max = 30\n")
    rig.asked("web", "submit", file)
    assert "not measured" in rig.trimtab("web", "show", "shop").stdout
    rig.loop.measure_web("shop", TrueWeb((TrueFlow("browse", constant(10.0), 50.0),), noise_frac=0.0, chance=False))
    rig.run(120.0)

    app = rig.asked("web", "show", "shop")["app"]

    (replica,) = (replica for replica in app["seats"] if replica["phase"] == "running")
    assert (replica["address"], replica["rotation"]) == ("10.0.0.1", "in")
    assert app["limits"] == {"instance_max": 19, "queue_max": 30, "queue_limit_s": 10.0}
    assert app["traffic"]["served_per_s"] == pytest.approx(10.0, rel=0.02)
    assert app["traffic"]["rejected_per_s"] == 0.0
    shown = rig.trimtab("web", "show", "shop").stdout
    for text in ("10/s served", "0/s rejected", "each instance 19", "queue 30", "10.0.0.1"):
        assert text in " ".join(shown.split()), shown


def test_refusals(rig: Rig, file: Path) -> None:
    file.write_text(APP.replace("500", "9_000"))
    assert rig.refused("web", "submit", file)["code"] == "fits-no-node"
    assert rig.refused("web", "show", "shop")["code"] == "unknown-web-app"
    outcome = rig.trimtab("web", "remove", "shop")
    assert outcome.exit_code == 1
    assert "error: shop: unknown-web-app" in outcome.stderr


def test_a_dry_run_sends_nothing(file: Path) -> None:
    rig = Rig()
    rig.unreachable = "there is no broker"
    found = rig.asked("web", "submit", file, "--dry-run", "--name", "other")
    assert (found["done"], found["request"], found["app"]["name"]) == (False, "", "other")
    outcome = rig.trimtab("web", "submit", file, "--dry-run")
    assert "as Trimtab reads it" in outcome.stdout
    assert "answered within 0.5 s on average" in outcome.stdout
    assert rig.connections == 0


def test_every_problem_of_a_file_is_told(rig: Rig, file: Path) -> None:
    file.write_text(APP.replace("mean_s", "mean") + "t_min_s = -1\n")
    error = rig.refused("web", "submit", file, status=2)
    assert error["code"] == "invalid-input"
    assert len(error["problems"]) == 3
    assert rig.published == 0
