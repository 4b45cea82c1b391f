"""What an owner's definition says of CPU and of the end of a guest is the owner's: as the domain is defined, and as it
runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from agents.hypervisors.libvirt import metadata
from agents.hypervisors.libvirt.domain_xml import without_meta
from shared.values.actions import ActionKind, Outcome
from shared.values.vms import LIVE_STATES, VmSpec, VmState
from sim_backend.fake_libvirt.faults import Fault
from tests.conformance.fake_libvirt_rig import fakes
from tests.conformance.test_fake_libvirt_adopted import PET, Hosts
from tests.conformance.test_fake_libvirt_failover import Scene as FailoverScene
from tests.conformance.test_fake_libvirt_failover import lost

CAPPED = "<cputune><shares>2048</shares><period>50000</period><quota>30000</quota></cputune>"
QUOTA = "<cputune><quota>30000</quota></cputune>"
TUNES = {"all": CAPPED, "quota": QUOTA, "shares": "<cputune><shares>2048</shares></cputune>", "none": ""}
DISK = "/shared/volumes/pet.qcow2"
DEFAULT_SHARES = 1_024
DECIDED_MHZ = 900.0
ENDS = "<on_poweroff>{poweroff}</on_poweroff><on_crash>{crash}</on_crash>"


class Scene(Hosts):
    """Hosts with a running VM of somebody's on h1, whose disk every host sees."""

    def own(self, words: str = "", **spec: Any) -> str:
        """Make it with these elements, and adopt it; its live XML from before."""
        xml = f"""<domain type="qemu"><name>{PET}</name><uuid>c7a5fdbd-edaf-9455-926a-d65c16db1809</uuid>
            <memory unit="KiB">98304</memory><vcpu>1</vcpu>{words}<os><type arch="x86_64" machine="pc">hvm</type></os>
            <devices><disk type="file" device="disk"><source file="{DISK}"/><target dev="vda"/></disk></devices>
            </domain>"""
        self.made.cluster.hosts["h1"].files.put(DISK, b"made by its owner")
        drift = self.made.drift("h1")
        drift.define(xml)
        drift.start(PET)
        self.hear()
        self.before = self.live()
        self.adopt_with(**spec)
        return self.before

    def adopt_with(self, generation: int = 1, expects: int = 0, host: str = "h1", **spec: Any) -> None:
        wanted = VmSpec(PET, generation, 1, memory_mib=96, vcpus=1, cpu_mhz=700.0, **spec)
        answer = self.do(ActionKind.ADOPT, host, generation=generation, expects=expects, spec=wanted)
        assert answer.outcome is Outcome.OK, answer

    def ok(self, kind: ActionKind, host: str = "h1", **fields: Any) -> None:
        answer = self.do(kind, host, **fields)
        assert answer.outcome is Outcome.OK, answer

    def release(self, host: str = "h1", expects: int = 1) -> None:
        self.ok(ActionKind.RELEASE, host, expects=expects)

    def live(self, host: str = "h1") -> str:
        """As it runs, without our element and what numbers this life."""
        root = ET.fromstring(without_meta(self.made.drift(host).connection().lookupByName(PET).XMLDesc(0)))
        root.attrib.pop("id", None)
        return ET.canonicalize(ET.tostring(root, encoding="unicode"), strip_text=True)

    def tunes(self, host: str = "h1", text: str = "") -> tuple[str | None, ...]:
        root = ET.fromstring(text or self.live(host))
        return tuple(root.findtext(f"cputune/{key}") for key in ("shares", "period", "quota"))

    def ends(self, host: str = "h1", flags: int = 0) -> tuple[str | None, ...]:
        root = ET.fromstring(self.made.drift(host).connection().lookupByName(PET).XMLDesc(flags))
        return root.findtext("on_poweroff"), root.findtext("on_crash")

    def another_agent(self) -> None:
        self.made.drivers["h1"].close()
        self.made.drivers["h1"] = self.made.driver("h1")
        self.settle()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with fakes(tmp_path, count=2, durations_s={}) as made:
        yield Scene(made)


# --- CPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", TUNES.values(), ids=TUNES)
def test_neither_adoption_nor_release_changes_what_runs(scene: Scene, words: str) -> None:
    before = scene.own(words)
    status = scene.status("h1")
    assert status is not None
    assert status.cpu_mhz == 700.0  # what it is entered with; nothing was set
    assert scene.live() == before
    scene.another_agent()
    assert scene.live() == before
    scene.release()
    assert scene.live() == before


def test_what_an_owner_has_set_on_what_runs_alone_stays(scene: Scene) -> None:
    scene.own(CAPPED)
    scene.release()
    domain = scene.made.drift("h1").connection().lookupByName(PET)
    domain.setSchedulerParametersFlags({"cpu_shares": 77, "vcpu_quota": 20_000}, 1)
    before = scene.live()
    scene.adopt_with()
    scene.release()
    assert scene.live() == before


@pytest.mark.parametrize("words", TUNES.values(), ids=TUNES)
def test_a_decision_changes_the_weight_alone_until_the_release(scene: Scene, words: str) -> None:
    before, defined = scene.own(words), scene.definition("h1")
    shares, *limits = scene.tunes()
    scene.ok(ActionKind.SET_CPU, expects=1, cpu_mhz=DECIDED_MHZ)
    assert scene.tunes() == ("900", *limits)
    assert scene.tunes(text=scene.definition("h1")) == scene.tunes(text=defined)
    scene.another_agent()
    assert scene.tunes() == ("900", *limits)
    scene.release()
    assert scene.tunes() == (shares or str(DEFAULT_SHARES), *limits)  # libvirt has no call that removes a weight
    assert shares is None or scene.live() == before


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("call", ["setSchedulerParametersFlags", "setMetadata"])
def test_a_weight_that_is_not_set_after_all_is_the_owners_again(scene: Scene, call: str, at: int) -> None:
    before = scene.own(CAPPED)
    scene.made.cluster.fail(Fault(call, "raise", 9, host="h1", times=1 + at))
    scene.do(ActionKind.SET_CPU, "h1", expects=1, cpu_mhz=DECIDED_MHZ)
    scene.settle()
    scene.another_agent()
    meta = metadata.read(ET.fromstring(scene.definition("h1")).find(f"metadata/{metadata.TAG}"))
    assert meta is not None
    assert scene.live() == before or meta.weighed  # whatever was changed is noted
    scene.made.cluster.script.clear()
    scene.release()
    assert scene.live() == before


@pytest.mark.parametrize("words", TUNES.values(), ids=TUNES)
@pytest.mark.parametrize("decided", [False, True], ids=["as it was", "with another weight"])
def test_a_migration_takes_quota_and_period_along(scene: Scene, words: str, decided: bool) -> None:
    before = scene.own(words)
    shares, *limits = scene.tunes()
    if decided:
        scene.ok(ActionKind.SET_CPU, expects=1, cpu_mhz=DECIDED_MHZ)
    scene.ok(ActionKind.MIGRATE, expects=1, generation=2, to_node="h2")
    assert scene.executing() == ["h2"]
    assert scene.tunes("h2") == ("900" if decided else shares, *limits)
    scene.release("h2", expects=2)
    assert decided or scene.live("h2") == before
    assert scene.tunes("h2")[1:] == tuple(limits)


@pytest.mark.parametrize("words", TUNES.values(), ids=TUNES)
def test_a_migration_that_fails_leaves_the_cpu_as_it_was(scene: Scene, words: str) -> None:
    before = scene.own(words)
    scene.made.cluster.fail(Fault("migrateToURI3", "raise", 9, host="h1"))
    answer = scene.do(ActionKind.MIGRATE, "h1", expects=1, generation=2, to_node="h2")
    assert answer.outcome is not Outcome.OK
    assert scene.live() == before


@pytest.mark.parametrize("decided", [False, True], ids=["as it was", "with another weight"])
def test_so_do_a_resume_and_a_start(scene: Scene, decided: bool) -> None:
    before = scene.own(CAPPED)
    shares, *limits = scene.tunes()
    if decided:
        scene.ok(ActionKind.SET_CPU, expects=1, cpu_mhz=DECIDED_MHZ)
    expected = ("900" if decided else shares, *limits)
    scene.ok(ActionKind.SUSPEND, expects=1)
    scene.ok(ActionKind.RESUME, expects=1, generation=2, disks=0)
    assert scene.tunes() == expected
    scene.ok(ActionKind.STOP, expects=2)
    spec = VmSpec(PET, 3, 1, memory_mib=96, vcpus=1, cpu_mhz=DECIDED_MHZ)
    scene.ok(ActionKind.START, expects=2, generation=3, spec=spec)
    assert scene.tunes() == expected
    scene.release(expects=3)
    assert scene.live() == before


def test_a_restart_on_another_host_keeps_quota_and_period(tmp_path: Path) -> None:
    with fakes(tmp_path, count=3, durations_s={}) as made:
        scene = FailoverScene(made)
        scene.xml = FailoverScene.xml.replace("<cputune><shares>2048</shares></cputune>", CAPPED)
        text = lost(scene)
        assert scene.start_elsewhere(text, stays_off=True).outcome is Outcome.OK
        live = ET.fromstring(scene.made.drift("h2").connection().lookupByName(PET).XMLDesc(0))
        assert [live.findtext(f"cputune/{key}") for key in ("shares", "period", "quota")] == ["2048", "50000", "30000"]


# --- the end of a guest ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stays_off", [False, True], ids=["domain", "leave-off"])
@pytest.mark.parametrize("poweroff", ["destroy", "restart", "preserve"])
def test_a_guest_that_shuts_down_stays_off_or_does_what_its_definition_says(
    scene: Scene, poweroff: str, stays_off: bool
) -> None:
    before, stated = (
        scene.own(ENDS.format(poweroff=poweroff, crash="destroy"), stays_off=stays_off),
        (poweroff, "destroy"),
    )
    assert scene.ends(flags=2) == stated
    assert stays_off or scene.live() == before
    status = scene.status("h1")
    assert status is not None
    assert status.stays_off is stays_off
    assert scene.made.drift("h1").guest_ends(PET)
    scene.settle()
    after = scene.status("h1")
    assert after is not None
    assert after.state is (VmState.RUNNING if poweroff == "restart" and not stays_off else VmState.ENDED)
    assert scene.ends(flags=2) == stated


@pytest.mark.parametrize("stays_off", [False, True], ids=["domain", "leave-off"])
@pytest.mark.parametrize(("crash", "left"), [("restart", "destroy"), ("coredump-restart", "coredump-destroy")])
def test_so_does_one_that_crashes(scene: Scene, crash: str, left: str, stays_off: bool) -> None:
    scene.own(ENDS.format(poweroff="destroy", crash=crash), stays_off=stays_off)
    assert scene.ends() == ("destroy", left if stays_off else crash)
    scene.made.drift("h1").panic(PET)
    scene.settle()
    status = scene.status("h1")
    assert status is not None
    assert (status.state in LIVE_STATES) is not stays_off


def test_the_end_is_the_definitions_again_with_other_terms_and_at_the_release(scene: Scene) -> None:
    before = scene.own(ENDS.format(poweroff="restart", crash="restart"), stays_off=True)
    assert scene.ends() == ("destroy", "destroy")
    scene.adopt_with(expects=1)
    assert scene.live() == before
    scene.adopt_with(expects=1, stays_off=True)
    assert scene.ends() == ("destroy", "destroy")
    scene.release()
    assert scene.live() == before


def test_whoever_starts_or_moves_it_it_stays_off(scene: Scene) -> None:
    scene.own(ENDS.format(poweroff="restart", crash="restart"), stays_off=True)
    scene.ok(ActionKind.MIGRATE, expects=1, generation=2, to_node="h2")
    assert (scene.ends("h2"), scene.ends("h2", 2)) == (("destroy", "destroy"), ("restart", "restart"))
    scene.ok(ActionKind.MIGRATE, "h2", expects=2, generation=3, to_node="h1")
    assert scene.made.drift("h1").guest_ends(PET)
    scene.settle()
    scene.made.drift("h1").start(PET)  # by hand
    scene.until(lambda: scene.ends() == ("destroy", "destroy"))
    assert scene.made.drift("h1").guest_ends(PET)
    scene.settle()
    spec = VmSpec(PET, 4, 1, memory_mib=96, vcpus=1, cpu_mhz=700.0, stays_off=True)
    scene.ok(ActionKind.START, expects=3, generation=4, spec=spec)
    assert (scene.ends(), scene.ends(flags=2)) == (("destroy", "destroy"), ("restart", "restart"))


def test_an_adoption_that_fails_leaves_the_end_as_it_was(scene: Scene) -> None:
    before = scene.own(ENDS.format(poweroff="restart", crash="restart"))
    scene.made.cluster.fail(Fault("setLifecycleAction", "raise", 9, host="h1", times=2))
    spec = VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=700.0, stays_off=True)
    assert scene.do(ActionKind.ADOPT, "h1", generation=1, expects=1, spec=spec).outcome is not Outcome.OK
    status = scene.status("h1")
    assert status is not None
    assert (scene.live(), status.stays_off) == (before, False)
