"""A lab: several hosts with a libvirtd each, on this one machine.

    with lab_hosts(3) as lab:
        first, second, third = lab.hosts
        first.make_pools()
        first.virsh("define", "guest.xml")
        first.power_off()

A host has a network, a name, mounts and processes of its own, its own /etc/libvirt, /var/lib/libvirt and /run, and a
share of the machine's CPU. Everything hangs on a guardian process and is gone when the `with` ends: also after an
exception, Ctrl-C, SIGTERM and kill -9 of this process. docs/reference/lab.md says how.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from shared.base.clock import SystemClock
from tests.lab import certificates, configuration, network, plan, remains
from tests.lab.errors import LabError
from tests.lab.namespaces import HostProcess, inside
from tests.lab.partitions import Partitions, find_partitions

ROOT = Path(__file__).resolve().parents[2]
SOCKET_CHARACTERS_MAX = 107
SOCKET_CHARACTERS = 36  # what the longest socket of a host, libvirt-sock-ro, has beyond the lab's folder
GUARDIAN_LIMIT_S = 30.0
ANSWER_LIMIT_S = 60.0
START_LIMIT_S = 60.0
RUN_LIMIT_S = 60.0
LOOK_S = 0.02
_CLOCK = SystemClock()
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class HostSpec:
    """What each host of a lab has. Its guests together get `cores` * `core_frac` of the machine's CPUs; cores of
    `core_mhz` and `memory_mib` are what the node should declare. `tls`: libvirtd listens with certificates too."""

    cores: int = 1
    core_mhz: float = 1000.0
    core_frac: float = 0.5
    memory_mib: int = 512
    tls: bool = False

    @property
    def cpus(self) -> float:
        """How many of the machine's CPUs its guests get together."""
        return self.cores * self.core_frac


class Host:
    """One host. `name` "h1", ..; `address` in the lab's network; `folder` holds its disk and its /run; `uri` reaches
    its libvirtd from the machine and from every host; `partition` is libvirt's resource partition of its guests."""

    def __init__(self, lab: Lab, name: str, address: str, spec: HostSpec) -> None:
        self.lab = lab
        self.name = name
        self.address = address
        self.spec = spec
        self.folder = lab.folder / name
        self.partition = f"/{lab.name}/{name}"
        self.socket = self.folder / "run/libvirt/libvirt-sock"
        self.uri = f"qemu+unix:///system?socket={self.socket}"

    @property
    def has_power(self) -> bool:
        """Whether its processes can run."""
        return (self.folder / plan.FIRST).exists()

    @property
    def first_pid(self) -> int:
        """Its first process, as the machine sees it. Raises LabError when it has no power."""
        return self._pid(plan.FIRST, "has no power")

    @property
    def libvirtd_pid(self) -> int:
        """Its libvirtd, as the machine sees it. Raises LabError when that was not started or was ended."""
        return self._pid(plan.LIBVIRTD, "has no libvirtd")

    @property
    def cpu_used_s(self) -> float:
        """CPU time of all its guests since the host got power."""
        return self.lab.partitions.used_s(self.partition)

    def popen(
        self,
        argv: Sequence[str],
        *,
        folder: Path = ROOT,
        variables: Mapping[str, str] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> HostProcess:
        """Start a program on the host, in a folder of it, without input; it ends with the host. Raises LabError when
        the host has no power."""
        process = HostProcess(
            inside(self.first_pid, argv, folder),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **(variables or {})},
            start_new_session=True,
        )
        self.lab.processes.append(process)
        return process

    def run(
        self, argv: Sequence[str], *, check: bool = True, text: str = "", limit_s: float = RUN_LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the host with `text` as its input. Raises LabError with what it printed where it fails,
        unless `check` is false, and when the host has no power."""
        done = subprocess.run(
            inside(self.first_pid, argv, ROOT), input=text, capture_output=True, text=True, check=False, timeout=limit_s
        )
        if check and done.returncode:
            raise LabError(f"{self.name}: {argv!r}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def virsh(self, *arguments: str, check: bool = True, limit_s: float = RUN_LIMIT_S) -> str:
        """What one command of virsh prints on this host."""
        return self.run(["virsh", "-q", *arguments], check=check, limit_s=limit_s).stdout.strip()

    def make_pools(self, *, shared_saves: bool = False) -> None:
        """Define and start its storage pools: `default` is its own, `shared` every host's, `trimtab-saved` the one or
        the other. Fine when they are there."""
        saves = (self.lab.shared if shared_saves else self.folder) / "saved"
        pools = {"default": self.folder / "volumes", "shared": self.lab.shared / "volumes", "trimtab-saved": saves}
        there = self.virsh("pool-list", "--all", "--name").split()
        lines = []
        for name, folder in pools.items():
            folder.mkdir(exist_ok=True)
            if name not in there:
                lines += [
                    f"pool-define-as {name} dir --target {folder}",
                    f"pool-start {name}",
                    f"pool-autostart {name}",
                ]
        if lines:
            # as one argument: what virsh reads from its input it keeps in a history, in the user's home
            self.virsh("; ".join(lines))

    def start_libvirtd(self, address_space_mib: int | None = None) -> None:
        """Start it and wait until it answers. What it starts, QEMU above all, may use `address_space_mib` of address
        space each, and so may it itself."""
        self.lab.ask("start_libvirtd", names=[self.name], address_space_mib=address_space_mib)
        self.wait_until_up()

    def stop_libvirtd(self) -> None:
        """In order; guests live on."""
        self.lab.ask("stop_libvirtd", names=[self.name])

    def kill_libvirtd(self) -> None:
        """With kill -9; guests live on."""
        self.lab.ask("kill_libvirtd", names=[self.name])

    def cut_network(self) -> None:
        """Everything that is sent to the host or by it is lost, its guests' too."""
        self.lab.ask("cut_network", names=[self.name])

    def restore_network(self) -> None:
        """End a cut."""
        self.lab.ask("restore_network", names=[self.name])

    def power_off(self) -> None:
        """All its processes, guests and all, die at once; returns when the last one has. Its disk stays. Fine when it
        has no power."""
        self.lab.ask("power_off", names=[self.name])

    def power_on(self) -> None:
        """A new boot, with a libvirtd that has no guests running; what was defined is there. Returns when libvirtd
        answers. Fine when it has power."""
        self.lab.ask("power_on", names=[self.name])
        self.wait_until_up()

    def wait_until_up(self) -> None:
        """Until its libvirtd answers. Raises LabError with libvirtd's words when it does not."""
        until_s = _CLOCK.monotonic_s() + START_LIMIT_S
        while not self._listens():
            self._check_start(until_s)
            _CLOCK.sleep(LOOK_S)
        try:
            self.virsh("uri", limit_s=until_s - _CLOCK.monotonic_s())
        except (LabError, subprocess.TimeoutExpired) as error:
            raise LabError(f"libvirtd of {self.name} does not answer: {error} {self._log()}") from error

    def _listens(self) -> bool:
        """Whether libvirtd takes connections, or will take those that wait; a socket may be left of a killed one."""
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def _check_start(self, until_s: float) -> None:
        late = _CLOCK.monotonic_s() > until_s
        if late or not Path(f"/proc/{self.libvirtd_pid}").exists():
            raise LabError(f"libvirtd of {self.name} {'takes too long' if late else 'has ended'}: {self._log()}")

    def _log(self) -> str:
        folder = self.folder / "var/log/libvirt"
        return "".join(file.read_text("utf-8", "replace")[-2000:] for file in sorted(folder.glob("libvirtd.*")))

    def _pid(self, file: str, otherwise: str) -> int:
        try:
            return int((self.folder / file).read_text("ascii"))
        except FileNotFoundError:
            raise LabError(f"{self.name} {otherwise}") from None


class Lab:
    """A lab that runs. `machine_address` is where its hosts reach this machine; `shared` is a folder that all see at
    the same path; `number` names its network, 10.99.`number`.0/24, in which guests may have .100 to .254."""

    def __init__(self, name: str, partitions: Partitions) -> None:
        self.name = name
        self.partitions = partitions
        self.folder = plan.folder_of(name)
        self.shared = self.folder / "shared"
        self.hosts: tuple[Host, ...] = ()
        self.processes: list[HostProcess] = []
        self.number = 0
        self.machine_address = ""
        self._guardian: subprocess.Popen[bytes] | None = None

    def start(self, count: int, spec: HostSpec) -> None:
        """Make the hosts and wait until each libvirtd answers."""
        if len(str(self.folder)) + SOCKET_CHARACTERS > SOCKET_CHARACTERS_MAX:
            raise LabError(f"the folder of temporary files has too long a name for sockets: {self.folder}")
        self.folder.mkdir(mode=0o755)
        (self.shared / "volumes").mkdir(parents=True)
        self._start_guardian()
        addresses = {f"h{index}": network.address(self.number, index) for index in range(1, count + 1)}
        self.hosts = tuple(Host(self, name, address, spec) for name, address in addresses.items())
        for host in self.hosts:
            configuration.write_host(host.folder, host.name, addresses, spec.tls)
        if spec.tls:
            certificates.write_all(self.folder, addresses)
        hosts = (
            plan.HostPlan(host.name, host.address, host.partition, spec.cpus, ("--listen",)) for host in self.hosts
        )
        plan.LabPlan(self.name, tuple(hosts)).write(self.folder)
        self.ask("open")
        self.ask("power_on", names=list(addresses))
        for host in self.hosts:
            host.wait_until_up()

    def _start_guardian(self) -> None:
        self._guardian = subprocess.Popen(
            [
                *("unshare", "--net", "--mount", "--propagation", "private", "--"),
                *(sys.executable, "-m", "tests.lab.guardian", str(self.folder)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
        )
        output = self._guardian.stdout
        if output is None or output.readline() != b"ready\n":
            raise LabError(f"the lab's guardian has ended: status {self._guardian.wait(GUARDIAN_LIMIT_S)}")
        self.number = network.claim(self._guardian.pid)
        self.machine_address = network.address(self.number, 0)

    def ask(self, do: str, **arguments: Any) -> None:
        """Have the guardian do something. Raises LabError with its words when it could not."""
        ask(self.folder, do, **arguments)

    def power_command(self, operation: str) -> tuple[str, ...]:
        """A command for the key `operation` (`wake`, `sleep` or `fence`) of `[power.exec]`, with `{node}` in it."""
        return (
            *("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.lab.power"),
            *("--lab", str(self.folder), operation, "{node}"),
        )

    def end(self) -> None:
        """Take everything away. Raises LabError when something could not be."""
        guardian, self._guardian = self._guardian, None
        try:
            if guardian:
                _end_guardian(guardian)
        finally:
            remains.remove_lab(self.name)
            for process in self.processes:
                process.kill()
                process.wait(GUARDIAN_LIMIT_S)


def ask(folder: Path, do: str, **arguments: Any) -> None:
    """Have the guardian of the lab in a folder do something. Raises LabError when it is not there or could not."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_LIMIT_S)
        try:
            connection.connect(str(folder / plan.SOCKET))
            connection.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
            with connection.makefile("rb") as stream:
                said = stream.readline()
        except OSError as error:
            raise LabError(f"no lab answers in {folder}: {error}") from error
    if not said.endswith(b"\n"):
        raise LabError(f"the guardian of the lab in {folder} has ended")
    if error_text := json.loads(said):
        raise LabError(f"{do}: {error_text}")


def _end_guardian(guardian: subprocess.Popen[bytes]) -> None:
    """It ends, with all it guards, when its input is closed."""
    for pipe in (guardian.stdin, guardian.stdout):
        if pipe:
            with suppress(OSError):
                pipe.close()
    try:
        status = guardian.wait(GUARDIAN_LIMIT_S)
    except subprocess.TimeoutExpired:
        guardian.kill()
        status = guardian.wait()
    if status:
        raise LabError(f"the lab's guardian has not ended well: status {status}")


@contextmanager
def lab_hosts(count: int, spec: HostSpec | None = None) -> Iterator[Lab]:
    """A lab of `count` hosts (1 to 80) whose libvirtds answer; gone afterwards. Needs root and the programs of
    `needs.py`. Raises LabError when it cannot be made or ended."""
    if not 1 <= count <= network.HOSTS_MAX:
        raise LabError(f"a lab has 1 to {network.HOSTS_MAX} hosts, not {count}")
    for tool in ("unshare", "nsenter", "ip", "libvirtd", "virsh"):
        if shutil.which(tool) is None:
            raise LabError(f"the lab needs the program {tool}")
    remains.remove_remains()
    lab = Lab(plan.new_name(next(_numbers)), find_partitions())
    try:
        lab.start(count, spec or HostSpec())
        yield lab
    finally:
        lab.end()
