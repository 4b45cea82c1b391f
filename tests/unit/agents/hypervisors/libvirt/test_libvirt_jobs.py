"""Backups, block jobs and snapshots that somebody has begun keep a VM where it is, for as long as they last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agents.hypervisors.libvirt.domain_xml import Facts
from agents.hypervisors.libvirt.errors import Unavailable
from agents.hypervisors.libvirt.libvirt_jobs import jobs_on, outdated
from agents.hypervisors.libvirt.statistics import Counters, ObservedDomain, facts_of
from shared.values.vms import VmState
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import Err, libvirtError
from sim_backend.fake_libvirt.connection import virConnect
from sim_backend.fake_libvirt.drift import HostDrift
from sim_backend.fake_libvirt.faults import Fault
from sim_backend.fake_libvirt.state import Dom
from tests.support.domain_shapes import FRAGMENTS, domain

ADOPTED = '<metadata><t:vm xmlns:t="https://trimtab.dev/libvirt/1" generation="1" attempt="1"/></metadata><devices>'
DISKS = [part for part in FRAGMENTS if part.name in ("shared-disk", "local-disk", "vnc")]
XML = domain("pet", DISKS).replace("<devices>", ADOPTED)
DISK = "/shared/volumes/a.qcow2"
NO_SUPPORT = 3  # virErrorNumber


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(shared_folders=("/shared",))
    host = made.add_host("h1")
    for path in (DISK, "/pool/own.qcow2"):
        host.files.put(path, b"")
    made.module("h1").open().defineXML(XML).create()
    yield made
    made.close()


def seen(cluster: Cluster) -> tuple[virConnect, Dom, Facts]:
    conn = cluster.module("h1").open()
    (dom,) = cluster.hosts["h1"].domains.values()
    return conn, dom, facts_of(conn.lookupByName("pet"), libvirtError)


def look(conn: virConnect, facts: Facts) -> tuple[str, ...]:
    found = jobs_on(conn, libvirtError, [ObservedDomain(facts, VmState.RUNNING, Counters())])
    return found.get(facts.uuid, ())


def is_outdated(conn: virConnect, facts: Facts) -> bool:
    return bool(outdated(conn, libvirtError, [ObservedDomain(facts, VmState.RUNNING, Counters())]))


@pytest.mark.parametrize(
    ("jobs", "block_jobs", "snapshots", "expected"),
    [
        ([], [], 0, ()),
        (["backup"], [], 0, ("bound=backup-job",)),
        (["snapshot"], [], 0, ("bound=snapshot-job",)),
        ([], ["vdb"], 0, ("bound=block-job:on vdb",)),
        ([], ["vdz"], 0, ()),
        ([], [], 2, ("snapshots=carried",)),
        (["backup"], ["vda", "vdb"], 0, ("bound=backup-job", "bound=block-job:on vda", "bound=block-job:on vdb")),
    ],
)
def test_jobs_are_found(
    cluster: Cluster, jobs: list[str], block_jobs: list[str], snapshots: int, expected: tuple[str, ...]
) -> None:
    conn, dom, facts = seen(cluster)
    dom.jobs, dom.block_jobs, dom.snapshots = jobs, block_jobs, snapshots
    assert look(conn, facts) == expected


@pytest.mark.parametrize(("key", "value"), [("autostart", True), ("snapshots", 1), ("checkpoints", 1)])
def test_an_adopted_one_of_which_no_event_has_told_is_read_again(cluster: Cluster, key: str, value: object) -> None:
    conn, dom, facts = seen(cluster)
    assert not is_outdated(conn, facts)
    before = getattr(dom, key)
    setattr(dom, key, value)
    assert is_outdated(conn, facts)
    changed = seen(cluster)[2]
    assert not is_outdated(conn, changed)
    setattr(dom, key, before)
    assert is_outdated(conn, changed)
    cluster.fail(Fault("autostart", "raise", Err.OPERATION_TIMEOUT))
    assert not is_outdated(conn, changed), "what does not answer is left for the reading of all domains"


def test_an_adopted_one_whose_definition_was_edited_is_read_again(cluster: Cluster) -> None:
    """Also where only the definition was, and where only a password was."""
    conn, dom, facts = seen(cluster)
    HostDrift(cluster, "h1").snapshot_disk("pet", DISK, f"{DISK}.new", live=False)
    assert is_outdated(conn, facts)
    facts = seen(cluster)[2]
    assert not is_outdated(conn, facts)
    assert dom.config is not None
    display = dom.config.tree.find("devices/graphics")
    assert display is not None
    display.set("passwd", "s3cret")
    assert is_outdated(conn, facts)


def test_a_libvirt_without_checkpoints_is_read_all_the_same(cluster: Cluster) -> None:
    conn, dom, _ = seen(cluster)
    dom.checkpoints = 1
    cluster.fail(Fault("listAllCheckpoints", "raise", NO_SUPPORT))
    assert "checkpoints=" not in facts_of(conn.lookupByName("pet"), libvirtError).host_files
    assert "checkpoints=" in facts_of(conn.lookupByName("pet"), libvirtError).host_files
    cluster.fail(Fault("listAllCheckpoints", "raise", Err.OPERATION_TIMEOUT))
    with pytest.raises(Unavailable):
        facts_of(conn.lookupByName("pet"), libvirtError)


def test_what_does_not_answer_or_is_another_has_no_job_that_is_known(cluster: Cluster) -> None:
    conn, dom, facts = seen(cluster)
    dom.jobs = ["backup"]
    cluster.fail(Fault("jobInfo", "raise", Err.OPERATION_TIMEOUT))
    assert look(conn, facts) == ()
    assert look(conn, replace(facts, uuid="another")) == ()
    assert look(conn, replace(facts, name="gone")) == ()
    assert look(conn, facts) == ("bound=backup-job",)


def test_a_job_shows_among_the_needs_of_a_managed_vm(cluster: Cluster) -> None:
    _, _, facts = seen(cluster)
    stranger = replace(facts, meta=None)
    one = ObservedDomain(stranger, VmState.RUNNING, Counters(), jobs=("bound=backup-job",))
    assert one.status().migration_needs == (), "of VMs that are not managed nothing is needed"
    assert one._needs(managed=True) == tuple(sorted((*facts.needs, "bound=backup-job")))
