"""What a node has, how MHz become weights and quotas on it, and the card by which other nodes know it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from agents.hypervisors.libvirt import domain_xml, host_features, storage
from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.domain_xml import Tuning
from agents.hypervisors.libvirt.errors import Declined, telling
from agents.hypervisors.libvirt.host_features import THIS_MACHINE, HostFeatures
from agents.hypervisors.libvirt.machine import Machine
from shared.base.errors import TransientError
from shared.config.agent import LibvirtKeys, LibvirtMigration
from shared.values.migration_terms import MigrationBounds
from shared.values.nodes import Ability, Node

PERIOD_US = 100_000
QUOTA_US_MIN = 1_000
SHARES_V1 = (2, 262_144)
WEIGHTS_V2 = (1, 10_000)
SHARES_DEFAULT = 1_024  # of version 1: what a domain has of which nothing is said, taken as that many MHz
WEIGHT_DEFAULT = 100  # of version 2
UNIFIED = "/sys/fs/cgroup/cgroup.controllers"
CARD_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Cpu:
    """A node's CPU. `core_mhz`: a core's worth by which allotments are measured; `core_frac`: the part of one of the
    machine's cores that it is; `cgroup`: the version of cgroups, 1 or 2."""

    core_mhz: float
    core_frac: float = 1.0
    cgroup: int = 1

    def shares(self, cpu_mhz: float) -> int:
        """Return the weight of an allotment, proportional to it: 1,024 MHz weigh as much as a domain without a
        configured weight."""
        if self.cgroup == 1:
            least, most = SHARES_V1
            return min(most, max(least, round(cpu_mhz)))
        least, most = WEIGHTS_V2
        return min(most, max(least, round(cpu_mhz * WEIGHT_DEFAULT / SHARES_DEFAULT)))

    @property
    def plain_shares(self) -> int:
        """The weight of a domain of which none is stated."""
        return SHARES_DEFAULT if self.cgroup == 1 else WEIGHT_DEFAULT

    def worth_mhz(self, shares: int, vcpus: int) -> float:
        """Return the value of a weight (0: none configured) in MHz, at most the capacity that this number of vCPUs can
        use."""
        default = self.plain_shares
        return min((shares or default) * SHARES_DEFAULT / default, vcpus * self.core_mhz)

    def quota_us(self, vcpus: int, cap_mhz: float | None) -> int:
        """Return the share of `PERIOD_US` that each vCPU may use (-1: all): period x cap / (core_mhz x vcpus) x
        core_frac."""
        part = 1.0 if cap_mhz is None else min(1.0, cap_mhz / (self.core_mhz * vcpus))
        if part * self.core_frac >= 1.0:
            return -1
        return max(QUOTA_US_MIN, round(PERIOD_US * part * self.core_frac))

    def hasty_shares(self, cpu_mhz: float) -> int:
        """Return the weight during an operation: at least that of a whole core. Otherwise the operation would wait for
        CPU that its VM is not given."""
        return self.shares(max(cpu_mhz, self.core_mhz))

    def tuning(self, cpu_mhz: float, cap_mhz: float | None, vcpus: int, hasty: bool = False) -> Tuning:
        """Return the CPU tuning for a domain's XML; `hasty`: with the weight during an operation."""
        shares = self.hasty_shares(cpu_mhz) if hasty else self.shares(cpu_mhz)
        return Tuning(shares, PERIOD_US, self.quota_us(vcpus, cap_mhz))


def cgroup_version(unified: str = UNIFIED) -> int:
    """Return the cgroup version of this machine."""
    return 2 if Path(unified).exists() else 1


@dataclass(frozen=True, slots=True)
class Card:
    """What other nodes must know of one to send VMs there; it lies in its pool of saved images."""

    node: str
    memory_mib: int
    core_mhz: float
    core_frac: float = 1.0
    cgroup: int = 1
    partition: str = ""

    @property
    def cpu(self) -> Cpu:
        """Its CPU."""
        return Cpu(self.core_mhz, self.core_frac, self.cgroup)


@dataclass(frozen=True, slots=True)
class Features:
    """What the hypervisor behind libvirt can do that not all can. `paused`: domains are started and restored paused;
    `rewrite`: a saved domain's XML can be changed; `save`: there is a pool for it; `migrate`: to
    other nodes."""

    paused: bool = True
    rewrite: bool = True
    save: bool = True
    migrate: bool = True

    @property
    def failover(self) -> bool:
        """Whether it starts a domain by a definition from another node. This needs a whole hypervisor, which libvirt's
        test driver is not, and one that migrates: of no other are the features read that say whether a domain can be
        started here."""
        return self.paused and self.migrate


def features_of(conn: Connection, errors: type[Exception], save_pool: str) -> Features:
    """Raises TransientError when libvirt does not answer."""
    with telling(errors, "ask what libvirt can do"):
        full = conn.getType().lower() != "test"
        capabilities = domain_xml.parse(conn.getCapabilities())
    migrate = capabilities.find("host/migration_features/live") is not None
    try:
        with telling(errors, f"find pool {save_pool!r}"):
            save = bool(conn.storagePoolLookupByName(save_pool).isActive())
    except Declined:
        save = False
    return Features(paused=full, rewrite=full, save=save, migrate=migrate)


def node_of(
    conn: Connection,
    errors: type[Exception],
    name: str,
    keys: LibvirtKeys,
    features: Features,
    machine: Machine = THIS_MACHINE,
) -> Node:
    """Return the node as reported, before its type and reserve are applied and its abilities are known. Raises
    TransientError."""
    with telling(errors, "ask for the capacity"):
        info = conn.getInfo()
        capabilities = domain_xml.parse(conn.getCapabilities())
        if features.migrate:
            host = host_features.features_of(conn, errors, capabilities, keys, machine)
        else:
            host = HostFeatures((), *host_features.topology_of(capabilities))
    core_mhz = keys.core_mhz or float(info[3])
    if core_mhz <= 0:
        raise TransientError("libvirt does not report this machine's clock rate: set libvirt.core_mhz")
    kinds = {domain.get("type", "") for domain in capabilities.findall("guest/arch/domain")}
    return Node(
        name,
        keys.cores or int(info[2]),
        core_mhz,
        memory_mib=int(info[1]) if keys.memory_mib is None else keys.memory_mib,
        labels=("kvm",) if "kvm" in kinds else (),
        cpu_model=capabilities.findtext("host/cpu/model", "") or capabilities.findtext("host/cpu/arch", ""),
        migration_has=host.has,
        templates=tuple(sorted(keys.templates)),
        numa_cells=host.numa_cells,
        hugepages=host.hugepages,
        migration_bounds=bounds_of(keys.migration),
    )


def bounds_of(keys: LibvirtMigration) -> MigrationBounds:
    """Return what the configuration allows of a migration from this node."""
    return MigrationBounds(keys.limit_s, keys.downtime_ms, keys.bandwidth_mib_per_s)


def abilities_of(features: Features, has_images: bool) -> tuple[Ability, ...]:
    """Return the abilities that the inventory declares. With saved images, SAVE is declared even while their pool is
    unusable: images hold no memory, but without SAVE the controller would assume that suspended VMs do. FAILOVER needs
    no pool, see `Features`."""
    able = {
        Ability.SAVE: features.save or has_images,
        Ability.MIGRATE: features.migrate,
        Ability.FAILOVER: features.failover,
    }
    return tuple(ability for ability, has in able.items() if has)


def card_name(node: str) -> str:
    """Return the volume name of a node's card."""
    return f"trimtab-node-{node}.json"


def write_card(conn: Connection, errors: type[Exception], pool: str, card: Card) -> None:
    """Leave a node's card where other nodes find it, unless it is there. Raises our errors."""
    if read_card(conn, errors, pool, card.node) == card:
        return
    content = json.dumps(asdict(card)).encode()
    storage.make_empty(conn, errors, pool, card_name(card.node))
    with telling(errors, "write the card of this node"):
        volume = conn.storagePoolLookupByName(pool).storageVolLookupByName(card_name(card.node))
        stream = conn.newStream(0)
        volume.upload(stream, 0, 0, 0)
        while content:
            content = content[stream.send(content) :]
        stream.finish()


def read_card(conn: Connection, errors: type[Exception], pool: str, node: str) -> Card | None:
    """Read the card that a node's libvirt wrote; None if there is none that can be parsed. Raises TrimtabError."""
    try:
        volume = storage.find(conn, errors, pool, card_name(node))
    except Declined:
        return None
    if volume is None:
        return None
    content = b""
    with telling(errors, f"read the card of {node}"):
        stream = conn.newStream(0)
        volume.download(stream, 0, 0, 0)
        while len(content) < CARD_BYTES_MAX and (piece := stream.recv(CARD_BYTES_MAX)):
            content += piece
        with suppress(errors):
            stream.finish()
    return _card(content)


def _card(content: bytes) -> Card | None:
    try:
        found = json.loads(content)
        return Card(**_checked(found))
    except (ValueError, TypeError, RecursionError):
        return None


def _checked(found: Any) -> Mapping[str, Any]:
    kinds = {"node": str, "memory_mib": int, "core_mhz": float, "core_frac": float, "cgroup": int, "partition": str}
    if not isinstance(found, dict) or set(found) != {field.name for field in fields(Card)}:
        raise ValueError("no card")
    if any(not isinstance(found[key], kind) or isinstance(found[key], bool) for key, kind in kinds.items()):
        raise ValueError("no card")
    if not (found["core_mhz"] > 0 and 0 < found["core_frac"] <= 1 and found["cgroup"] in (1, 2)):
        raise ValueError("no card")
    return found
