"""What the kernel of this machine says of its network devices, shared folders and SR-IOV functions: libvirt has no
complete list of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ETHERNET = "1"  # ARPHRD_ETHER
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.ceph", "glusterfs", "fuse.glusterfs"})
NETWORK_FILE_SYSTEMS |= {"fuse.sshfs", "gfs2", "ocfs2", "lustre", "beegfs", "gpfs", "9p"}
CONNECT_S = 2.0
NAMES_MAX = 512  # of each kind: a host with more has made them for its guests


@dataclass(frozen=True, slots=True)
class NetDevices:
    """Names of network devices. `bridges`: Linux bridges; `ovs`: what may be a bridge of Open vSwitch; `devices`: those
    that a macvtap device can be made on."""

    bridges: tuple[str, ...] = ()
    ovs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


class Machine(Protocol):
    """The machine that libvirt runs on."""

    def net_devices(self) -> NetDevices:
        """Return its network devices."""
        ...

    def shared_mounts(self) -> tuple[str, ...]:
        """Return the folders at which file systems are mounted that other machines can mount, too."""
        ...

    def virtual_functions(self) -> tuple[str, ...]:
        """Return the PCI addresses of its SR-IOV virtual functions."""
        ...

    def connects(self, host: str, port: int) -> bool:
        """Return whether a server of another machine takes a TCP connection now. Takes seconds."""
        ...


class LocalMachine:
    """The machine that this process runs on; `root` is where its `/sys` and `/proc` are. What cannot be read is not
    listed."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def net_devices(self) -> NetDevices:
        """Return the network devices of this process's network namespace."""
        found = sorted(self._within("sys/class/net"), key=lambda path: path.name)
        taps = {path for path in found if (path / "tun_flags").exists()}
        bridges = [path.name for path in found if (path / "bridge").is_dir()]
        has_ovs = any(path.name == "ovs-system" for path in found)
        ovs = [path.name for path in found if has_ovs and path not in taps and self._may_be_ovs(path)]
        devices = [path.name for path in found if path not in taps and _read(path / "type") == ETHERNET]
        return NetDevices(tuple(bridges[:NAMES_MAX]), tuple(ovs[:NAMES_MAX]), tuple(devices[:NAMES_MAX]))

    @staticmethod
    def _may_be_ovs(path: Path) -> bool:
        """Return whether this may be the internal port that each bridge of Open vSwitch has: a device of no other known
        kind, and not one end of a pair."""
        if path.name == "ovs-system" or _read(path / "type") != ETHERNET or (path / "device").exists():
            return False
        of_known_kind = "DEVTYPE=" in _read(path / "uevent") or (path / "bridge").exists()
        return not of_known_kind and _read(path / "iflink") == _read(path / "ifindex")

    def shared_mounts(self) -> tuple[str, ...]:
        """Return the folders at which network and cluster file systems are mounted."""
        lines = [line.split() for line in _read(self._root / "proc/self/mounts").splitlines()]
        found = {_unescaped(line[1]) for line in lines if len(line) > 2 and line[2] in NETWORK_FILE_SYSTEMS}
        return tuple(sorted(found)[:NAMES_MAX])

    def virtual_functions(self) -> tuple[str, ...]:
        """Return the PCI addresses of this machine's SR-IOV virtual functions."""
        found = [path.name for path in self._within("sys/bus/pci/devices") if (path / "physfn").exists()]
        return tuple(sorted(found)[:NAMES_MAX])

    def connects(self, host: str, port: int) -> bool:
        """Connect, and close the connection at once; false after `CONNECT_S`, and for what is no address."""
        try:
            with socket.create_connection((host, port), CONNECT_S):
                return True
        except (OSError, OverflowError, ValueError):
            return False

    def _within(self, folder: str) -> Iterator[Path]:
        with suppress(OSError):
            yield from (self._root / folder).iterdir()


class NoMachine:
    """A machine that this process cannot look at, since libvirt runs on another one."""

    def net_devices(self) -> NetDevices:
        """Return no device."""
        return NetDevices()

    def shared_mounts(self) -> tuple[str, ...]:
        """Return no folder."""
        return ()

    def virtual_functions(self) -> tuple[str, ...]:
        """Return no function."""
        return ()

    def connects(self, host: str, port: int) -> bool:  # noqa: ARG002
        """Return false: what this machine reaches says nothing of the other."""
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _unescaped(path: str) -> str:
    """Return a path of /proc/self/mounts, where blanks are octal numbers."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
