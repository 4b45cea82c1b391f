"""200 domains by 40 hosts: what we say can go, goes; what cannot has a sentence that says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from agents.hypervisors.libvirt.codes import Migrate
from agents.hypervisors.libvirt.domain_xml import Facts, facts_of
from agents.hypervisors.libvirt.host_features import default_page_kib
from agents.hypervisors.libvirt.migration_needs import Surroundings
from daemons.controller.state.cluster import Cluster as Known
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.migration_fit import lacking_on, why_not_on
from daemons.controller.state.nodes import NodeEntry
from shared.protocol.messages import Report
from shared.values.migration import KINDS, of_kind, parted
from shared.values.nodes import NodeSample
from shared.values.vms import VmState, VmStatus
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import libvirtError
from sim_backend.fake_libvirt.domain import virDomain
from sim_backend.fake_libvirt.host import Host
from tests.support.controller_harness import job
from tests.support.domain_shapes import FRAGMENTS, Shape, domain, shapes
from tests.support.host_shapes import SHARED, hosts, reported

HOSTS = 40
RESIDENT_MIB = 1_024  # of hugepages, on every third host
STRICT = {"bound", "media", "shared", "storage"}  # of these the stand-in refuses less than we do
PARTS = {part.name: part for part in FRAGMENTS}


@dataclass(slots=True)
class World:
    """The hosts, and what the controller knows of them."""

    cluster: Cluster
    hosts: list[Host]
    known: Known
    here: Surroundings

    def facts(self, shape: Shape) -> Facts:
        return facts_of(shape.xml, self.here)

    def instance(self, name: str, facts: Facts, memory_mib: int) -> Instance:
        entry = JobEntry(job(name, memory_mib=memory_mib), request="r", order=0, accepted_s=0.0)
        instance = Instance(name, entry, 0.0, may_run_on={"source"})
        self.known.note_needs(instance, facts.needs)
        return instance


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    cluster = Cluster(shared_folders=("/shared",))
    made = hosts(cluster, HOSTS)
    residents = {host.name for at, host in enumerate(made) if at % 3 == 1 and host.hardware.cells}
    known = Known(0.0)
    for host in made:
        vms: tuple[VmStatus, ...] = ()
        if host.name in residents:
            vms = (_reside(cluster, host),)
        report = Report(host.name, "boot", 1, clock_s=0.0, term=1, sample=NodeSample(), vms=vms)
        known.nodes[host.name] = NodeEntry(host.name, inventory=reported(cluster, host), last=report)
    source = known.nodes["source"].inventory
    assert source is not None
    here = Surroundings(
        of_kind(source.migration_has, "cpu"),
        frozenset(source.migration_has),
        default_page_kib(source.hugepages),
        lambda path: not path.startswith(f"{SHARED}/"),
    )
    yield World(cluster, made, known, here)
    cluster.close()


def _reside(cluster: Cluster, host: Host) -> VmStatus:
    """An unmanaged VM with hugepages, where there are that many."""
    xml = domain("resident", [PARTS["pages-2m"]], machine=host.hardware.machines[0], memory_mib=RESIDENT_MIB)
    conn = cluster.module(host.name).open()
    try:
        conn.defineXML(xml).create()
    except libvirtError:
        return VmStatus("resident", VmState.ENDED, managed=False)
    finally:
        conn.close()
    return VmStatus("resident", VmState.RUNNING, managed=False, migration_needs=facts_of(xml).needs)


def _try(world: World, shape: Shape, name: str, local: bool) -> Mapping[str, str]:
    """Migrate a domain from the source to each host in turn; the hosts' words ("": it went)."""
    source = world.cluster.module("source").open()
    said: dict[str, str] = {}
    for host in world.hosts[1:]:
        dom: virDomain = source.defineXML(shape.xml)
        dom.create()
        flags = Migrate.LIVE | Migrate.PEER2PEER | (Migrate.NON_SHARED_DISK if local else Migrate.UNSAFE)
        try:
            dom.migrateToURI3(f"qemu+tls://{host.name}/system", {}, flags)
            said[host.name] = ""
            world.cluster.module(host.name).open().lookupByName(name).destroy()
        except libvirtError as problem:
            said[host.name] = str(problem)
            dom.destroy()
        dom.undefine()
        if local:
            for path in ("/pool/own.qcow2", "/srv/vm/own.raw"):
                host.files.remove(path)
                for pool in host.pools.values():
                    pool.volumes.pop(path.rpartition("/")[2], None)
    source.close()
    return said


def test_what_may_go_goes_and_what_may_not_has_a_reason(world: World) -> None:
    went: Counter[str] = Counter()
    stayed: Counter[str] = Counter()
    strict: Counter[str] = Counter()
    for at, shape in enumerate(shapes()):
        name, facts = f"d{at}", world.facts(shape)
        local = any(need.startswith("storage=") for need in facts.needs)
        instance = world.instance(name, facts, shape.memory_mib)
        said = _try(world, shape, name, local)
        for host in world.hosts[1:]:
            lack = lacking_on(world.known, instance, host.name)
            if not lack:
                assert said[host.name] == "", (shape.fragments, host.name, facts.needs)
                went.update({parted(need)[0] for need in instance.needs})
                continue
            reasons = why_not_on(world.known, instance, host.name)
            assert len(reasons) == len(lack)
            assert all(len(reason) > 10 and "{" not in reason for reason in reasons), reasons
            kinds = {parted(need)[0] for need in lack}
            stayed.update(kinds)
            if said[host.name] == "":
                strict.update(kinds)
    kinds = KINDS.keys() - {"arch", "snapshots", "tls"}  # no host differs in these
    assert kinds - {"bound"} <= went.keys(), "of each kind some went"
    assert kinds <= stayed.keys(), "of each kind some stayed"
    assert strict.keys() <= STRICT, "what went nevertheless was kept by nothing else"
