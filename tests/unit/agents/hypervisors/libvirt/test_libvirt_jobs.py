"""Backups, block jobs and snapshots that somebody has begun keep a VM where it is, for as long as they last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agents.hypervisors.libvirt.domain_xml import Facts, facts_of
from agents.hypervisors.libvirt.libvirt_jobs import jobs_on, outdated
from agents.hypervisors.libvirt.statistics import Counters, ObservedDomain
from shared.values.vms import VmState
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import Err, libvirtError
from sim_backend.fake_libvirt.connection import virConnect
from sim_backend.fake_libvirt.faults import Fault
from sim_backend.fake_libvirt.state import Dom
from tests.support.domain_shapes import FRAGMENTS, domain

XML = domain("pet", [part for part in FRAGMENTS if part.name in ("shared-disk", "local-disk")])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(shared_folders=("/shared",))
    host = made.add_host("h1")
    for path in ("/shared/volumes/a.qcow2", "/pool/own.qcow2"):
        host.files.put(path, b"")
    made.module("h1").open().defineXML(XML).create()
    yield made
    made.close()


def seen(cluster: Cluster) -> tuple[virConnect, Dom, Facts]:
    conn = cluster.module("h1").open()
    (dom,) = cluster.hosts["h1"].domains.values()
    return conn, dom, facts_of(conn.lookupByName("pet").XMLDesc(0))


def look(conn: virConnect, facts: Facts) -> tuple[tuple[str, ...], bool]:
    found, changed = jobs_on(conn, libvirtError, [ObservedDomain(facts, VmState.RUNNING, Counters())])
    return found.get(facts.uuid, ()), facts.uuid in changed


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
    assert look(conn, facts) == (expected, False)


def test_one_that_has_lost_its_snapshots_is_read_again(cluster: Cluster) -> None:
    conn, _, facts = seen(cluster)
    assert look(conn, replace(facts, needs=("snapshots=carried",))) == ((), True)


def test_an_adopted_one_with_other_autostart_or_snapshots_is_read_again(cluster: Cluster) -> None:
    conn, dom, facts = seen(cluster)

    def look_again() -> bool:
        return bool(outdated(conn, libvirtError, [ObservedDomain(facts, VmState.RUNNING, Counters())]))

    assert not look_again()
    dom.autostart = True
    assert look_again()
    dom.autostart, dom.snapshots = False, 1
    assert look_again()
    cluster.fail(Fault("autostart", "raise", Err.OPERATION_TIMEOUT))
    assert not look_again(), "what does not answer is left for the reading of all domains"


def test_what_does_not_answer_or_is_another_has_no_job_that_is_known(cluster: Cluster) -> None:
    conn, dom, facts = seen(cluster)
    dom.jobs = ["backup"]
    cluster.fail(Fault("jobInfo", "raise", Err.OPERATION_TIMEOUT))
    assert look(conn, facts) == ((), False)
    assert look(conn, replace(facts, uuid="another")) == ((), False)
    assert look(conn, replace(facts, name="gone")) == ((), False)
    assert look(conn, facts)[0] == ("bound=backup-job",)


def test_a_job_shows_among_the_needs_of_a_managed_vm(cluster: Cluster) -> None:
    _, _, facts = seen(cluster)
    one = ObservedDomain(facts, VmState.RUNNING, Counters(), jobs=("bound=backup-job",))
    assert one.status().migration_needs == (), "of VMs that are not managed nothing is needed"
    assert one._needs(managed=True) == tuple(sorted((*facts.needs, "bound=backup-job")))
