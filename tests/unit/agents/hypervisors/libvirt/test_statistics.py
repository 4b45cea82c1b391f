"""The driver `libvirt` reads many VMs by one call, and asks of a VM anew only when something was said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.capacity import Cpu
from agents.hypervisors.libvirt.codes import DomainState, Error, PausedReason, ShutoffReason
from agents.hypervisors.libvirt.in_progress import status_while
from agents.hypervisors.libvirt.statistics import Reader
from shared.values.vms import VmState

COUNT = 200


class Domain:
    """One that runs; `asked` counts the calls that libvirtd would see."""

    def __init__(self, number: int) -> None:
        self.vm, self.uuid = f"job#{number}", f"uuid-{number}"
        self.generation = 1
        self.asked = 0

    def name(self) -> str:
        return self.vm

    def UUIDString(self) -> str:  # noqa: N802  libvirt's name
        return self.uuid

    def XMLDesc(self, flags: int = 0) -> str:  # noqa: ARG002, N802
        self.asked += 1
        own = f'<t:vm xmlns:t="https://trimtab.dev/libvirt/1" generation="{self.generation}" attempt="1" template="t"/>'
        size = "<memory unit='MiB'>96</memory><vcpu>1</vcpu>"
        return f"<domain><name>{self.vm}</name><uuid>{self.uuid}</uuid>{size}<metadata>{own}</metadata></domain>"


class Node:
    """A connection to as many."""

    def __init__(self) -> None:
        self.domains = [Domain(number) for number in range(COUNT)]
        self.asked = 0
        self.busy: set[str] = set()
        self.coming: set[str] = set()
        self.starting: set[str] = set()
        self.cpu_ns = 5_000_000_000
        self.disk = "/pool/a"

    def getAllDomainStats(self, stats: int, flags: int) -> Sequence[tuple[Domain, Mapping[str, Any]]]:  # noqa: ARG002, N802
        self.asked += 1
        row: dict[str, Any] = {"state.state": 1, "vcpu.0.time": self.cpu_ns, "block.count": 1, "block.0.rd.bytes": 7}
        row |= {"block.0.name": "vda", "block.0.path": self.disk}
        others: dict[str, Mapping[str, Any]] = {vm: {"state.state": 1} for vm in self.busy}
        for vms, reason in ((self.coming, PausedReason.MIGRATION), (self.starting, PausedReason.STARTING_UP)):
            others |= {key: {"state.state": DomainState.PAUSED, "state.reason": reason} for key in vms}
        return [(one, others.get(one.vm, row)) for one in self.domains]

    @property
    def calls(self) -> int:
        return self.asked + sum(one.asked for one in self.domains)


class Refusal(Exception):
    """What libvirt says of the job of a VM that comes from another host."""

    def __init__(self, text: str, number: int = Error.OPERATION_UNSUPPORTED) -> None:
        super().__init__(text)
        self.number = number

    def get_error_code(self) -> int:
        return self.number


class Arriving(Domain):
    """One that has all its memory and its definition here, and does not run yet."""

    def isPersistent(self) -> int:  # noqa: N802
        return 1

    def jobInfo(self) -> Sequence[int]:  # noqa: N802
        raise Refusal("migration statistics are available only on the source host")


class Leaving(Arriving):
    """One that was moved away after it was listed."""

    def jobInfo(self) -> Sequence[int]:  # noqa: N802
        raise Refusal("domain is not running", Error.OPERATION_INVALID)

    def state(self, flags: int = 0) -> Sequence[int]:  # noqa: ARG002
        return DomainState.SHUTOFF, ShutoffReason.MIGRATED


class Arrived(Arriving):
    """One whose migration has ended, and that runs, since it was listed."""

    now = int(DomainState.RUNNING), 2  # VIR_DOMAIN_RUNNING_MIGRATED

    def jobInfo(self) -> Sequence[int]:  # noqa: N802
        return [0] * 12

    def state(self, flags: int = 0) -> Sequence[int]:  # noqa: ARG002
        return self.now


class Restored(Arrived):
    """One that was saved paused, and restored."""

    now = int(DomainState.PAUSED), int(PausedReason.MIGRATION)


def read(reader: Reader, node: Node) -> Any:
    return reader.read(cast(Connection, node))


def test_a_report_takes_one_call() -> None:
    node, reader = Node(), Reader(OSError, Cpu(1_000.0))
    found = read(reader, node)
    assert len(found) == COUNT
    assert all(seen.state is VmState.RUNNING and seen.counters.cpu_time_s == 5.0 for seen in found.values())
    assert node.calls == COUNT + 1
    read(reader, node)
    assert node.calls == COUNT + 2


def test_what_was_edited_is_read_again() -> None:
    node, reader = Node(), Reader(OSError, Cpu(1_000.0))
    read(reader, node)
    node.domains[3].generation = 2
    assert read(reader, node)["job#3"].generation == 1
    reader.forget("uuid-3")
    assert read(reader, node)["job#3"].generation == 2
    assert node.calls == COUNT + 4


def test_one_whose_disks_are_others_is_read_again() -> None:
    """libvirt sends no event when a disk gets an overlay, or is attached; of one that is busy it may not tell."""
    node, reader = Node(), Reader(OSError, Cpu(1_000.0))
    read(reader, node)
    for one in node.domains:
        one.generation = 2
    node.busy = {"job#0"}
    assert read(reader, node)["job#0"].generation == 1
    node.disk, node.busy = "/pool/a.snapshot", {"job#0"}
    found = read(reader, node)
    assert (found["job#0"].generation, found["job#1"].generation) == (1, 2)
    asked, node.busy = node.calls, set()
    assert read(reader, node)["job#0"].generation == 2
    assert node.calls == asked + 2, "the others have been read"


def test_counters_of_one_that_is_busy_stay() -> None:
    """libvirt keeps nobody waiting for a VM that is being moved, and then tells less of it."""
    node, reader = Node(), Reader(OSError, Cpu(1_000.0))
    read(reader, node)
    node.busy = {"job#0"}
    node.cpu_ns *= 2
    found = read(reader, node)
    assert found["job#0"].status().cpu_time_s == 5.0
    assert found["job#1"].status().cpu_time_s == 10.0
    assert found["job#0"].status().disk_read_bytes == 7


def test_what_is_gone_is_forgotten() -> None:
    node, reader = Node(), Reader(OSError, Cpu(1_000.0))
    read(reader, node)
    gone = node.domains.pop()
    assert gone.vm not in read(reader, node)
    node.domains.append(gone)
    node.cpu_ns = 1_000_000_000
    assert read(reader, node)[gone.vm].counters.cpu_time_s == 1.0


def test_one_that_has_come_and_does_not_run_yet_is_still_coming() -> None:
    """The others on the node are read all the same."""
    node, reader = Node(), Reader(Refusal, Cpu(1_000.0))
    node.domains[0] = Arriving(0)
    node.coming = {"job#0"}
    found = read(reader, node)
    assert found["job#0"].state is VmState.INCOMING
    assert len(found) == COUNT


def test_one_that_has_arrived_since_it_was_listed_is_not_paused() -> None:
    """A pause would count as made by its owner: reconciliation would leave it alone."""
    node, reader = Node(), Reader(Refusal, Cpu(1_000.0))
    node.domains[0], node.domains[1] = Arrived(0), Restored(1)
    node.coming = {"job#0", "job#1"}
    found = read(reader, node)
    assert (found["job#0"].state, found["job#1"].state) == (VmState.RUNNING, VmState.PAUSED)


def test_one_that_others_start_is_busy_with_that() -> None:
    node, reader = Node(), Reader(Refusal, Cpu(1_000.0))
    node.domains[1] = Arriving(1)
    node.starting, node.coming = {"job#0"}, {"job#1"}
    found = read(reader, node)
    seen = [status_while(found[vm], None) for vm in ("job#0", "job#1", "job#2")]
    assert [(one.state, one.busy) for one in seen] == [
        (VmState.INCOMING, "start"),
        (VmState.INCOMING, "migrate"),
        (VmState.RUNNING, ""),
    ]


def test_one_that_left_while_it_was_read_is_as_it_is_now() -> None:
    """The others on the node are read all the same."""
    node, reader = Node(), Reader(Refusal, Cpu(1_000.0))
    node.domains[0] = Leaving(0)
    node.coming = {"job#0"}
    found = read(reader, node)
    assert (found["job#0"].state, found["job#0"].left) == (None, True)
    assert len(found) == COUNT
