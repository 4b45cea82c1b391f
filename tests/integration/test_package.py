"""The Debian packages on a machine that has nothing of this one: installed, started, upgraded, removed, purged."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from daemons.store.schema import SCHEMA
from shared.base.clock import SystemClock
from tests.integration import debian, harness
from tests.integration.debian_root import SUITES, debian_root
from tests.integration.machine import Machine, bare_machine
from tests.integration.machine_scene import listener_on
from tests.integration.package_build import NAMES, NEXT, Packages, newer
from tests.integration.private_broker import PrivateBroker
from tests.integration.wire_cutter import WireCutter

AGENT, CONTROLLER, STORE = "trimtab-agent.service", "trimtab-controller.service", "trimtab-store.service"
HOME, AGENT_HOME = "/usr/lib/trimtab", "/usr/lib/trimtab-agent"
PYTHON = f"{HOME}/bin/python"
STATE = "/var/lib/trimtab-controller"
URL = f"sqlite:///{STATE}/controller.db"
NOBODY = "127.0.0.1:5671"  # no broker listens there: daemons begin and wait
FILES = {
    name: f'[bus]\nurl = "amqp://{user}@{NOBODY}/"\npassword_file = "credential:trimtab-{name}-password"\n{more}'
    for name, user, more in (
        ("controller", "controller.a", ""),
        ("agent", "agent.n1", '[node]\nname = "n1"\n[hypervisor]\ndriver = "process"\nuri = ""\n'),
    )
}
REMEMBER = f"""
from daemons.store import Batch, SqlStore
from shared.protocol.messages import Happened
store = SqlStore("{URL}")
store.take_lead("a")
store.append(Batch(events=(Happened(5.0, "kept", "x"),)))
"""
RECALL = f"""
from daemons.store import SqlStore
store = SqlStore("{URL}")
print(store.schema(), [event.what for event in store.events(5)])
"""
TABLES = f"""
import sqlite3
print(sqlite3.connect("{STATE}/controller.db").execute("SELECT version_num FROM trimtab_schema").fetchall())
"""
JOB = """
name = "x"
template = "fake:work=2000"
[[stages]]
work_mcycles = 2_000
max_mhz = 1_000
memory_mib = 100
"""
SLOW_BROKER = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=sleep 1\n"
QUICK_WATCHDOG = "[Service]\nWatchdogSec=2\n"
NODE, LEADER, PERSON = "apart-node", "apart", "apart"  # accounts of a broker that other tests have theirs on
SOON_S = 30.0
LOOK_S = 0.1
INSTALL_S, LINTIAN_S = 240.0, 600.0
_CLOCK = SystemClock()

AGENT_MIB = 15
# What an agent must not bring to each node.
HEAVY = ("numpy", "scipy", "matplotlib", "PIL", "sqlalchemy", "click")
# What is wrong with binaries of others as they are published, and left so: docs/adr/0025-debian-package.md.
ACCEPTED = {
    "unstripped-binary-or-object",
    "library-not-linked-against-libc",
    "custom-library-search-path",
    "embedded-library",
}


@dataclass(frozen=True, slots=True)
class Release:
    """The packages of this tree for a release of Debian, and their next version."""

    suite: str
    now: Packages
    next: Packages


@pytest.fixture(scope="module", params=SUITES)
def release(
    request: pytest.FixtureRequest, built: Callable[[str], Packages], tmp_path_factory: pytest.TempPathFactory
) -> Release:
    debian_root(request.param)  # what cannot be shown need not be built
    made = built(request.param)
    return Release(request.param, made, newer(made, tmp_path_factory.mktemp("next")))


@pytest.fixture
def host(release: Release) -> Iterator[Machine]:
    """A machine with all packages in /srv; none is installed."""
    with bare_machine(debian_root(release.suite)) as running:
        for place, packages in (("now", release.now), ("next", release.next)):
            for name, package in packages.items():
                running.put(f"/srv/{place}/{name}.deb", package.read_bytes())
        yield running


def dpkg(host: Machine, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return host.run(["dpkg", *words], check=check, limit_s=INSTALL_S)


def install(
    host: Machine, place: str, names: Sequence[str] = NAMES, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    return dpkg(host, "--install", *(f"/srv/{place}/{name}.deb" for name in names), check=check)


def shell(host: Machine, script: str, user: str | None = None) -> str:
    """What a script prints."""
    return host.run(["sh", "-ec", script], user, limit_s=SOON_S).stdout.strip()


def shown(host: Machine, unit: str, name: str) -> str:
    return host.run(["systemctl", "show", "-P", name, unit]).stdout.strip()


def wait_for(host: Machine, unit: str, what: str, true: Callable[[], bool]) -> float:
    """How long it takes in seconds until something is true."""
    from_s = _CLOCK.monotonic_s()
    while not true():
        assert _CLOCK.monotonic_s() - from_s < SOON_S, f"{what}\n{host.journal(unit)[-3000:]}"
        _CLOCK.sleep(LOOK_S)
    return _CLOCK.monotonic_s() - from_s


def configure(host: Machine) -> None:
    """As an operator does."""
    for name, text in FILES.items():
        put_file(host, name, text)


def put_file(host: Machine, daemon: str, text: str) -> None:
    host.put(f"/etc/trimtab/{daemon}.toml", text, 0o640)
    host.run(["chgrp", {"agent": "trimtab", "controller": "trimtab-controller"}[daemon], f"/etc/trimtab/{daemon}.toml"])


@pytest.mark.full
def test_the_package_from_its_installation_to_its_end(host: Machine) -> None:
    install(host, "now")
    installed(host)
    whole(host)
    refused_without_secrets(host)
    started_in_order(host)
    restarted(host)
    store_kept(host)
    upgraded(host)
    not_downgraded(host)
    removed(host)
    rolled_back(host)
    purged(host)


@pytest.mark.full
def test_an_agent_brings_little_to_its_node(host: Machine, release: Release) -> None:
    """Given the agent's package alone, then it checks its file with the driver for libvirt, without what it does not
    need."""
    assert release.now["trimtab-agent"].stat().st_size < AGENT_MIB << 20
    install(host, "now", ["trimtab-agent"])
    put_file(host, "agent", FILES["agent"].replace('driver = "process"\nuri = ""\n', 'driver = "libvirt"\n'))

    assert shell(host, "trimtab-agent --check && echo good") == "good"
    assert shell(host, f"{AGENT_HOME}/bin/python -c 'import libvirt; print(libvirt.getVersion() >= 9e6)'") == "True"
    looked = f"from importlib.util import find_spec; print([name for name in {HEAVY} if find_spec(name)])"
    assert host.run([f"{AGENT_HOME}/bin/python", "-c", looked]).stdout == "[]\n"
    assert shell(host, "ls /usr/bin/trimtab 2>/dev/null || echo none") == "none"


@pytest.mark.full
def test_lintian_finds_nothing_that_is_not_accepted(release: Release) -> None:
    debian.need_programs(["lintian"], ["lintian"])
    words = ["lintian", "--allow-root", "--fail-on", "none", *map(str, release.now.values())]
    said = subprocess.run(words, capture_output=True, text=True, timeout=LINTIAN_S, check=True).stdout
    errors = {line.split()[2] for line in said.splitlines() if line.startswith("E:")}
    assert errors <= ACCEPTED


@pytest.mark.full
def test_no_byte_code_is_shipped(release: Release) -> None:
    """It is made by the installation, for the Python that is there."""
    for package in release.now.values():
        names = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
        assert ".pyc" not in names


def installed(host: Machine) -> None:
    """Users, folders and units are there; nothing runs, nothing is enabled, and all is root's."""
    assert shell(host, "id -nG trimtab; id -nG trimtab-controller; id -nG trimtab-portal; id -nG trimtab-job").split(
        "\n"
    ) == [
        "trimtab libvirt",
        "trimtab-controller",
        "trimtab-portal",
        "trimtab-job",
    ]
    folders = ("/etc/trimtab", "/etc/credstore", "/var/lib/trimtab", STATE, f"{STATE}/backups")
    assert shell(host, f"stat -c '%n %a %U:%G' {' '.join(folders)}").splitlines() == [
        "/etc/trimtab 755 root:root",
        "/etc/credstore 700 root:root",
        "/var/lib/trimtab 711 trimtab:trimtab",
        f"{STATE} 711 trimtab-controller:trimtab-controller",
        f"{STATE}/backups 700 trimtab-controller:trimtab-controller",
    ]
    units = shell(host, "systemctl list-unit-files --no-legend 'trimtab*' | awk '{print $1, $2}'").splitlines()
    assert f"{AGENT} disabled" in units
    assert f"{CONTROLLER} disabled" in units
    assert [line for line in units if line.endswith("enabled")] == []
    assert shell(host, "systemctl list-units --no-legend --all 'trimtab*'") == ""
    assert shell(host, "ls /etc/trimtab") == ""
    assert shell(host, f"dpkg --verify {' '.join(NAMES)}") == ""
    assert shell(host, f"find $(dpkg -L {' '.join(NAMES)}) -maxdepth 0 ! -type d ! -user root") == ""
    assert shell(host, f"find {HOME} {AGENT_HOME} ! -type l -perm /022") == ""
    assert shell(host, f"find {HOME} {AGENT_HOME} -name __pycache__ | head -1 | wc -l") == "1"


def whole(host: Machine) -> None:
    """The commands, their manual pages and completions work, with what the extras bring."""
    assert shell(host, "trimtab --version").startswith("trimtab, version ")
    checks = json.loads(host.run(["trimtab", "doctor", "--output", "json"], check=False, limit_s=SOON_S).stdout)[
        "checks"
    ]
    assert [check["name"] for check in checks if not check["ok"]] == []
    assert shell(host, f"{PYTHON} -c 'import psycopg, starlette, matplotlib, scipy; print(True)'") == "True"
    pages = shell(host, "ls /usr/share/man/man[158]/trimtab*.[158].gz").split()
    assert len(pages) > 20
    assert shell(host, f"for page in {' '.join(pages)}; do man --warnings=w -l $page 2>&1 >/dev/null; done") == ""
    assert "trimtab store upgrade" in shell(host, "MANWIDTH=120 man -P cat trimtab-store")
    for daemon in ("trimtab-agent", "trimtab-controller", "trimtab-portal"):
        page = shell(host, f"MANWIDTH=120 man -P cat {daemon}")
        options = shell(host, f"{daemon} --help | grep -o -- '--[a-z]*' | sort -u").split()
        assert [option for option in options if option not in page] == []
    words = "_TRIMTAB_COMPLETE=bash_complete COMP_WORDS='trimtab st' COMP_CWORD=1 trimtab"
    assert shell(host, words).split() == ["plain,status", "plain,store"]
    source = "source /usr/share/bash-completion/completions/trimtab && complete -p trimtab"
    assert "_trimtab_completion" in host.run(["bash", "-c", source]).stdout


def refused_without_secrets(host: Machine) -> None:
    """Without its password a daemon says so once, and is not started again."""
    configure(host)
    assert shell(host, "trimtab-agent --check && trimtab-controller --check && echo good") == "good"

    done = host.run(["systemctl", "start", CONTROLLER], check=False)

    assert done.returncode != 0
    assert "trimtab-controller-password: No such file or directory" in host.journal(CONTROLLER)
    assert (shown(host, CONTROLLER, "ExecMainStatus"), shown(host, CONTROLLER, "ActiveState")) == ("2", "failed")
    assert shown(host, CONTROLLER, "NRestarts") == "0"


def started_in_order(host: Machine) -> None:
    """Given a broker that is slow to start, the controller waits for it; `start` returns when the daemons are ready.
    Passwords come from /etc/credstore, and only the unit sees them."""
    for name in ("agent", "controller"):
        host.put(f"/etc/credstore/trimtab-{name}-password", f"secret-{name}\n", 0o600)
    host.unit("rabbitmq-server.service", SLOW_BROKER)

    host.run(["systemctl", "start", "--no-block", "rabbitmq-server"])
    host.run(["systemctl", "start", CONTROLLER, AGENT], limit_s=SOON_S)

    assert [host.state(unit) for unit in (AGENT, CONTROLLER)] == ["active", "active"]
    began_us = int(shown(host, CONTROLLER, "ExecMainStartTimestampMonotonic"))
    assert began_us >= int(shown(host, "rabbitmq-server", "ActiveEnterTimestampMonotonic"))
    for unit in (AGENT, CONTROLLER):
        assert shown(host, unit, "Type") == "notify"
        assert "waiting for the broker" in shown(host, unit, "StatusText")
        passed = f"/run/credentials/{unit}"
        assert shell(host, f"ls {passed}").endswith("-password")
        refused = host.run(["ls", passed], "trimtab-job", check=False)
        assert refused.returncode != 0
        assert "secret-" not in host.journal(unit)


def restarted(host: Machine) -> None:
    """A daemon that is killed comes back after the pause of its unit, one that hangs by the watchdog."""
    pause_s = float(shown(host, AGENT, "RestartUSec").removesuffix("s"))
    assert pause_s >= 2.0  # a daemon that fails at once must not take the host's CPU

    def again(signal: str) -> float:
        pid = shown(host, AGENT, "MainPID")
        host.run(["systemctl", "kill", "-s", signal, AGENT])

        def back() -> bool:
            return shown(host, AGENT, "MainPID") not in ("0", pid) and host.state(AGENT) == "active"

        return wait_for(host, AGENT, f"{AGENT} does not come back", back)

    assert again("KILL") >= pause_s - 2 * LOOK_S
    host.put(f"/etc/systemd/system/{AGENT}.d/quick.conf", QUICK_WATCHDOG)
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "restart", AGENT], limit_s=SOON_S)
    again("STOP")
    assert "Watchdog timeout" in host.journal(AGENT)


def store_kept(host: Machine) -> None:
    """There is a store of this version with something in it."""
    host.run(["systemctl", "start", STORE], limit_s=SOON_S)
    host.run([PYTHON, "-c", REMEMBER], "trimtab-controller", limit_s=SOON_S)
    assert shell(host, f"{PYTHON} -c '{RECALL}'", "trimtab-controller") == f"{SCHEMA} ['kept']"


def upgraded(host: Machine) -> None:
    """What ran runs again, on a store of the next version with all that was in it; a backup of it is there."""
    host.run(["systemctl", "enable", AGENT, CONTROLLER])
    before = {unit: shown(host, unit, "MainPID") for unit in (AGENT, CONTROLLER)}

    said = install(host, "next")

    assert "not upgraded" not in said.stderr
    for unit in (AGENT, CONTROLLER):
        wait_for(host, unit, f"{unit} does not come back", lambda unit=unit: host.state(unit) == "active")  # type: ignore[misc]
        assert shown(host, unit, "MainPID") not in ("0", before[unit])
        assert shell(host, f"systemctl is-enabled {unit}") == "enabled"
    began_us = int(shown(host, CONTROLLER, "ExecMainStartTimestampMonotonic"))
    assert began_us >= int(shown(host, STORE, "ExecMainExitTimestampMonotonic")) > 0
    assert shell(host, "trimtab --version") == f"trimtab, version {NEXT}"
    assert shell(host, f"{PYTHON} -c '{RECALL}'", "trimtab-controller") == f"{SCHEMA + 1} ['kept']"
    backup = f"{STATE}/backups/version-{SCHEMA}-1.db"
    assert shell(host, f"stat -c '%a %U' {backup}") == "600 trimtab-controller"
    look = f'import sqlite3; print(sqlite3.connect("{backup}").execute("SELECT what FROM events").fetchall())'
    assert shell(host, f"{PYTHON} -c '{look}'") == "[('kept',)]"


def not_downgraded(host: Machine) -> None:
    """The version before is refused, says the way back, and all goes on."""
    before = shown(host, CONTROLLER, "MainPID")

    for name, way in (("trimtab", "trimtab store restore --force FILE"), ("trimtab-agent", "agent.journal")):
        done = install(host, "now", [name], check=False)
        assert done.returncode != 0
        assert f"{name}: {NEXT}+deb" in done.stderr
        assert way in done.stderr
        said = shell(host, "dpkg-query -W -f '${Version} ${Status}' " + name)
        assert (said.startswith(NEXT), said.endswith("install ok installed")) == (True, True)
    assert (shown(host, CONTROLLER, "MainPID"), host.state(CONTROLLER)) == (before, "active")


def removed(host: Machine) -> None:
    """Nothing runs any more; configuration, passwords and state are as they were."""
    dpkg(host, "--remove", *NAMES)

    assert shell(host, "pgrep -f /usr/lib/trimtab || echo none") == "none"
    assert shell(host, f"ls -d {HOME} {AGENT_HOME} 2>/dev/null || echo none") == "none"
    assert shell(host, "systemctl list-units --no-legend --all --state=active,activating,failed 'trimtab*'") == ""
    assert shell(host, "ls /etc/trimtab").split() == ["agent.toml", "controller.toml"]
    shell(host, f"test -s /var/lib/trimtab/agent.journal && test -s {STATE}/controller.db")


def rolled_back(host: Machine) -> None:
    """The version before is installed again: what was enabled still is, and starts once the store is as it was."""
    install(host, "now")
    for unit in (AGENT, CONTROLLER):
        assert shell(host, f"systemctl is-enabled {unit}") == "enabled"
        assert host.state(unit) != "active"
    backup = f"{STATE}/backups/version-{SCHEMA}-1.db"
    restore = ["trimtab", "store", "restore", backup, "--force"]
    host.run([*restore, "--url", URL], "trimtab-controller", limit_s=SOON_S)
    host.run(["systemctl", "start", CONTROLLER, AGENT], limit_s=SOON_S)
    assert [host.state(unit) for unit in (AGENT, CONTROLLER)] == ["active", "active"]


def purged(host: Machine) -> None:
    """Nothing is left but the accounts."""
    host.run(["rm", "-r", f"/etc/systemd/system/{AGENT}.d"])  # this test's own

    dpkg(host, "--purge", *NAMES)

    elsewhere = " ".join(f"! -path '{path}/*'" for path in ("/srv", "/proc", "/sys", "/var/cache/man"))
    left = f"find / -xdev -name '*trimtab*' {elsewhere}"
    assert shell(host, left) == ""
    assert shell(host, "id -un trimtab trimtab-controller").split() == ["trimtab", "trimtab-controller"]


class Apart:
    """The installed agent on the machine, and beside it the controller of the next version, out of a folder."""

    def __init__(self, host: Machine, broker: PrivateBroker, port: int, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.vhost = f"apart-{os.getpid()}"
        admin = {"TRIMTAB_BROKER_ADMIN": f"{broker.user}:{broker.password}"}
        accounts = ["--nodes", NODE, "--controllers", LEADER, "--operators", PERSON, "--vhost", self.vhost]
        reached = ["--management", f"http://127.0.0.1:{broker.management}", "--host", f"127.0.0.1:{port}", "--plain"]
        # On the broker of all machines: those of an earlier one are there, with passwords that nobody kept.
        self.call(["broker", "setup", *accounts, *reached, "--new-passwords", "--folder", str(folder)], admin)
        self.operator = {"TRIMTAB_URL": self.bus(f"operator.{PERSON}")["url"].replace(f":{port}/", f":{broker.amqp}/")}

    def call(self, words: list[str], variables: Mapping[str, str]) -> dict[str, Any]:
        """What the command on this host says."""
        done = CliRunner().invoke(main, [*words, "--output", "json"], env=dict(variables))
        assert done.exit_code == 0, f"{words}: {done.output}"
        return dict(json.loads(done.stdout))

    def ask(self, *words: str) -> dict[str, Any]:
        """What the controller answers."""
        return self.call(list(words), self.operator)

    def bus(self, account: str) -> dict[str, Any]:
        """The section of an account's file."""
        return dict(tomllib.loads((self.folder / f"{account}.toml").read_text())["bus"])

    def put(self, name: str, layers: Mapping[str, Any]) -> None:
        put_file(self.host, name, harness.toml(layers))

    def start(self) -> None:
        """Hypervisor, agent, and the newer controller, as its unit would but for the folder."""
        where = "/var/lib/trimtab/fake.socket"
        driver = {"node": {"name": NODE}, "hypervisor": {"driver": "fake", "uri": f"unix://{where}?node={NODE}"}}
        self.put("agent", harness.merged(harness.AGENT, driver, {"bus": self.bus(f"agent.{NODE}")}))
        controller = {"name": LEADER, "bus": self.bus(f"controller.{LEADER}")}
        self.put("controller", harness.merged(harness.CONTROLLER, controller))
        server = [PYTHON, "-m", "sim_backend.fake_server", "--socket", where, "--costs", "none"]
        self.run("fake", "trimtab", "/var/lib/trimtab", [*server, "--nodes", f"{NODE}:2x1000:2000"])
        wait_for(self.host, "fake", "no fake server", lambda: (self.host.root / where.lstrip("/")).exists())
        self.host.run(["systemctl", "start", AGENT], limit_s=SOON_S)
        shell(self.host, "dpkg-deb --extract /srv/next/trimtab.deb /srv/newer")
        newer = f"-EPYTHONPATH={shell(self.host, 'echo /srv/newer/usr/lib/trimtab/lib/python3*/site-packages')}"
        self.run("newer", "trimtab-controller", STATE, ["/usr/bin/python3", "-m", "daemons.service.main"], newer)

    def run(self, unit: str, user: str, folder: str, words: list[str], *options: str) -> None:
        """Run a program as a daemon's user."""
        as_user = [f"--unit={unit}", f"-pUser={user}", f"-pWorkingDirectory={folder}", *options]
        self.host.run(["systemd-run", "--quiet", *as_user, *words])


def register_fake(host: Machine) -> None:
    """Make the driver `fake` known to the agent, as a distribution of somebody else would: its package has none of the
    simulator."""
    site = shell(host, f"echo {AGENT_HOME}/lib/python3*/site-packages")
    host.put(f"{site}/fake.pth", shell(host, f"echo {HOME}/lib/python3*/site-packages"))
    info = f"{site}/fake_driver-1.0.dist-info"
    host.put(f"{info}/METADATA", "Metadata-Version: 2.1\nName: fake-driver\nVersion: 1.0\n")
    host.put(f"{info}/entry_points.txt", "[trimtab.hypervisors]\nfake = sim_backend.fake_server.driver:from_config\n")


@pytest.mark.full
def test_agents_work_with_the_controller_of_the_next_version(
    host: Machine, broker: PrivateBroker, tmp_path: Path
) -> None:
    """Given a controller that was upgraded and an agent that was not, then a job runs and its end is heard of."""
    install(host, "now")
    register_fake(host)
    way = WireCutter(broker.amqp, listener_on(host))
    try:
        apart = Apart(host, broker, way.port, tmp_path)
        apart.start()
        wait_for(host, "newer", "nobody leads", lambda: "leading" in host.journal("newer"))
        apart.ask("nodes", "add", NODE)
        job = tmp_path / "x.toml"
        job.write_text(JOB)
        wait_for(host, AGENT, "no node", lambda: "up" in str(apart.ask("nodes", "show", NODE)))
        apart.ask("jobs", "submit", str(job))
        wait_for(host, AGENT, "no end", lambda: "completed" in str(apart.ask("jobs", "show", "x")))
        assert shell(host, f"{PYTHON} -c '{TABLES}'", "trimtab-controller") == f"[('{SCHEMA + 1}',)]"
        assert shell(host, "trimtab --version") != f"trimtab, version {NEXT}"
    finally:
        way.close()
