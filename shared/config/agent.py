"""What the agents' configuration file may say: every key with its unit, range and default; see
`daemons.config.controller`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

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
from shared.config.records import Form, IsAddress, NamedIn, Range, Rule
from shared.values.load_vector import STANDARD_RUN_S_MAX

UnitName = Annotated[str, Form(r"[A-Za-z0-9:_.@{}-]{1,200}\.service", "a systemd service")]
NodeLabel = Annotated[str, Form(r"[^\s-]\S{0,127}", "1 to 128 characters without spaces, the first no '-'")]
UrlPrefix = Annotated[
    str,
    Form(r"(https?://[^\s/?#@]+|file://)/([^\s?#]*/)?", "https://HOST/.../, http://HOST/.../ or file:///.../"),
]


@dataclass(frozen=True, slots=True)
class NodeType:
    """What holds for every node of a type: its clock's worth against the reference, memory kept for the host."""

    core_mhz_factor: Annotated[float, Range(0.01, 100)] = 1.0
    reserve_mib: Mib = 512


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What this node is. `name` empty: the name of the host; `type` empty: the defaults of a node type.

    `reserve_mib` here goes before that of the type. `address`: where programs on this node answer, for those that are
    not in VMs with addresses of their own (empty: it is not known).
    """

    name: Name = ""
    type: Name = ""
    reserve_mib: Mib | None = None
    address: Annotated[str, Form(r"[0-9A-Fa-f.:]{0,64}", "an IP address, or nothing")] = ""
    labels: tuple[NodeLabel, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentPeriods:
    """How often the agent reports."""

    report_s: Period = 5.0


@dataclass(frozen=True, slots=True)
class AgentTimeouts:
    """How long the agent lets one operation run before it is aborted."""

    operation_timeout_s: Duration = 600.0


@dataclass(frozen=True, slots=True)
class HypervisorChoice:
    """The driver by its registered name, and what it connects to."""

    driver: Registered = "libvirt"
    uri: Annotated[str, Form(r"\S{0,512}", "a URI")] = "qemu:///system"


@dataclass(frozen=True, slots=True)
class JournalFile:
    """Where the agent keeps what it must not forget."""

    path: FilePath = "/var/lib/trimtab/agent.journal"


@dataclass(frozen=True, slots=True)
class SetupCommand:
    """A program with its arguments, or a systemd unit that is started and runs to its end, and how long it may take;
    `{node}`, `{environment}` and `{step}` in them are filled in."""

    run: Command = ()
    limit_s: Duration = 600.0
    unit: Annotated[str, Form(r"([A-Za-z0-9:_.@{}-]{1,200}\.service)?", "a systemd service, or nothing")] = ""


@dataclass(frozen=True, slots=True)
class SetupKeys:
    """What may be done to this host when it changes hands, and nothing else.

    `wipe`: programs that remove what its last holder left, then `wipe_units`, systemd units that do, one after the
    other, all within `wipe_limit_s` (neither: wiping is refused). `commands`: those that agreements may name.
    `packages`: Debian packages that agreements may bring, by the root helper that listens on `helper`. `urls`: what
    addresses of their files begin with, each at most `file_mib_max` large, below `files_folder`. `services`: units that
    they may have started and stopped. In patterns `*` stands for any characters. `library`: the folder of the VM images
    that they may name (empty: none), which are cloned to below `images_folder`.
    """

    wipe: tuple[Command, ...] = ()
    wipe_limit_s: Duration = 3_600.0
    commands: Mapping[str, SetupCommand] = field(default_factory=dict)
    wipe_units: tuple[UnitName, ...] = ()
    packages: tuple[Annotated[str, Form(r"[a-z0-9+.*-]{1,128}", "a package's name, or a pattern")], ...] = ()
    helper: FilePath = "/run/trimtab/helper.sock"
    urls: tuple[UrlPrefix, ...] = ()
    file_mib_max: Annotated[int, Range(1, 1 << 20)] = 1_024
    files_folder: FilePath = "/var/lib/trimtab/environments"
    services: tuple[Annotated[str, Form(r"[A-Za-z0-9:_.@*-]{1,120}\.service", "a service, or a pattern")], ...] = ()
    library: Annotated[str, Form(r"(/[^\0]+)?", "an absolute path, or nothing")] = ""
    images_folder: FilePath = "/var/lib/trimtab/images"


@dataclass(frozen=True, slots=True)
class MonitorCommand:
    """A program that finds out whether an instance serves, with its arguments, and how long it may take; a probe's own
    limit holds too."""

    run: Command
    limit_s: Duration = 10.0


@dataclass(frozen=True, slots=True)
class MonitorKeys:
    """How instances of web applications are watched. `commands`: those that their probes may name."""

    commands: Mapping[str, MonitorCommand] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StandardJobKeys:
    """The standard jobs, which show how this host's CPU and disk share (docs/interference.md). `enabled`: operators may
    have them run. `folder`: where the one for disks makes a file of `file_mib` MiB, which is gone when it ends.
    `run_s_max`, `copies_max`: how long and how many side by side at most."""

    enabled: bool = False
    folder: FilePath = "/var/lib/trimtab/standard"
    file_mib: Annotated[int, Range(16, 1 << 16)] = 256
    run_s_max: Annotated[float, Range(0.1, STANDARD_RUN_S_MAX)] = 60.0
    copies_max: Annotated[int, Range(1, 32)] = 8


class RunnerName(StrEnum):
    """What runs the programs of the driver `process`."""

    SYSTEMD = "systemd"
    CGROUP = "cgroup"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that VMs' templates may name; see docs/process.md for what is filled in."""

    run: Command


@dataclass(frozen=True, slots=True)
class ProcessKeys:
    """The driver `process`. `user`: the account that programs run as. `cores`, `core_mhz`, `memory_mib`: what the node
    has, where it is not what the machine has. `core_frac`: each of its cores is but this part of one of the machine's,
    so that several nodes have room on one machine. `cpus`: on which of the machine's CPUs programs run (empty: all).
    `confine`: all programs together get no more than `cores` and `memory_mib`. These three are for the runner `cgroup`,
    as is `cgroup`, its folder below the root of each hierarchy."""

    runner: RunnerName = RunnerName.SYSTEMD
    user: Annotated[str, Form(r"[a-z_][a-z0-9_-]{0,30}", "the name of an account")] = "trimtab-job"
    programs: Mapping[str, Program] = field(default_factory=dict)
    stop_limit_s: Duration = 10.0
    state: FilePath = "/run/trimtab/jobs"
    output: FilePath = "/var/lib/trimtab-job"
    cgroup: Annotated[str, Form(r"(/[A-Za-z0-9_.@-]{1,100}){1,8}", "a folder such as /trimtab")] = "/trimtab"
    cores: Count | None = None
    core_mhz: Annotated[float, Range(1, 1_000_000)] | None = None
    core_frac: Annotated[float, Range(0.01, 1)] = 1.0
    memory_mib: Mib | None = None
    cpus: Annotated[str, Form(r"([0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*)?", "such as 0-3,6")] = ""
    confine: bool = False


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
PeerUri = Annotated[str, Form(r"(\S{1,512})?", "a URI such as qemu+tls://{host}/system")]


@dataclass(frozen=True, slots=True)
class LibvirtTemplate:
    """What VMs of a template are made from (docs/libvirt.md). `file`: domain XML with places to be filled in. `volume`:
    the base volume of each VM's disk, in `libvirt.pool` (empty: none). `first_address`: instance k of a workload gets
    the k-th IP address from it on (empty: its address is not known)."""

    file: FilePath
    volume: Annotated[str, Form(r"([^/\0\s]{1,255})?", "the name of a volume, or nothing")] = ""
    clone: CloneMode = CloneMode.OVERLAY
    first_address: Annotated[str, Form(r"[0-9A-Fa-f.:]{0,64}", "an IP address, or nothing")] = ""


@dataclass(frozen=True, slots=True)
class LibvirtMigration:
    """How VMs move between nodes. `peer`: where this node's libvirt reaches that of node `{host}`. `data`: where memory
    is sent (empty: as libvirt chooses); with `tls` it is encrypted. `bandwidth_mib_per_s` 0: no limit. `downtime_ms`:
    for how long a guest may stand still at the end. `limit_s`: then it is given up."""

    peer: PeerUri = "qemu+tls://{host}/system"
    data: PeerUri = ""
    bandwidth_mib_per_s: Annotated[int, Range(0, 1_000_000)] = 0
    downtime_ms: Annotated[int, Range(1, 60_000)] = 300
    limit_s: Duration = 300.0
    tls: bool = True
    copy_storage: CopyStorage = CopyStorage.AUTO


@dataclass(frozen=True, slots=True)
class LibvirtKeys:
    """The driver `libvirt`. `pool`: where VMs' own disks are made. `save_pool`: a pool of type dir where saved VMs lie.
    `shared_pools`: those that every node sees as the same storage at the same path. `partition`: the cgroup partition
    that VMs are in (empty: libvirt's). `cores`, `core_mhz`, `memory_mib`: what the node has, where it is not what the
    machine has. `core_frac`: each of its cores is but this part of one of the machine's. `stop_limit_s`: how long a
    guest may take to shut down before it is cut off. `keepalive_s`: a connection without a sign of life for three times
    as long is broken. `hosts`: what `{host}` is for a node (left out: its name)."""

    pool: PoolName = "default"
    save_pool: PoolName = "trimtab-saved"
    shared_pools: tuple[PoolName, ...] = ()
    partition: Annotated[
        str, Form(r"((/[A-Za-z0-9_.@-]{1,100}){1,8})?", "a partition such as /machine, or nothing")
    ] = ""
    cores: Count | None = None
    core_mhz: Annotated[float, Range(1, 1_000_000)] | None = None
    core_frac: Annotated[float, Range(0.01, 1)] = 1.0
    memory_mib: Mib | None = None
    stop_limit_s: Duration = 30.0
    keepalive_s: Annotated[int, Range(1, 3_600)] = 5
    templates: Mapping[str, LibvirtTemplate] = field(default_factory=dict)
    migration: LibvirtMigration = field(default_factory=LibvirtMigration)
    hosts: Mapping[str, Annotated[str, Form(r"[A-Za-z0-9_.:\[\]-]{1,255}", "a host's name or address")]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class AgentMetrics(Metrics):
    """Where the agent's metrics are served, as `shared.config.common.Metrics` says."""

    listen: Listen = "127.0.0.1:9461"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The agent's file; the same file may serve every node when names are left to the hosts."""

    RULES: ClassVar[tuple[Rule, ...]] = (NamedIn("node.type", "node_types"), IsAddress("node.address"))

    node: NodeFacts = field(default_factory=NodeFacts)
    node_types: Mapping[str, NodeType] = field(default_factory=dict)
    periods: AgentPeriods = field(default_factory=AgentPeriods)
    timeouts: AgentTimeouts = field(default_factory=AgentTimeouts)
    hypervisor: HypervisorChoice = field(default_factory=HypervisorChoice)
    process: ProcessKeys = field(default_factory=ProcessKeys)
    libvirt: LibvirtKeys = field(default_factory=LibvirtKeys)
    setup: SetupKeys = field(default_factory=SetupKeys)
    monitor: MonitorKeys = field(default_factory=MonitorKeys)
    standard_jobs: StandardJobKeys = field(default_factory=StandardJobKeys)
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
