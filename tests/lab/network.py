"""The lab's network: a switch in a network namespace of its own, one cable to each host, one to the machine.

Each host has a bridge `br0` with its cable `eth0` in it; guests are put into that bridge, so that a guest keeps its
addresses when it moves. Lab number n of a machine has the network 10.99.n.0/24: the machine is .1, host k is .10 + k,
guests may have .100 to .254.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.lab.errors import LabError

SWITCH = "switch"
TO_MACHINE = "machine"  # the switch's end of the cable to the machine
HOSTS_MAX = 80
LABS_MAX = 200
COMMAND_LIMIT_S = 20.0


def address(number: int, host: int) -> str:
    """Of host 1, 2, ... in lab `number`; host 0 gives the machine's own."""
    return f"10.99.{number}.{10 + host if host else 1}"


def interface(number: int) -> str:
    """The machine's end of its cable to a lab."""
    return f"ttlab{number}"


def ip(lines: Sequence[str], pid: int | None = None) -> None:
    """Run lines of `ip -batch`, in the network namespace of a process. Raises LabError with what `ip` says."""
    enter = [] if pid is None else ["nsenter", "--target", str(pid), "--net", "--"]
    done = subprocess.run(
        [*enter, "ip", "-batch", "-"],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_LIMIT_S,
    )
    if done.returncode:
        raise LabError(f"ip: {' / '.join(done.stderr.split(chr(10)))}")


def claim(guardian: int) -> int:
    """Lay the cable between the machine and the namespace of the process `guardian`; the number of the network, the
    first that is free on this machine. The cable goes when that namespace goes."""
    for number in range(LABS_MAX):
        if _in_use(number):
            continue
        try:
            ip([f"link add {interface(number)} type veth peer name {TO_MACHINE} netns {guardian}"])
        except LabError as error:
            if "exists" in str(error):  # another lab was faster
                continue
            raise
        ip([f"address add {address(number, 0)}/24 dev {interface(number)}", f"link set {interface(number)} up"])
        return number
    raise LabError(f"this machine has {LABS_MAX} labs already, or other uses for 10.99.0.0/16")


def _in_use(number: int) -> bool:
    """Whether the machine has a route into the network."""
    done = subprocess.run(
        ["ip", "-4", "route", "show", "root", f"10.99.{number}.0/24"],
        capture_output=True,
        check=True,
        timeout=COMMAND_LIMIT_S,
    )
    return bool(done.stdout.strip())


def make_switch() -> None:
    """In this process's namespace. It forgets after 10 s where a guest was that it has not heard since: one that has
    moved, and whose announcement was lost, is found by asking everywhere, not after the usual five minutes."""
    ip(
        [
            "link set lo up",
            f"link add name {SWITCH} type bridge forward_delay 0 mcast_snooping 0 ageing_time 1000",
            f"link set {SWITCH} up",
        ]
    )


def plug_machine() -> None:
    """Put the cable to the machine into the switch."""
    ip([f"link set {TO_MACHINE} master {SWITCH} up"])


def plug_host(host: str, host_address: str, pid: int) -> None:
    """Lay a cable from the switch to the namespace of process `pid`, and give the host its bridge and address. Its
    hardware address is the same at every boot, so that nobody has to learn it anew."""
    hardware = "02:54:" + ":".join(f"{int(part):02x}" for part in host_address.split("."))
    ip(
        [
            f"link add name {host} type veth peer name eth0 address {hardware} netns {pid}",
            f"link set {host} master {SWITCH} up",
        ]
    )
    ip(
        [
            "link set lo up",
            f"link add name br0 address {hardware} type bridge forward_delay 0 mcast_snooping 0",
            "link set eth0 master br0 up",
            f"address add {host_address}/24 dev br0",
            "link set br0 up",
        ],
        pid,
    )


def unplug_host(host: str) -> None:
    """Take the host's cable away."""
    ip([f"link delete {host}"])


def cut(host: str) -> None:
    """Frames to and from the host are lost; it sees no fault on its own cable."""
    ip([f"link set {host} nomaster"])


def restore(host: str) -> None:
    """End a cut."""
    ip([f"link set {host} master {SWITCH}"])
