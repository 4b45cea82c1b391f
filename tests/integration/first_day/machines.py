"""Three machines of a Debian release joined by a switch, with what docs/how-to installs from Debian: libvirt, QEMU and
RabbitMQ as they are packaged, started by the machine's own systemd."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree

from tests.integration import debian
from tests.integration.debian_root import debian_root
from tests.integration.machine import Machine, Setup, bare_machine

NODES = ("n1", "n2", "n3")
DOMAIN = "example.org"
BROKER = "n1"
PACKAGES = (
    *("systemd", "systemd-sysv", "libpam-systemd", "dbus", "polkitd", "python3", "man-db", "ca-certificates"),
    *("libvirt-daemon-system", "libvirt-clients", "qemu-system-x86", "qemu-utils", "rabbitmq-server", "openssl"),
    *("iproute2", "openssh-client", "openssh-server", "apt", "dnsmasq-base", "iptables"),
)
# libvirt counts and shares CPU time by cgroups of either version; that of version 2 may have no controllers here.
SETUP = Setup("multi-user.target", controllers=("cpu", "cpuacct"), devices=("/dev/net/tun",))
# The kernel has booted once, a machine several times. systemd 252 gives the agent's unit a /proc in which the kernel's
# boot stands; with later ones it sees the machine's.
OWN_PROC = ("bookworm",)
BOOT_ID = "/srv/boot_id"
OWN_BOOT_ID = f"[Service]\nBindReadOnlyPaths={BOOT_ID}:/proc/sys/kernel/random/boot_id\n"
SCRIPT_LIMIT_S = 120.0
IP_LIMIT_S = 20.0


def root(suite: str) -> Path:
    """The files that every machine of a release begins with. Skips the test, or fails it when CI=true, without them."""
    return debian_root(suite, PACKAGES)


class Node:
    """A machine that can lose its power and boot again: what it has written stays. `machine`: while it has power."""

    machine: Machine

    def __init__(self, name: str, lower: Path, layer: Path, network: str) -> None:
        self.name = name
        self._lower, self._boots = lower, 0
        self._boot_id = layer / "upper" / BOOT_ID.lstrip("/")
        self._setup = Setup(SETUP.target, layer, network, controllers=SETUP.controllers, devices=SETUP.devices)
        self._power = ExitStack()

    def power_on(self) -> None:
        """Boot, until all is started that starts at a boot."""
        self._boots += 1
        self._boot_id.write_text(f"00000000-0000-4000-8000-{self._boots:012}\n")
        self.machine = self._power.enter_context(bare_machine(self._lower, self._setup))

    def power_off(self) -> None:
        """Take the power away: every process is killed."""
        self._power.close()

    def shell(self, script: str, *, text: str = "", limit_s: float = SCRIPT_LIMIT_S) -> str:
        """What a script of root's prints that stops at the first error. Raises AssertionError with all that it said."""
        as_root = ["runuser", "--login", "--whitelist-environment=LANG", "root", "-c", f"set -ex\n{script}"]
        return self.machine.run(as_root, text=text, limit_s=limit_s).stdout

    def put_home(self, name: str, content: str | bytes) -> None:
        """Write a file in root's home."""
        root = self.machine.text("/etc/passwd").splitlines()[0]
        self.machine.put(f"{root.split(':')[5]}/{name}", content)


class Network:
    """A switch with a cable to each machine, in network namespaces that end with this process."""

    def __init__(self, names: Sequence[str]) -> None:
        self._stack = ExitStack()
        self._switch = self._namespace()
        self._of = {name: self._namespace() for name in names}
        try:
            self._join()
        except BaseException:
            self.close()
            raise

    def file(self, name: str) -> str:
        """The network namespace of a machine."""
        return f"/proc/{self._of[name]}/ns/net"

    def close(self) -> None:
        """Take everything away."""
        self._stack.close()

    def _namespace(self) -> int:
        """A process that keeps a network namespace."""
        words = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--net", "--", "sh", "-c", "echo; exec sleep inf"]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._stack.callback(process.wait, IP_LIMIT_S)
        self._stack.callback(process.kill)
        assert process.stdout is not None
        self._stack.callback(process.stdout.close)
        process.stdout.readline()
        return process.pid

    def _join(self) -> None:
        """Each machine has a bridge br0 with its cable in it, as first-node.md wants for guests."""
        _ip(self._switch, ["link add name switch type bridge forward_delay 0", "link set switch up"])
        for name, pid in self._of.items():
            _ip(
                self._switch,
                [f"link add name {name} type veth peer name eth0 netns {pid}", f"link set {name} master switch up"],
            )
            _ip(
                pid,
                [
                    "link set lo up",
                    "link add name br0 type bridge forward_delay 0",
                    "link set eth0 master br0 up",
                    f"address add {address(name)}/24 dev br0",
                    "link set br0 up",
                ],
            )


def address(name: str) -> str:
    """Of a machine, n1 to n3."""
    return f"192.0.2.{10 + NODES.index(name) + 1}"


@contextmanager
def machines(suite: str) -> Iterator[Mapping[str, Node]]:
    """Three machines that have booted, by their names; nothing of them is left afterwards. Root of each may log in on
    the others."""
    lower = root(suite)
    debian.need_programs(["ip", "ssh-keygen"], ["iproute2", "openssh-client"])
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="trimtab-first-day-"))
        stack.callback(rmtree, folder, ignore_errors=True)
        network = Network(NODES)
        stack.callback(network.close)
        keys = _keys(folder)
        made = {}
        for name in NODES:
            layer = folder / name
            _prepare(suite, layer / "upper", name, keys)
            made[name] = Node(name, lower, layer, network.file(name))
            stack.callback(made[name].power_off)
            made[name].power_on()
        yield made


def _keys(folder: Path) -> Mapping[str, str]:
    """Those of root, and who may log in with them."""
    key = folder / "id_ed25519"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "root", "-f", str(key)]
    subprocess.run(words, check=True, timeout=IP_LIMIT_S)
    return {
        "id_ed25519": key.read_text(),
        "authorized_keys": key.with_suffix(".pub").read_text(),
        "config": "StrictHostKeyChecking accept-new\nLogLevel ERROR\n",
    }


def _prepare(suite: str, upper: Path, name: str, keys: Mapping[str, str]) -> None:
    """What is a machine's own: its name, who the others are, and that the broker runs on one machine alone."""
    (upper / "etc").mkdir(parents=True)
    (upper / "etc/hostname").write_text(f"{name}\n")
    (upper / "etc/resolv.conf").write_text("")  # nobody to ask
    hosts = [f"{address(one)} {one}.{DOMAIN} {one}" for one in NODES]
    (upper / "etc/hosts").write_text("\n".join(["127.0.0.1 localhost", "::1 localhost", *hosts, ""]))
    home = upper / "root"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    for file, text in keys.items():
        (home / ".ssh" / file).write_text(text)
        (home / ".ssh" / file).chmod(0o600)
    units = upper / "etc/systemd/system"
    units.mkdir(parents=True)
    (upper / "srv").mkdir()
    if suite in OWN_PROC:
        (units / "trimtab-agent.service.d").mkdir()
        (units / "trimtab-agent.service.d/boot-id.conf").write_text(OWN_BOOT_ID)
    if name != BROKER:
        for unit in ("rabbitmq-server.service", "epmd.service", "epmd.socket"):
            (units / unit).symlink_to("/dev/null")


def _ip(pid: int, lines: Sequence[str]) -> None:
    """Run lines of `ip -batch` in the network namespace of a process."""
    words = ["nsenter", "--target", str(pid), "--net", "--", "ip", "-batch", "-"]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False, timeout=IP_LIMIT_S)
    if done.returncode:
        raise AssertionError(f"ip: {done.stderr}")
