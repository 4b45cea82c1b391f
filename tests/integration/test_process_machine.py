"""Real jobs on a machine that has booted: the packaged agent, without rights of its own, has systemd run them, and sets
the machine up for environments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.harness import CLOCK, toml
from tests.integration.machine import Machine
from tests.integration.machine_scene import AGENT_FILE, AGENT_UNIT, NODE, Host, host, unit
from tests.integration.package_source import PackageSource
from tests.integration.private_broker import PrivateBroker

ENVIRONMENT = "render"
FOLDER, IMAGES = f"/var/lib/trimtab/environments/{ENVIRONMENT}", f"/var/lib/trimtab/images/{ENVIRONMENT}"
SCENE, IMAGE = "#!/bin/sh\necho scene of $(id -un)\n", "all of a disk\n" * 1_000
SERVICE = "trimtab-service-render.service"
PROGRAMS: Mapping[str, Any] = {"scene": {"run": [f"{FOLDER}/bin/scene.sh"]}}
ALLOWED: Mapping[str, Any] = {
    "packages": ["render*"],
    "urls": ["file:///srv/files/"],
    "services": ["trimtab-service-*.service"],
    "library": "/srv/images",
}


@pytest.fixture(scope="module")
def place(broker: PrivateBroker, booted: Machine) -> Iterator[Host]:
    """The machine as a node of a cluster."""
    with host(broker, booted, PROGRAMS, ALLOWED) as made:
        yield made


def test_serial_and_parallel_jobs_run_as_their_own_user(place: Host) -> None:
    """Each program once, by an account that is neither root's nor the agent's; those of one job meet."""
    place.put("solo", "burn", 0.1)
    place.put("trio", "meet", 3, instances=3)
    place.completed("solo", "trio")
    assert place.words("solo#0") == ["begin", "end"]
    assert all(place.words(f"trio#{at}") == ["begin", "met", "end"] for at in range(3))
    users = {line.split(":")[0]: line.split(":")[2] for line in place.machine.text("/etc/passwd").splitlines()}
    assert place.notes("solo#0", "output") == [f"begun as {users['trimtab-job']}"]
    status = place.machine.text(f"/proc/{place.agent_pid()}/status")
    assert f"Uid:\t{users['trimtab']}\t" in status
    assert "CapEff:\t0000000000000000" in status


@pytest.mark.full
def test_a_job_is_frozen_outlives_its_agent_and_goes_on(place: Host) -> None:
    """Given a job that an operator has suspended, when its agent is killed, then another comes, finds the job
    as it was, and the same process ends it."""
    place.put("long", "burn", 1.0)
    place.until_heard("job-started", "long")
    place.order("vms", "suspend", "long")
    place.wait_for(lambda: place.job("long")["phase"] == "suspended" and not live(place), what="the suspension")
    used, pid, agent = place.shown("long#0", "CPUUsageNSec"), place.shown("long#0", "MainPID"), place.agent_pid()
    assert place.shown("long#0", "FreezerState") == "frozen"
    place.machine.run(["systemctl", "kill", "-s", "KILL", AGENT_UNIT])
    place.wait_for(lambda: place.agent_pid() not in (0, agent), what="another agent")
    CLOCK.sleep(0.3)
    assert (place.shown("long#0", "CPUUsageNSec"), place.shown("long#0", "MainPID")) == (used, pid)
    place.order("vms", "resume", "long")
    place.completed("long")
    assert place.notes("long#0") == [f"begin {pid}", f"end {pid}"]
    assert place.job("long")["attempt"] == 1


def live(place: Host) -> bool:
    """Whether the job's program is not seen frozen yet."""
    return any(vm["state"] != "suspended" for vm in place.job("long")["instance_list"])


def test_what_is_not_listed_is_refused(place: Host) -> None:
    """By the controller, which knows the programs of its nodes; agents look again (test_process.py)."""
    with pytest.raises(AssertionError, match="on any node; nodes have burn, meet, scene, spy"):
        place.put("shell", "sh", "-c", "id")
    assert place.machine.run(["systemctl", "is-active", unit("shell#0")], check=False).stdout == "inactive\n"


def test_jobs_read_nothing_of_the_agents(place: Host) -> None:
    paths = (AGENT_FILE, "/var/lib/trimtab/agent.journal", f"/proc/{place.agent_pid()}/environ")
    place.machine.run(["wc", "-c", *paths])
    place.put("spy", "spy", *paths)
    place.completed("spy")
    said = [line.partition(" ")[2] for line in place.notes("spy#0", "output")[1:]]
    assert said == ["Permission denied", "Permission denied", "No such file or directory"]


# --- setups -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wanted(place: Host) -> dict[str, Any]:
    """The setup of an agreement, all of which the machine has for whom it allows."""
    machine = place.machine
    source = PackageSource(machine)
    digest = source.add("render-engine", "2.4")
    source.add("other")
    machine.put("/etc/trimtab/helper.toml", 'packages = ["render*"]\n', 0o640)
    machine.run(["systemctl", "start", "trimtab-helper.socket"])
    machine.put("/srv/files/scene.sh", SCENE)
    machine.put("/srv/images/base.img", IMAGE)
    machine.put("/srv/secret.img", IMAGE)
    machine.run(["ln", "-sf", "/srv/secret.img", "/srv/images/link.img"])
    machine.unit(SERVICE, "[Service]\nExecStart=sleep 1000\nUser=nobody\n")
    machine.unit("other.service", "[Service]\nExecStart=sleep 1000\nUser=nobody\n")
    file = {"url": "file:///srv/files/scene.sh", "path": "bin/scene.sh", "sha256": sha256(SCENE), "executable": True}
    return {
        "policy": "image",
        "limit_s": 60.0,
        "services": [SERVICE],
        "images": [{"name": "base.img", "sha256": sha256(IMAGE)}],
        "packages": [{"name": "render-engine", "version": "2.4", "sha256": digest}],
        "files": [file],
    }


def sha256(text: str) -> str:
    """The digest of a file's content."""
    return hashlib.sha256(text.encode()).hexdigest()


def found(place: Host) -> dict[str, bool]:
    """What of a setup is on the machine."""
    paths = {"file": f"{FOLDER}/bin/scene.sh", "image": f"{IMAGES}/base.img", "package": "/opt/shop/render-engine"}
    there = {name: (place.machine.root / path.lstrip("/")).exists() for name, path in paths.items()}
    return {**there, "service": place.machine.state(SERVICE) == "active"}


NOTHING = {"file": False, "image": False, "package": False, "service": False}


def begin(place: Host, setup: Mapping[str, Any]) -> None:
    """Create an environment that is to have the machine, and activate it."""
    setup = dict(setup)
    tables = {name: setup.pop(name) for name in ("images", "packages", "files")}
    whole = {"name": ENVIRONMENT, "owner": "kim", "workload": "batch", "model": "dedicated", "lower": 1}
    text = toml({**whole, "lease_s": 8.0, "setup": setup})
    text += "".join(f"[[setup.{name}]]\n{toml(row)}" for name, rows in tables.items() for row in rows)
    file = place.lab.folder / "render.env.toml"
    file.write_text(text)
    place.order("env", "create", str(file))
    place.order("env", "activate", ENVIRONMENT)


def end(place: Host) -> None:
    """Give the machine back, whether its setup has failed or not."""
    place.order("env", "destroy", ENVIRONMENT, "--yes")
    if place.node(NODE)["handover"] == "failed":
        place.order("nodes", "repair", NODE)
    place.until_environment(ENVIRONMENT, state="destroyed")


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("packages", {"sha256": "0" * 64}, "packages: render-engine=2.4 has the SHA-256 digest "),
        ("packages", {"name": "other", "version": ""}, "package other matches none of setup.packages"),
        ("services", "other.service", "service other.service matches none of setup.services"),
        ("images", {"name": "link.img"}, "image link.img leads out of the library"),
        ("files", {"url": "file:///etc/passwd"}, "file:///etc/passwd"),
    ],
)
def test_what_the_machine_does_not_allow_is_not_done(
    place: Host, wanted: dict[str, Any], kind: str, change: Any, why: str
) -> None:
    """The setup fails with the reason, and the machine is as it was; it is handed to nobody until it is repaired."""
    new = [change] if isinstance(change, str) else [{**wanted[kind][0], **change}]
    count = len(place.heard("setup-failed"))
    begin(place, {**wanted, kind: new})
    failed = place.until_heard("setup-failed", NODE, count + 1)
    assert why in failed["detail"]
    assert place.node(NODE)["handover"] == "failed"
    seen = found(place)
    end(place)
    assert seen == {**NOTHING, "image": kind == "packages" and "sha256" in change}
    assert found(place) == NOTHING
    assert place.machine.state("other.service") == "inactive"


@pytest.mark.full
def test_an_environment_has_its_machine_set_up(place: Host, wanted: dict[str, Any]) -> None:
    """Given a file that is not what the agreement says, when the right one is there and the node is repaired, then the
    environment has all that it brings, its jobs use it, and with the environment it goes."""
    place.machine.put("/srv/files/scene.sh", "#!/bin/sh\necho somebody else\n")
    count = len(place.heard("setup-failed"))
    begin(place, wanted)
    failed = place.until_heard("setup-failed", NODE, count + 1)
    assert f"not {sha256(SCENE)}" in failed["detail"]
    assert (found(place)["file"], found(place)["service"]) == (False, False)
    place.machine.put("/srv/files/scene.sh", SCENE)
    place.order("nodes", "repair", NODE)
    place.until_environment(ENVIRONMENT, state="running", owned=1)
    assert found(place) == dict.fromkeys(NOTHING, True)
    assert place.machine.text(f"{IMAGES}/base.img") == IMAGE
    place.put("first", "scene", environment=ENVIRONMENT)
    place.completed("first")
    assert place.notes("first#0", "output") == ["scene of trimtab-job"]
    end(place)
    assert found(place) == {**NOTHING, "package": True}
