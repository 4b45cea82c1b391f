"""A Linux machine of one's own in a container: systemd, D-Bus and polkit run in it as on a real host, with the files of
this one under an overlay that is thrown away.

Its mounts and processes are in namespaces of their own that die with the test process; its folder and its cgroups are
removed then, too.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from shared.base.clock import SystemClock
from tests.integration import debian

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("systemd-nspawn", "nsenter", "setpriv", "unshare", "dbus-daemon", "pkaction")
PACKAGES = ("systemd-container", "util-linux", "dbus", "polkitd")
BOOT_LIMIT_S = 60.0
RUN_LIMIT_S = 30.0
LOOK_S = 0.05
CGROUPS = "/run/cgroup"  # on a machine: hierarchies of version 1 that are passed on
HOME = "/opt/trimtab"  # where the units expect Trimtab to be installed
# Where the files in systemd/ go on a host, as docs/how-to/install.md says.
PLACES = {
    ".service": "/etc/systemd/system/{name}",
    ".socket": "/etc/systemd/system/{name}",
    ".rules": "/etc/polkit-1/rules.d/{name}",
    ".dbus": "/usr/share/dbus-1/system.d/{stem}.conf",
    ".sysusers": "/usr/lib/sysusers.d/{stem}.conf",
    ".tmpfiles": "/usr/lib/tmpfiles.d/{stem}.conf",
}
SCRIPT = """set -e
for group in $2; do echo 0 >"$group/cgroup.procs"; done
mkdir -p /run/systemd/nspawn
mount -t tmpfs trimtab-machine /run/systemd/nspawn
mount -t tmpfs -o size=2g trimtab-machine "$1"
layer="${4:-$1}"
mkdir -p "$1/root" "$layer/upper" "$layer/work"
mount -t overlay trimtab-machine -o "lowerdir=$3,upperdir=$layer/upper,workdir=$layer/work" "$1/root"
[ -z "$5" ] || touch "$1/network"
[ -z "$5" ] || mount --bind /proc/self/ns/net "$1/network"
at="$1"
shift 5
exec systemd-nspawn -D "$at/root" "$@"
"""
GUARD = """read -r line
for group in "$@"; do
    tries=0
    while [ -d "$group" ] && [ $tries -lt 600 ]; do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.05
        tries=$((tries + 1))
    done
done
rm -f "$0.log"
rmdir "$0"
"""
_CLOCK = SystemClock()


class Machine:
    """A machine that runs; `pid` is its systemd as this host sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.root = Path(f"/proc/{pid}/root")

    def inside(self, argv: Sequence[str], user: str | None = None) -> list[str]:
        """The command that runs `argv` on the machine, as root or as one of its users."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]
        become = ["setpriv", f"--reuid={user}", f"--regid={self._group(user)}", "--init-groups"] if user else []
        return [*enter, *become, *argv]

    def run(
        self,
        argv: Sequence[str],
        user: str | None = None,
        *,
        check: bool = True,
        text: str = "",
        variables: Mapping[str, str] | None = None,
        limit_s: float = RUN_LIMIT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the machine with `text` as its input. Raises AssertionError with what it printed where it
        fails, unless `check` is false."""
        done = subprocess.run(
            self.inside(argv, user),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **(variables or {})},
        )
        if check and done.returncode:
            raise AssertionError(f"{shlex.join(argv)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def _group(self, user: str) -> str:
        """The id of a user's group."""
        users = (line.split(":") for line in self.text("/etc/passwd").splitlines())
        return next(fields[3] for fields in users if fields[0] == user)

    def python(self, code: str, user: str | None = None, *arguments: str) -> str:
        """What a Python program prints that has Trimtab and all that it needs."""
        return self.run([f"{HOME}/bin/python", "-c", code, *arguments], user).stdout

    def put(self, path: str, content: str | bytes, mode: int = 0o644, user: str = "root") -> None:
        """Write a file, with the folders that it needs."""
        self.run(["mkdir", "-p", str(Path(path).parent)])
        target = self.root / path.lstrip("/")
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        target.chmod(mode)
        if user != "root":
            self.run(["chown", f"{user}:", path])

    def text(self, path: str) -> str:
        """What is in a file."""
        return (self.root / path.lstrip("/")).read_text()

    def unit(self, name: str, text: str) -> None:
        """Write a unit and let systemd read it."""
        self.put(f"/etc/systemd/system/{name}", text)
        self.run(["systemctl", "daemon-reload"])

    def state(self, unit: str) -> str:
        """The ActiveState of a unit."""
        return self.run(["systemctl", "show", "-P", "ActiveState", unit]).stdout.strip()

    def journal(self, unit: str) -> str:
        """What a unit has printed, for messages of tests that fail."""
        return self.run(["journalctl", "--no-pager", "-o", "cat", "-u", unit], check=False).stdout

    def install(self) -> None:
        """Put Trimtab's units, rules, users and folders where an operator puts them. Nothing is started."""
        for file in sorted(path for path in (ROOT / "systemd").iterdir() if path.is_file()):
            place = PLACES[file.suffix].format(name=file.name, stem=file.stem)
            self.put(place, file.read_text("utf-8"))
        for daemon in ("agent", "controller", "portal"):
            self.run(["systemd-sysusers", f"trimtab-{daemon}.conf"])
            self.run(["systemd-tmpfiles", "--create", f"trimtab-{daemon}.conf"])
        self.run(["systemctl", "daemon-reload"])
        self.run(["systemctl", "reload-or-restart", "dbus"])

    def make_home(self) -> None:
        """A virtual environment at the place of the units, of the interpreter and the packages of the tests."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.put(f"{HOME}/pyvenv.cfg", "home = /opt/python/bin\ninclude-system-site-packages = false\n")
        self.put(f"{HOME}/lib/{version}/site-packages/trimtab.pth", "/opt/packages\n/opt/source\n")
        # where the interpreter's library is in a home, which the sandboxes hide
        self.put("/etc/ld.so.conf.d/000-trimtab.conf", "/opt/python/lib\n")
        self.run(["ldconfig"])
        self.run(["mkdir", "-p", f"{HOME}/bin"])
        self.run(["ln", "-s", f"/opt/python/bin/{version}", f"{HOME}/bin/python"])
        for name, module in (
            ("trimtab", "daemons.cli.main"),
            ("trimtab-agent", "agents.service.main"),
            ("trimtab-lease", "agents.lease.service"),
            ("trimtab-controller", "daemons.service.main"),
            ("trimtab-portal", "daemons.portal.main"),
        ):
            start = f"#!{HOME}/bin/python\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n"
            self.put(f"{HOME}/bin/{name}", start, 0o755)


@contextmanager
def machine() -> Iterator[Machine]:
    """A machine with this one's files that has booted, with Trimtab at `HOME` and its systemd files in place; see
    `bare_machine`."""
    python, packages = sys.base_prefix, sysconfig.get_path("purelib")
    places = {python: "/opt/python", packages: "/opt/packages", str(ROOT): "/opt/source"}
    with bare_machine(Path("/"), Setup(binds=places)) as running:
        running.make_home()
        running.install()
        yield running


@dataclass(frozen=True, slots=True)
class Setup:
    """What a machine is beside its files. `target`: what its systemd starts. `layer`: the folder in which what it
    writes is kept, for another boot (None: in memory, gone with it). `network`: the file of its network namespace ("":
    one of its own, with nothing in it). `controllers`: of cgroups of version 1, mounted below `CGROUPS` if this host
    has them there, for programs that know both versions. `binds`: folders of this host that it sees, and where;
    `devices`: those that it may use."""

    target: str = "basic.target"
    layer: Path | None = None
    network: str = ""
    controllers: tuple[str, ...] = ()
    binds: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()


@contextmanager
def bare_machine(lower: Path, setup: Setup | None = None) -> Iterator[Machine]:
    """A machine that has booted with the files of a folder, which stay as they are; gone afterwards, at once, as one
    that loses power.

    Its cgroups are of version 2, so that units can be frozen, with the controllers that this host has there. Skips the
    test, or fails it when CI=true, where that is not possible.
    """
    setup = setup or Setup()
    debian.need_root("a machine in a container")
    debian.need_programs(PROGRAMS, PACKAGES)
    folder = Path(tempfile.mkdtemp(prefix="trimtab-machine-"))
    log = folder.with_suffix(".log")
    of_systemd = [group / folder.name for group in _own_groups()]
    passed_on = {name: group / folder.name for name, group in _groups_of(setup.controllers)}
    groups = [*of_systemd, *passed_on.values()]
    with _removed_at_the_end(folder, groups):
        try:
            for group in groups:
                group.mkdir()
        except OSError as error:
            debian.go_without(f"a machine in a container needs cgroups of its own: {error}")
        shared = {str(group): f"{CGROUPS}/{name}" for name, group in passed_on.items()}
        shared |= {device: device for device in setup.devices}
        with log.open("wb") as printed:
            process = subprocess.Popen(
                _command(folder, groups, lower, setup, shared),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )
        try:
            yield _booted(process, log)
        finally:
            process.kill()  # the namespace of its processes ends with it
            process.wait(RUN_LIMIT_S)


@contextmanager
def _removed_at_the_end(folder: Path, groups: Sequence[Path]) -> Iterator[None]:
    """Remove a folder, its log and cgroups as soon as the last process has left them; by a process that does so also
    when this one is killed."""
    words = ["sh", "-c", GUARD, str(folder), *map(str, groups)]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        guard.communicate(timeout=2 * RUN_LIMIT_S)
        left = [str(group) for group in groups if group.exists()]
        assert not left, f"{left} are still in use"


def _own_groups() -> Iterator[Path]:
    """The cgroups of this process that systemd keeps its units in: that of version 2, and its own of version 1."""
    for place, kind, options, path in _hierarchies():
        if kind == "cgroup2" or "name=systemd" in options:
            yield place / path


def _groups_of(controllers: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The cgroups of version 1 of this process that have these controllers, by their names."""
    for place, kind, options, path in _hierarchies():
        for name in controllers:
            if kind == "cgroup" and name in options:
                yield name, place / path


def _hierarchies() -> Iterator[tuple[Path, str, list[str], str]]:
    """Where each hierarchy of cgroups is mounted, of which kind and with what, and this process's place in it."""
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    of = {kind: path.lstrip("/") for _, kind, path in groups}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2" and "" in of:
            yield Path(place), kind, [], of[""]
        elif kind == "cgroup":
            own = [path for names, path in of.items() if names and set(names.split(",")) <= set(options.split(","))]
            if own:
                yield Path(place), kind, options.split(","), own[0]


def _command(folder: Path, groups: Sequence[Path], lower: Path, setup: Setup, shared: Mapping[str, str]) -> list[str]:
    """What starts the machine; its mounts and processes end with it, and it ends with this thread."""
    return [
        *(("nsenter", f"--net={setup.network}", "--") if setup.network else ()),
        *debian.OWN,
        *("sh", "-c", SCRIPT, "sh", str(folder), " ".join(map(str, groups)), str(lower), str(setup.layer or "")),
        setup.network,
        *((f"--network-namespace-path={folder}/network",) if setup.network else ("--private-network",)),
        "--capability=CAP_NET_ADMIN",
        *("--boot", "--register=no", "--keep-unit", "--quiet", "--console=pipe"),
        *("--link-journal=no", f"--machine=trimtab-{os.getpid()}"),
        *(f"--bind-ro={here}:{there}" for here, there in setup.binds.items()),
        *(f"--bind={here}:{there}" for here, there in shared.items()),
        f"systemd.unit={setup.target}",
    ]


def _booted(process: subprocess.Popen[bytes], log: Path) -> Machine:
    """The machine once it runs; the test is left where it does not in time."""
    until_s = _CLOCK.monotonic_s() + BOOT_LIMIT_S
    while _CLOCK.monotonic_s() < until_s and process.poll() is None:
        for pid in _descendants(process.pid):
            found = Machine(pid)
            if _is_systemd(pid) and (found.root / "run/systemd/private").exists() and _runs(found):
                return found
        _CLOCK.sleep(LOOK_S)
    return debian.go_without(f"no machine could be booted: {log.read_text(errors='replace')[-500:]}")


def _descendants(pid: int) -> Iterator[int]:
    """The processes that one has started, with theirs."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from _descendants(int(child))


def _is_systemd(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/comm").read_text() == "systemd\n"
    return False


def _runs(found: Machine) -> bool:
    """Whether systemd has started what it was asked to."""
    with suppress(subprocess.TimeoutExpired):
        said = found.run(["systemctl", "is-system-running"], check=False, limit_s=5.0).stdout.strip()
        return said in ("running", "degraded")
    return False
