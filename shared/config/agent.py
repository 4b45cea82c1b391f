"""What the agents' configuration file may say: every key with its unit, range and default; see
`daemons.config.controller`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from shared.config.common import (
    Bus,
    Command,
    Count,
    Duration,
    FilePath,
    Listen,
    Log,
    Metrics,
    Mib,
    Name,
    Period,
    Registered,
)
from shared.config.records import AtLeast, Form, IsAddress, NamedIn, Range, Rule
from shared.values.load_vector import STANDARD_RUN_S_MAX
from shared.values.migration_terms import DOWNTIME_MS, LIMIT_S

UnitName = Annotated[str, Form(r"[A-Za-z0-9:_.@{}-]{1,200}\.service", "a systemd service")]
NodeLabel = Annotated[str, Form(r"[^\s-]\S{0,127}", "1 to 128 characters without spaces, the first no '-'")]
UrlPrefix = Annotated[
    str,
    Form(r"(https?://[^\s/?#@]+|file://)/([^\s?#]*/)?", "https://HOST/.../, http://HOST/.../ or file:///.../"),
]


@dataclass(frozen=True, slots=True)
class NodeType:
    """Properties of all nodes of a type."""

    core_mhz_factor: Annotated[float, Range(0.01, 100)] = 1.0
    """Speed of a core relative to the reference at the same clock. The clock is multiplied by it."""
    reserve_mib: Mib = 512
    """Memory that is kept for the host."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """This node."""

    name: Name = ""
    """Name of the node. Empty: the host's name without its domain."""
    type: Name = ""
    """Type of the node, a table `[node_types.NAME]`. Empty: the defaults of a node type."""
    reserve_mib: Mib | None = None
    """Memory that is kept for the host. It replaces the value of the node type. Example: `2048`."""
    address: Annotated[str, Form(r"[0-9A-Fa-f.:]{0,64}", "an IP address, or nothing")] = ""
    """IP address at which programs and VMs without an address of their own answer. Empty: unknown."""
    labels: tuple[NodeLabel, ...] = ()
    """Labels that jobs and web applications can require."""


@dataclass(frozen=True, slots=True)
class AgentPeriods:
    """Intervals of recurring work."""

    report_s: Period = 5.0
    """Interval between two reports. Set `periods.report_s` of the controller to the same value."""


@dataclass(frozen=True, slots=True)
class AgentTimeouts:
    """Time limits."""

    operation_timeout_s: Duration = 600.0
    """Time after which a running operation is aborted."""


@dataclass(frozen=True, slots=True)
class HypervisorChoice:
    """The hypervisor of this node."""

    driver: Registered = "libvirt"
    """Hypervisor driver: `libvirt`, `process`, or another installed driver."""
    uri: Annotated[str, Form(r"\S{0,512}", "a URI")] = "qemu:///system"
    """URI that the driver connects to, for example that of libvirtd."""


@dataclass(frozen=True, slots=True)
class JournalFile:
    """The agent's journal of accepted actions and their outcomes."""

    path: FilePath = "/var/lib/trimtab/agent.journal"
    """File of the journal. Only one agent may use it."""


@dataclass(frozen=True, slots=True)
class SetupCommand:
    """A command that environments may run when a node is reassigned. `{node}`, `{environment}` and `{step}` in it are
    replaced."""

    run: Command = ()
    """Program and arguments, run without a shell. Exit status 0: done."""
    limit_s: Duration = 600.0
    """Time limit of one run. Beyond it, the program is killed or the unit is stopped."""
    unit: Annotated[str, Form(r"([A-Za-z0-9:_.@{}-]{1,200}\.service)?", "a systemd service, or nothing")] = ""
    """Systemd unit that is started and runs to its end, in place of `run`. Empty: none."""


@dataclass(frozen=True, slots=True)
class SetupKeys:
    """What may be done to this host when it is reassigned. Nothing else is run."""

    wipe: tuple[Command, ...] = ()
    """Programs that remove what the last environment left, one after the other. Without `wipe` and `wipe_units`, a wipe
    is refused."""
    wipe_limit_s: Duration = 3_600.0
    """Time limit of a whole wipe."""
    commands: Mapping[str, SetupCommand] = field(default_factory=dict)
    wipe_units: tuple[UnitName, ...] = ()
    """Systemd units that are run after the programs of `wipe`, one after the other."""
    packages: tuple[Annotated[str, Form(r"[a-z0-9+.*-]{1,128}", "a package's name, or a pattern")], ...] = ()
    """Debian packages that environments may install: names and patterns with `*`."""
    helper: FilePath = "/run/trimtab/helper.sock"
    """Socket of the root helper that installs packages."""
    urls: tuple[UrlPrefix, ...] = ()
    """Beginnings of the URLs from which environments may fetch files."""
    file_mib_max: Annotated[int, Range(1, 1 << 20)] = 1_024
    """Largest size of a fetched file."""
    files_folder: FilePath = "/var/lib/trimtab/environments"
    """Folder in which each environment gets a folder for its files."""
    services: tuple[Annotated[str, Form(r"[A-Za-z0-9:_.@*-]{1,120}\.service", "a service, or a pattern")], ...] = ()
    """Systemd services that environments may start and stop: names and patterns with `*`."""
    library: Annotated[str, Form(r"(/[^\0]+)?", "an absolute path, or nothing")] = ""
    """Folder of the VM images that environments may clone. Empty: none."""
    images_folder: FilePath = "/var/lib/trimtab/images"
    """Folder in which each environment gets a folder for its cloned images."""


@dataclass(frozen=True, slots=True)
class MonitorCommand:
    """A program that checks whether an instance serves. Probes refer to it by its name."""

    run: Command
    """Program and arguments, run without a shell. Exit status 0: the instance serves. Example:
    `["/usr/local/lib/shop/check"]`."""
    limit_s: Duration = 10.0
    """Time limit of one run. `limit_s` of the probe applies as well."""


@dataclass(frozen=True, slots=True)
class HealthCheckKeys:
    """Health checks of web applications on this node."""

    commands: Mapping[str, MonitorCommand] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StandardJobKeys:
    """Calibration benchmarks, the standard jobs, which measure the CPU and the disk of this host."""

    enabled: bool = False
    """Allow operators to run standard jobs on this node."""
    folder: FilePath = "/var/lib/trimtab/standard"
    """Folder in which the disk benchmark creates its file. It should be on the disk that VMs use."""
    file_mib: Annotated[int, Range(16, 1 << 16)] = 256
    """Size of that file. It is removed when the benchmark ends."""
    run_s_max: Annotated[float, Range(0.1, STANDARD_RUN_S_MAX)] = 60.0
    """Longest duration of one run."""
    copies_max: Annotated[int, Range(1, 32)] = 8
    """Most copies that run side by side."""


class RunnerName(StrEnum):
    """What runs the programs of the driver `process`."""

    SYSTEMD = "systemd"
    CGROUP = "cgroup"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that templates may name."""

    run: Command
    """Program, as an absolute path, and its arguments. Places such as `{vm}` and `{arguments}` are replaced. Example:
    `["/srv/bin/render", "{arguments}"]`."""


@dataclass(frozen=True, slots=True)
class ProcessKeys:
    """The driver `process`, which runs programs in place of VMs."""

    runner: RunnerName = RunnerName.SYSTEMD
    """What runs the programs: `systemd` units, or `cgroup`s of an agent that runs as root."""
    user: Annotated[str, Form(r"[a-z_][a-z0-9_-]{0,30}", "the name of an account")] = "trimtab-job"
    """Account that programs run as. It must not be root."""
    programs: Mapping[str, Program] = field(default_factory=dict)
    stop_limit_s: Duration = 10.0
    """Time that a program has to end before it is killed."""
    state: FilePath = "/run/trimtab/jobs"
    """Folder in which the agent keeps the state of running programs until the next boot."""
    output: FilePath = "/var/lib/trimtab-job"
    """Folder in which each program gets a working folder for its output."""
    cgroup: Annotated[str, Form(r"(/[A-Za-z0-9_.@-]{1,100}){1,8}", "a folder such as /trimtab")] = "/trimtab"
    """Folder of the programs below the root of each cgroup hierarchy, for the runner `cgroup`."""
    cores: Count | None = None
    """CPU cores of the node. Left out: those of the machine. Example: `4`."""
    core_mhz: Annotated[float, Range(1, 1_000_000)] | None = None
    """Clock of one core. Left out: that of the machine. Example: `2600`."""
    core_frac: Annotated[float, Range(0.01, 1)] = 1.0
    """Part of a machine's core that one core of the node is, for the runner `cgroup`."""
    memory_mib: Mib | None = None
    """Memory of the node. Left out: that of the machine. Example: `8192`."""
    cpus: Annotated[str, Form(r"([0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*)?", "such as 0-3,6")] = ""
    """CPUs of the machine on which programs run, for the runner `cgroup`. Empty: all."""
    confine: bool = False
    """Limit all programs together to the cores and the memory of the node, for the runner `cgroup`."""


class CloneMode(StrEnum):
    """What a VM's disk is made of."""

    OVERLAY = "overlay"  # what differs from the base volume, which must stay
    COPY = "copy"  # a whole copy of the base volume
    NONE = "none"  # the base volume itself, which no other VM may use


class CopyStorage(StrEnum):
    """Whether disks go along with a migration."""

    AUTO = "auto"  # where their pool is not shared
    ALWAYS = "always"
    NEVER = "never"


PoolName = Annotated[
    str, Form(r"[A-Za-z0-9_.-]{1,128}", "the name of a storage pool: letters, digits, '-', '_' or '.'")
]
StoragePlace = Annotated[
    str,
    Form(r"/[^\0\n]{1,199}|[a-z]{2,16}:[^\s]{1,183}", "a folder such as /mnt/images, or a disk such as rbd:vms"),
]
PeerUri = Annotated[str, Form(r"(\S{1,512})?", "a URI such as qemu+tls://{host}/system")]


@dataclass(frozen=True, slots=True)
class LibvirtTemplate:
    """A VM template, which jobs and web applications refer to by its name."""

    file: FilePath
    """File of the domain XML. Places such as `{vm}` in it are replaced. Example:
    `"/etc/trimtab/templates/render.xml"`."""
    volume: Annotated[str, Form(r"([^/\0\s]{1,255})?", "the name of a volume, or nothing")] = ""
    """Base volume of the VM's disk in `libvirt.pool`. Empty: the VM gets no disk of its own."""
    clone: CloneMode = CloneMode.OVERLAY
    """How the disk is made: `overlay` stores differences from the base volume, `copy` is a whole copy, `none` uses the
    base volume directly."""
    first_address: Annotated[str, Form(r"[0-9A-Fa-f.:]{0,64}", "an IP address, or nothing")] = ""
    """IP address of instance 0. Instance k gets the k-th address after it. Empty: addresses are unknown."""


@dataclass(frozen=True, slots=True)
class LibvirtMigration:
    """How VMs migrate between nodes."""

    peer: PeerUri = "qemu+tls://{host}/system"
    """URI of the libvirtd of another node. `{host}` is that node's entry in `[libvirt.hosts]`, else its name."""
    data: PeerUri = ""
    """URI to which the memory is sent, such as `tcp://{host}`. Empty: libvirt chooses."""
    bandwidth_mib_per_s: Annotated[int, Range(0, 1_000_000)] = 0
    """Bandwidth limit of a migration. 0: no limit."""
    downtime_ms: Annotated[int, Range(1, 60_000)] = DOWNTIME_MS
    """Longest time that the guest stands still at the end of a migration."""
    limit_s: Duration = LIMIT_S
    """Time after which a migration is aborted. The VM then stays where it is. Decisions begin none that is forecast to
    take longer."""
    tls: bool = True
    """Encrypt memory and disks during a migration."""
    copy_storage: CopyStorage = CopyStorage.AUTO
    """Whether disks are copied. `auto` copies those whose pool is not shared."""


@dataclass(frozen=True, slots=True)
class LibvirtKeys:
    """The driver `libvirt`."""

    pool: PoolName = "default"
    """Storage pool in which disks of VMs are created."""
    save_pool: PoolName = "trimtab-saved"
    """Storage pool of type dir for the images of suspended VMs. If it is missing, no VM can be suspended."""
    shared_pools: tuple[PoolName, ...] = ()
    """Storage pools that all nodes see as the same storage at the same path."""
    reachable_storage: tuple[StoragePlace, ...] = ()
    """Storage that the node reaches without a pool: shared folders, and network disks as `PROTOCOL:PLACE`. A disk with
    servers counts while one accepts connections. Example: `["/mnt/images", "rbd:vms", "nbd:store1:10809"]`."""
    partition: Annotated[
        str, Form(r"((/[A-Za-z0-9_.@-]{1,100}){1,8})?", "a partition such as /machine, or nothing")
    ] = ""
    """Cgroup partition of the VMs. Empty: libvirt's default."""
    cores: Count | None = None
    """CPU cores of the node. Left out: those of the machine. Example: `16`."""
    core_mhz: Annotated[float, Range(1, 1_000_000)] | None = None
    """Clock of one core. Left out: the base clock of the machine. Example: `2600`."""
    core_frac: Annotated[float, Range(0.01, 1)] = 1.0
    """Part of a machine's core that one core of the node is. Below 1, several nodes share one machine."""
    memory_mib: Mib | None = None
    """Memory of the node. Left out: that of the machine. Example: `65536`."""
    stop_limit_s: Duration = 30.0
    """Time that a guest has to shut down before it is powered off."""
    keepalive_s: Annotated[int, Range(1, 3_600)] = 5
    """Interval of keepalive messages. A connection is broken after three intervals without an answer."""
    templates: Mapping[str, LibvirtTemplate] = field(default_factory=dict)
    migration: LibvirtMigration = field(default_factory=LibvirtMigration)
    hosts: Mapping[str, Annotated[str, Form(r"[A-Za-z0-9_.:\[\]-]{1,255}", "a host's name or address")]] = field(
        default_factory=dict
    )
    """Host name or address of other nodes, by node name. A node that is left out is reached by its name."""


@dataclass(frozen=True, slots=True)
class LeaseKeys:
    """The lease of this host on storage that all hosts share. `trimtab-lease` renews it, agents read those of other
    hosts. A host that cannot renew its lease is reset by its watchdog."""

    folder: Annotated[str, Form(r"(/[^\0]+)?", "an absolute path, or nothing")] = ""
    """Folder of the leases on shared storage. The operator creates the file `trimtab-leases` in it. Empty: no lease."""
    renew_s: Annotated[float, Range(0.1, 60)] = 5.0
    """Interval between two renewals. It should be the same on all hosts."""
    expires_s: Annotated[float, Range(1, 600)] = 30.0
    """Time without a renewal after which the watchdog resets this host."""
    watchdog: FilePath = "/dev/watchdog"
    """Watchdog device of this host. Only one program can use it."""


@dataclass(frozen=True, slots=True)
class ThreeTimes(AtLeast):
    """`key` is at least three times `other`.

    Both are dotted keys of numbers.
    """

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the violated requirement on `key`; "" if it is met, or if either value is not known to be valid."""
        known = self.key in values and self.other in values
        if not known or 3 * values[self.other] <= values[self.key] + 1e-9:  # 3 x 1.1 is a little more than 3.3
            return ""
        return f"at least 3 x {self.other} = {3 * values[self.other]:g}"


@dataclass(frozen=True, slots=True)
class AgentMetrics(Metrics):
    """The endpoint of Prometheus metrics. It has no accounts: everyone who reaches it can read it."""

    listen: Listen = "127.0.0.1:9461"
    """Address and port of the endpoint. Empty: no metrics are served."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The configuration of an agent. One file may serve every node if names are left to the hosts."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        NamedIn("node.type", "node_types"),
        IsAddress("node.address"),
        ThreeTimes("lease.expires_s", "lease.renew_s"),
    )

    node: NodeFacts = field(default_factory=NodeFacts)
    node_types: Mapping[str, NodeType] = field(default_factory=dict)
    periods: AgentPeriods = field(default_factory=AgentPeriods)
    timeouts: AgentTimeouts = field(default_factory=AgentTimeouts)
    hypervisor: HypervisorChoice = field(default_factory=HypervisorChoice)
    process: ProcessKeys = field(default_factory=ProcessKeys)
    libvirt: LibvirtKeys = field(default_factory=LibvirtKeys)
    setup: SetupKeys = field(default_factory=SetupKeys)
    health_checks: HealthCheckKeys = field(default_factory=HealthCheckKeys)
    standard_jobs: StandardJobKeys = field(default_factory=StandardJobKeys)
    lease: LeaseKeys = field(default_factory=LeaseKeys)
    journal: JournalFile = field(default_factory=JournalFile)
    bus: Bus = field(default_factory=Bus)
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    log: Log = field(default_factory=Log)

    @property
    def core_mhz_factor(self) -> float:
        """What the base clock is multiplied with on this node."""
        return self._type.core_mhz_factor

    @property
    def reserve_mib(self) -> int:
        """Memory kept for the host on this node, in MiB."""
        own = self.node.reserve_mib
        return self._type.reserve_mib if own is None else own

    @property
    def _type(self) -> NodeType:
        return self.node_types.get(self.node.type, NodeType())
