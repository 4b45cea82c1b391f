"""Whether a VM can go to a node alive: what live migrations need and what nodes have, both as texts "kind=value".

`KINDS` and `BOUND` have every kind with its comparison and the sentence that says why a VM cannot move. A node that
lists a kind without a value ("bridge=") has none of it; a kind that a node does not list is unknown, and not lacking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from shared.values.texts import LABEL_LENGTH_MAX, REPLACEMENT

NUMBER_MAX = 1 << 16  # of a CPU or a NUMA cell
PIECE_LENGTH_MAX = 200  # characters of a list of numbers in one text
PAGES = "hugepages"
CELL_MEMORY = "numa-memory"
NAMED_PORTS: Mapping[str, int] = {"gluster": 24_007, "iscsi": 3_260, "rbd": 6_789}
"""Protocols of network disks that have a name beside their servers, with the port of a server that names none."""
PARSED_MAX = 4_096  # lists of features that are kept parsed

Values = frozenset[str]
Has = Callable[[str, Values], bool]


# --- comparisons: whether a node that lists these values of a kind has what is needed ---------------------------------


def _listed(value: str, listed: Values) -> bool:
    return value in listed


def _not_listed(value: str, listed: Values) -> bool:
    return value not in listed


def _same_source(value: str, listed: Values) -> bool:
    """Return whether a network disk is listed with its servers, or by an operator without any."""
    return value in listed or anywhere(value) in listed


def anywhere(value: str) -> str:
    """Return a network disk without its servers: "rbd:vms" of "rbd:vms@mon1,mon2", "nbd:store1" of "nbd:store1:10809"
    (of such a server its port is left out). One without either is returned as it is."""
    protocol, _, place = value.partition(":")
    if protocol in NAMED_PORTS:
        return f"{protocol}:{place.partition('@')[0]}"
    host, _, port = place.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    return f"{protocol}:{bare}" if host and port.isdecimal() and (bare != host or ":" not in host) else value


def _none(_value: str, _listed: Values) -> bool:
    return False


def _all_numbers(value: str, listed: Values) -> bool:
    needed = numbers(value)
    return bool(needed) and needed <= frozenset().union(*(numbers(one) for one in listed))


def _below(value: str, listed: Values) -> bool:
    """Return whether a folder is one of those that are listed, or below one; a path with ".." may lead anywhere."""
    if leads_up(value):
        return False
    return any(one and (value == one or value.startswith(one.rstrip("/") + "/")) for one in listed)


def leads_up(path: str) -> bool:
    """Return whether a path has a part "..": what it begins with does not say where it leads."""
    return ".." in path.split("/")


def _as_much(value: str, listed: Values) -> bool:
    size_kib, amount_mib = _amount(value)
    return amount_mib <= max((mib for kib, mib in map(_amount, listed) if kib == size_kib), default=0)


def _no_less(value: str, listed: Values) -> bool:
    return not value.isdecimal() or any(one.isdecimal() and int(value) <= int(one) for one in listed)


# --- the tables -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of need. `sentence`: why a VM cannot move, with `{value}` and `{node}` replaced. `has`: the comparison.
    `strict`: a node that reports features but does not list the kind lacks it. `of`: the kind whose list it is compared
    with ("": its own)."""

    sentence: str
    has: Has = _listed
    strict: bool = False
    of: str = ""


KINDS: Mapping[str, Kind] = {
    "arch": Kind("needs CPU architecture {value}, which {node} does not emulate"),
    "bound": Kind("", _none, strict=True),
    "bridge": Kind("bridge {value} is not on {node}"),
    "cpu": Kind("has its host's CPU, {value}; {node} has another one"),
    "cpu-flag": Kind("needs CPU feature {value}, which {node} lacks"),
    "cpu-forbid": Kind("must not run on a CPU with feature {value}, which {node} has", _not_listed, of="cpu-flag"),
    "cpu-model": Kind("needs CPU model {value}, which {node} cannot run"),
    "cpu-vendor": Kind("needs a CPU of {value}, which that of {node} is not"),
    "cpus": Kind("is pinned to CPUs {value}, of which {node} lacks some", _all_numbers),
    "direct": Kind("network device {value} is not on {node}"),
    "disk": Kind("network disk {value} was not verified on {node}", _same_source, strict=True),
    "emulator": Kind("emulator {value} is not on {node}"),
    "firmware": Kind("firmware {value} is not on {node}"),
    PAGES: Kind("", _as_much),
    "machine": Kind("machine type {value} is not on {node}"),
    "media": Kind("file {value} is not on {node}", strict=True),
    "network": Kind("network {value} is not active on {node}"),
    "numa": Kind("needs NUMA cells {value}, of which {node} lacks some", _all_numbers),
    CELL_MEMORY: Kind("needs {value} MiB in its NUMA cells, which {node} has not free", _no_less),
    "nvram": Kind("folder {value} of its firmware variables is not on {node}", _below),
    "nwfilter": Kind("network filter {value} is not defined on {node}"),
    "ovs": Kind("Open vSwitch bridge {value} is not on {node}"),
    "pool": Kind("storage pool {value} is not active on {node}"),
    "secret": Kind("secret {value} is not defined on {node}"),
    "shared": Kind("{node} does not see the shared folder {value}", _below),
    "snapshots": Kind("has snapshots, with which libvirt migrates no VM"),
    "storage": Kind("{node} has no active storage pool at {value}"),
    "tls": Kind("needs TLS for migrations, which {node} lacks"),
    "tpm": Kind("needs a TPM of type {value}, which {node} lacks"),
    "vf": Kind("SR-IOV virtual function {value} is not on {node}"),
    "virt": Kind("needs hypervisor {value}, which {node} lacks"),
}

# What keeps a VM on its node, wherever it might go; texts "bound=WHAT" or "bound=WHAT:DETAIL".
BOUND: Mapping[str, str] = {
    "3d-acceleration": "has 3D acceleration, which QEMU cannot migrate",
    "backup-job": "a backup is in progress",
    "block-job": "a block job is in progress{detail}",
    "capabilities-device": "uses host device{detail}",
    "filesystem-9p": "shares a folder with its host by 9p{named}",
    "filesystem-virtiofs": "shares a folder with its host by virtiofs{named}",
    "host-cdrom": "uses the CD-ROM drive of its host{named}",
    "host-character-device": "uses a serial or parallel port of its host{named}",
    "input-device": "uses an input device of its host{named}",
    "invtsc": "has the CPU feature invtsc without a fixed TSC frequency",
    "job": "an operation of libvirt is in progress",
    "launch-security": "has encrypted memory{named}",
    "listen-address": "its display listens on an address of its host{named}",
    "mdev": "uses a vGPU or another mediated device{named}",
    "nvdimm": "uses an NVDIMM of its host{named}",
    "nvme-disk": "uses an NVMe device of its host{named}",
    "pci-device": "uses PCI device{detail}",
    "scsi-device": "uses SCSI device{detail}",
    "scsi-host": "uses SCSI host adapter{detail}",
    "scsi-lun": "sends SCSI commands to a device of its host{named}",
    "sgx": "has SGX memory",
    "shared-memory": "shares memory with its host{named}",
    "smartcard": "uses a smartcard of its host",
    "snapshot-job": "a snapshot is being made",
    "sr-iov": "uses SR-IOV network device{detail} without transient teaming",
    "tap-device": "uses a tap device that somebody else made{named}",
    "tpm-passthrough": "uses the TPM of its host{named}",
    "usb-device": "uses USB device{detail}",
    "vdpa": "uses a vDPA device{named}",
    "vhost-user-disk": "uses a vhost-user disk{named}",
    "vhost-user-interface": "uses a vhost-user network interface{named}",
    "virtio-pmem": "uses persistent memory of its host{named}",
}
TEMPORARY = frozenset({"backup-job", "block-job", "job", "snapshot-job"})  # of BOUND: they pass


# --- texts ----------------------------------------------------------------------------------------------------------


def feature(kind: str, value: str) -> str:
    """Return the text of a need or of a feature, in a form that labels may have. A value that is too long is cut, and
    ends with a digest of all of it."""
    text = "".join(one if one.isprintable() else REPLACEMENT for one in f"{kind}={value}")
    if len(text) <= LABEL_LENGTH_MAX:
        return text
    mark = "~" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return text[: LABEL_LENGTH_MAX - len(mark)] + mark


def bound(what: str, detail: str = "") -> str:
    """Return the need of a VM that can go to no other node. Raises KeyError for what is not in `BOUND`."""
    if what not in BOUND:
        raise KeyError(what)
    return feature("bound", f"{what}:{detail}" if detail else what)


def parted(text: str) -> tuple[str, str]:
    """Return kind and value of a text. The size of hugepages is a part of the value: "2048=1024"."""
    kind, _, value = text.partition("=")
    if kind.startswith(f"{PAGES}-"):
        return PAGES, f"{kind[len(PAGES) + 1 :]}={value}"
    return kind, value


def of_kind(has: tuple[str, ...], kind: str) -> str:
    """Return the first value of a kind among such texts ("": there is none)."""
    return next((one.partition("=")[2] for one in has if one.startswith(f"{kind}=") and one != f"{kind}="), "")


def number_texts(kind: str, found: Iterable[int]) -> list[str]:
    """Return numbers as texts of a kind, such as "cpus=0-3,8": several where one would be too long; "cpus=" for
    none."""
    pieces, held = [], ""
    for piece in ranges(found).split(","):
        if held and len(held) + len(piece) >= PIECE_LENGTH_MAX:
            pieces.append(held)
            held = ""
        held = f"{held},{piece}" if held else piece
    return [feature(kind, piece) for piece in (*pieces, held)]


def ranges(found: Iterable[int]) -> str:
    """Return numbers in the form that `numbers` reads, such as "0-3,8"."""
    parts: list[list[int]] = []
    for number in sorted(set(found)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


def numbers(text: str) -> frozenset[int]:
    """Return the numbers in a list such as "0-7,^3,12" (libvirt's: `^` leaves one out). Empty for what is no such list,
    or has a number of 65,536 or above."""
    found: set[int] = set()
    for piece in text.replace(" ", "").split(","):
        first, dash, last = piece.lstrip("^").partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(first) > 5 or len(last) > 5:
            return frozenset()
        low, high = int(first), int(last or first)
        if high >= NUMBER_MAX:
            return frozenset()
        if piece.startswith("^"):
            found -= set(range(low, high + 1))
        else:
            found |= set(range(low, high + 1))
    return frozenset(found)


# --- comparing ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=PARSED_MAX)
def _by_kind(has: tuple[str, ...]) -> Mapping[str, Values]:
    found: dict[str, set[str]] = {}
    for text in has:
        kind, value = parted(text)
        listed = found.setdefault(kind, set())
        if value:
            listed.add(value)
    return {kind: frozenset(values) for kind, values in found.items()}


def lacks(has: tuple[str, ...], needs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the features that a VM needs of the target of a live migration and that a node with these features lacks;
    sorted.

    Of a node that lists nothing nothing is known; even there, `bound=` is lacking.
    """
    if not needs:
        return ()
    listed = _by_kind(has)
    return tuple(sorted(need for need in set(needs) if not _is_there(need, listed)))


def _is_there(need: str, listed: Mapping[str, Values]) -> bool:
    kind, value = parted(need)
    rule = KINDS.get(kind, _PLAIN)
    compared = rule.of or kind
    if compared in listed:
        return rule.has(value, listed[compared])
    return kind != "bound" and not (rule.strict and listed)


_PLAIN = Kind("needs {value}, which {node} lacks")  # a kind that only a later agent knows


def ties(needs: Iterable[str]) -> tuple[str, ...]:
    """Return those needs that no node can satisfy."""
    return tuple(need for need in needs if need.startswith("bound="))


# --- hugepages, and memory of NUMA cells ------------------------------------------------------------------------------

ORDINARY_KIB = 0  # stands for the size of pages that are no hugepages


@dataclass(frozen=True, slots=True)
class PageUse:
    """The memory that a VM holds of pools of its host. Hugepages: MiB by the size of a page in KiB. `cells`: NUMA cells
    that all its memory must be in (none: any). `bound_mib`: its other memory, where it must be in such cells."""

    mib_by_size_kib: tuple[tuple[int, int], ...] = ()
    cells: frozenset[int] = frozenset()
    bound_mib: int = 0

    @property
    def amounts(self) -> tuple[tuple[int, int], ...]:
        """All of it: MiB by the size of a page in KiB, `ORDINARY_KIB` included."""
        return (*self.mib_by_size_kib, *(((ORDINARY_KIB, self.bound_mib),) if self.bound_mib else ()))

    @property
    def total_mib(self) -> int:
        """Memory in hugepages of all sizes, in MiB; it is no part of a node's ordinary memory."""
        return sum(mib for _, mib in self.mib_by_size_kib)

    def of_size(self, size_kib: int) -> int:
        """Return the MiB in pages of one size, in KiB; of `ORDINARY_KIB` those that must be in its cells."""
        if size_kib == ORDINARY_KIB:
            return self.bound_mib
        return sum(mib for size, mib in self.mib_by_size_kib if size == size_kib)

    def share_of(self, size_kib: int, cells: frozenset[int]) -> int:
        """Return the MiB that it may hold in pages of one size in these NUMA cells (none: in all)."""
        return 0 if cells and self.cells and not self.cells & cells else self.of_size(size_kib)

    def draws(self) -> Iterator[tuple[int, frozenset[int], int]]:
        """Yield what must be free for it: the size of pages in KiB, NUMA cells (none: all together), and MiB there."""
        for size_kib, amount_mib in self.amounts:
            if size_kib != ORDINARY_KIB:
                yield size_kib, frozenset(), amount_mib
            if self.cells:
                yield size_kib, self.cells, amount_mib


NO_PAGES = PageUse()


def page_need(size_kib: int, amount_mib: int) -> str:
    """Return the text of a need, or of what a node has: MiB in hugepages of a size in KiB."""
    return f"{PAGES}-{size_kib}={amount_mib}"


def pages_of(needs: tuple[str, ...]) -> PageUse:
    """Return the hugepages that a VM with these needs holds, and the memory in NUMA cells that `with_cell_memory` has
    added to them."""
    found = [_amount(value) for kind, value in map(parted, needs) if kind == PAGES]
    bound = of_kind(needs, CELL_MEMORY)
    if not (found or bound):
        return NO_PAGES
    cells = frozenset[int]().union(*(numbers(value) for kind, value in map(parted, needs) if kind == "numa"))
    return PageUse(tuple(sorted(found)), cells, int(bound) if cells and bound.isdecimal() else 0)


def with_cell_memory(needs: tuple[str, ...], memory_mib: int) -> tuple[str, ...]:
    """Return the needs of a VM with its ordinary memory in MiB, where that must be in NUMA cells: agents report these
    cells alone."""
    if not any(one.startswith("numa=") for one in needs) or of_kind(needs, CELL_MEMORY):
        return needs
    bound_mib = ordinary_mib(memory_mib, needs)
    return (*needs, f"{CELL_MEMORY}={bound_mib}") if bound_mib else needs


def memory_needs(needs: tuple[str, ...]) -> tuple[str, ...]:
    """Return those needs that say which memory a VM holds: its hugepages, and the NUMA cells of all its memory."""
    if not any(one.startswith((PAGES, "numa=")) for one in needs):
        return ()
    return tuple(one for one in needs if parted(one)[0] in (PAGES, "numa"))


def ordinary_mib(memory_mib: int, needs: tuple[str, ...]) -> int:
    """Return how much of a VM's memory is not in hugepages, in MiB."""
    return max(0, memory_mib - pages_of(needs).total_mib) if any(one.startswith(PAGES) for one in needs) else memory_mib


def _amount(value: str) -> tuple[int, int]:
    """Return size in KiB and amount in MiB of "2048=1024"; (0, 0) for what is none."""
    size, _, amount = value.partition("=")
    return (int(size), int(amount)) if size.isdecimal() and amount.isdecimal() else (0, 0)


# --- sentences ------------------------------------------------------------------------------------------------------


def sentence(need: str, node: str = "the node", has: tuple[str, ...] = ()) -> str:
    """Return why a need keeps a VM off a node, in words. `has`: what the node has; of hugepages, and of its NUMA cells,
    what is free."""
    kind, value = parted(need)
    if kind == "bound":
        what, _, detail = value.partition(":")
        if what not in BOUND:  # of a later agent, or of nobody honest: its text is no format
            return f"is bound to its node by {what}{f': {detail}' if detail else ''}"
        return BOUND[what].format(detail=f" {detail}" if detail else "", named=f": {detail}" if detail else "")
    if kind == PAGES:
        size_kib, amount_mib = _amount(value)
        free = [mib for kib, mib in map(_amount, _by_kind(has).get(PAGES, frozenset())) if kib == size_kib]
        return f"needs {amount_mib:,} MiB of {_size(size_kib)} hugepages; {node} has {max(free, default=0):,} MiB free"
    if kind == CELL_MEMORY and value.isdecimal():
        free_mib = max((int(one) for one in _by_kind(has).get(kind, frozenset()) if one.isdecimal()), default=0)
        return f"needs {int(value):,} MiB in its NUMA cells; {node} has {free_mib:,} MiB free there"
    if kind in ("cpu-flag", "cpu-forbid", "cpu-model", "cpu-vendor"):  # "kvm:EPYC": others under another hypervisor
        value = value.partition(":")[2] or value
    return KINDS.get(kind, _PLAIN).sentence.format(value=value, node=node)


def _size(kib: int) -> str:
    for step, unit in ((1 << 20, "GiB"), (1 << 10, "MiB")):
        if kib >= step and kib % step == 0:
            return f"{kib // step} {unit}"
    return f"{kib} KiB"
