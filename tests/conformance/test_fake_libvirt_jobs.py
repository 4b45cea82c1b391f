"""A backup that somebody has begun shows among a VM's needs, and is gone with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.hypervisors.libvirt.codes import Migrate
from shared.values.actions import ActionKind, Outcome
from sim_backend.fake_libvirt.codes import libvirtError
from tests.conformance.fake_libvirt_rig import fakes
from tests.conformance.test_fake_libvirt_adopted import PET, Hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with fakes(tmp_path, count=2, durations_s={}, shared=False) as made:
        yield Hosts(made)


def needs(hosts: Hosts) -> set[str]:
    hosts.made.drivers["h1"]._look_for_jobs()
    status = hosts.status("h1")
    assert status is not None
    return {need for need in status.migration_needs if need.startswith(("bound=", "snapshots="))}


def test_what_somebody_else_does_to_a_vm_keeps_it_for_as_long_as_it_lasts(hosts: Hosts) -> None:
    hosts.own_vm()
    hosts.adopt()
    assert needs(hosts) == set()
    with hosts.made.cluster.lock:
        dom = hosts.made.cluster.hosts["h1"].named(PET)
        assert dom is not None
        dom.jobs, dom.block_jobs = ["backup"], ["vdb"]
    assert needs(hosts) == {"bound=backup-job", "bound=block-job:on vdb"}
    domain = hosts.made.drift("h1").connection().lookupByName(PET)
    with pytest.raises(libvirtError, match="backup is already running"):
        domain.migrateToURI3("qemu+tls://h2/system", {}, Migrate.LIVE | Migrate.PEER2PEER | Migrate.NON_SHARED_DISK)
    dom.jobs, dom.block_jobs, dom.snapshots = [], [], 1
    assert needs(hosts) == {"snapshots=carried"}
    dom.snapshots = 0
    assert needs(hosts) == set()
    assert hosts.do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2").outcome is Outcome.OK


@pytest.mark.parametrize(
    ("jobs", "block_jobs", "snapshots", "refused"),
    [
        (["backup"], [], 0, (Outcome.BUSY, "a backup is in progress", {"bound=backup-job"})),
        ([], ["vdb"], 0, (Outcome.BUSY, "a block job is in progress on vdb", {"bound=block-job:on vdb"})),
        ([], [], 1, (Outcome.UNFIT, "has snapshots, with which libvirt migrates no VM", {"snapshots=carried"})),
    ],
)
def test_what_has_begun_since_the_last_look_is_seen_before_a_migration_begins(
    hosts: Hosts, jobs: list[str], block_jobs: list[str], snapshots: int, refused: tuple[Outcome, str, set[str]]
) -> None:
    hosts.own_vm()
    hosts.adopt()
    assert needs(hosts) == set()
    with hosts.made.cluster.lock:
        dom = hosts.made.cluster.hosts["h1"].named(PET)
        assert dom is not None
        dom.jobs, dom.block_jobs, dom.snapshots = jobs, block_jobs, snapshots

    answer = hosts.do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")

    status = hosts.status("h1")
    assert status is not None
    shown = {need for need in status.migration_needs if need.startswith(("bound=", "snapshots="))}
    assert (answer.outcome, answer.detail, shown) == refused
    assert not hosts.is_defined("h2")
    assert hosts.made.cluster.hosts["h2"].files.get("/pool/pet.qcow2") is None


def test_vms_that_are_not_managed_have_no_such_needs(hosts: Hosts) -> None:
    hosts.own_vm()
    with hosts.made.cluster.lock:
        dom = hosts.made.cluster.hosts["h1"].named(PET)
        assert dom is not None
        dom.jobs = ["backup"]
    assert needs(hosts) == set()
