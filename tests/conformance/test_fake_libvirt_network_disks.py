"""Network disks are verified on the target: a pool of the same name may be of another cluster, and a server that the
configuration names may not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shared.values.actions import ActionKind, Outcome
from shared.values.migration import lacks, sentence
from sim_backend.fake_libvirt.connection import add_pool
from sim_backend.fake_libvirt.hardware import Hardware
from tests.conformance.fake_libvirt_rig import fakes
from tests.conformance.test_fake_libvirt_adopted import PET, Hosts
from tests.support.host_shapes import FakeMachine

RBD = "rbd:ceph@mon1,mon2"
NETWORK = "<disk type='network'><source protocol='{}' name='{}'>{}</source><target dev='vda'/></disk>"
MONITORS = "<host name='mon2' port='6789'/><host name='mon1'/>"
VOLUME = "<disk type='volume'><source pool='ceph' volume='a'/><target dev='vda'/></disk>"
NBD = NETWORK.format("nbd", "x", "<host name='store1' port='10809'/>")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with fakes(tmp_path, count=3, durations_s={}) as made:
        for name, monitors in (("h1", ("mon1", "mon2")), ("h2", ("mon2", "mon1")), ("h3", ("mon1", "mon3"))):
            host = made.cluster.hosts[name]
            add_pool(host, "ceph", "", monitors)
            reached = f"rbd:ceph@{','.join(sorted(monitors))}"
            host.hardware = replace(host.hardware, reached=(reached, "nbd:store1:10809"))
            made.drivers[name].close()
            made.drivers[name] = made.driver(name)
            made.drivers[name].inventory()
        yield Hosts(made)


def adopt(hosts: Hosts, disk: str) -> tuple[str, ...]:
    """Somebody's VM with this disk is adopted on h1; what it needs of storage."""
    xml = f"<domain type='qemu'><name>{PET}</name><memory>98304</memory><vcpu>1</vcpu><os><type>hvm</type></os>"
    drift = hosts.made.drift("h1")
    drift.define(f"{xml}<devices>{disk}</devices></domain>")
    drift.connection().lookupByName(PET).create()
    hosts.settle()
    hosts.adopt()
    status = hosts.status("h1")
    assert status is not None
    return tuple(need for need in status.migration_needs if need.startswith("disk="))


def has(hosts: Hosts, name: str) -> tuple[str, ...]:
    hosts.settle()
    return hosts.made.drivers[name].inventory().migration_has


def is_shown(hosts: Hosts, needs: tuple[str, ...]) -> bool:
    """Whether h2 has what is needed, once it has looked again."""
    hosts.made.drivers["h2"]._try_storage()
    return lacks(has(hosts, "h2"), needs) == ()


@pytest.mark.parametrize("disk", [NETWORK.format("rbd", "ceph/a", MONITORS), VOLUME], ids=["network", "volume"])
def test_a_pool_of_the_same_name_in_another_cluster_verifies_nothing(hosts: Hosts, disk: str) -> None:
    needs = adopt(hosts, disk)

    assert needs == (f"disk={RBD}",)
    assert [lacks(has(hosts, name), needs) for name in ("h2", "h3")] == [(), needs]
    assert sentence(needs[0], "h3") == f"network disk {RBD} was not verified on h3"
    answer = hosts.do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h3")
    assert answer.outcome is Outcome.FAILED, "libvirt finds out when it is under way"
    hosts.settle()
    assert hosts.do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2").outcome is Outcome.OK


def test_a_server_of_the_configuration_is_reached_while_it_answers(hosts: Hosts) -> None:
    made, servers = hosts.made, set[tuple[str, int]]()
    needs = adopt(hosts, NBD)
    made.drivers["h2"].close()
    made.drivers["h2"] = made.driver("h2", None, FakeMachine(Hardware(), servers), ("nbd:store1:10809",))
    made.drivers["h3"].close()
    made.drivers["h3"] = made.driver("h3", None, FakeMachine(Hardware(), servers), ("nbd:store1",))
    assert needs == ("disk=nbd:store1:10809",)
    assert [lacks(has(hosts, name), needs) for name in ("h2", "h3")] == [needs, ()]

    for answers in (True, False, True):
        (servers.add if answers else servers.discard)(("store1", 10_809))
        hosts.until(lambda wanted=answers: is_shown(hosts, needs) is wanted)  # type: ignore[misc]
