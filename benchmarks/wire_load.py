"""What a cluster of any size says and wants: every node has 8 VMs of 5 jobs, all running as wanted, so that no order
is due and all work is that of listening."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat

from daemons.values.records.cluster import ControlRecord, InstanceRecord, JobRecord, NodeRecord, Record
from shared.protocol.messages import Report
from shared.values.jobs import Allotment, Job, JobPhase, Stage, instance_name
from shared.values.nodes import Node, NodeSample, NodeService
from shared.values.vms import VmState, VmStatus

VMS = 8
JOB_SIZES = (2, 2, 2, 1, 1)  # instances of the jobs of a node
BOOT = "c0ffee00-0000-4000-8000-000000000000"
CORE_MHZ = 2_400.0
VM_MHZ = 1_200.0
VM_MIB = 2_048
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Load:
    """So many nodes, from 1."""

    nodes: int

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return [f"node-{number:04d}" for number in range(self.nodes)]

    @property
    def workloads(self) -> int:
        """Jobs in all."""
        return self.nodes * len(JOB_SIZES)

    def records(self, now_s: float) -> tuple[Record, ...]:
        """What a store holds of it. Decisions are switched on."""
        nodes = [
            NodeRecord(name, NodeService.IN_SERVICE, 0, boot_id=BOOT, off_boot_id="", inventory=inventory(name))
            for name in self.names
        ]
        jobs = [
            _record(name, index, now_s, order)
            for order, (name, index) in enumerate((name, index) for name in self.names for index in range(5))
        ]
        return (ControlRecord(True, 0, self.workloads), *nodes, *jobs)

    def round(self, seq: int, clock_s: float, term: int) -> Iterator[Report]:
        """One report of every node, number `seq` of each."""
        return map(report, self.names, repeat(seq), repeat(clock_s), repeat(term))


def report(node: str, seq: int, clock_s: float, term: int) -> Report:
    """Report number `seq` (from 1) of a node; the counters grow with it."""
    sample = NodeSample(
        cpu_frac=0.40 + seq % 7 / 100.0,
        iowait_frac=0.01,
        load_1min=4.5,
        memory_used_mib=20_123.5,
        disk_busy_s=seq * 0.7,
        disk_read_bytes=seq * 3 * MIB,
        disk_write_bytes=seq * 5 * MIB,
        net_rx_bytes=seq * 7 * MIB,
        net_tx_bytes=seq * 11 * MIB,
        disk_free_mib=512_345.0,
    )
    return Report(
        node, BOOT, seq, clock_s=clock_s, term=term, sample=sample, vms=tuple(_status(vm, seq) for vm in vms_of(node))
    )


def vms_of(node: str) -> Iterable[str]:
    """The VMs of a node."""
    for index, size in enumerate(JOB_SIZES):
        yield from (instance_name(_job_name(node, index), number) for number in range(size))


def inventory(name: str) -> Node:
    """A node that has room for its VMs and is not full."""
    return Node(name, 8, CORE_MHZ, memory_mib=32_768)


def _job_name(node: str, index: int) -> str:
    return f"job-{node}-{index}"


def _status(vm: str, seq: int) -> VmStatus:
    return VmStatus(
        vm,
        VmState.RUNNING,
        1,
        attempt=1,
        memory_mib=VM_MIB,
        vcpus=1,
        cpu_mhz=VM_MHZ,
        cpu_time_s=seq * 2.5 + 0.125,
        disk_read_bytes=seq * MIB + 17,
        disk_write_bytes=seq * 2 * MIB + 19,
        net_rx_bytes=seq * 300_007,
        net_tx_bytes=seq * 200_003,
    )


def _record(node: str, index: int, now_s: float, order: int) -> JobRecord:
    size = JOB_SIZES[index]
    job = Job(_job_name(node, index), (Stage(1e9, VM_MHZ, memory_mib=VM_MIB),), submit_s=now_s, instances=size)
    instance = InstanceRecord(
        (node,),
        1,
        1,
        ended=False,
        cpu_mhz=VM_MHZ,
        done_mcycles=0.0,
        counter_node=node,
        counter_generation=1,
        counter_s=0.0,
    )
    return JobRecord(
        job=job,
        request=f"request-{job.name}",
        order=order,
        revision=1,
        phase=JobPhase.RUNNING,
        attempt=1,
        released=True,
        resuming=False,
        allotments=(Allotment(node, VM_MHZ),) * size,
        not_before_s=0.0,
        failures=0,
        accepted_s=now_s,
        finished_s=0.0,
        instances=(instance,) * size,
    )
