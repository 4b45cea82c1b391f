"""The Debian package on a machine that has nothing of this one: installed, started, upgraded, removed, purged."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from daemons.store.schema import SCHEMA
from shared.clock import SystemClock
from tests.integration import harness
from tests.integration.debian_root import debian_root
from tests.integration.machine import Machine, bare_machine
from tests.integration.machine_scene import listener_on
from tests.integration.package_build import NEXT, build, newer
from tests.integration.private_broker import PrivateBroker
from tests.integration.wire_cutter import WireCutter

AGENT, CONTROLLER, STORE = "trimtab-agent.service", "trimtab-controller.service", "trimtab-store.service"
PYTHON = "/opt/trimtab/bin/python"
URL = "sqlite:////var/lib/trimtab/controller.db"
NOBODY = "127.0.0.1:5671"  # no broker listens there: daemons begin and wait
FILES = {
    name: f'[bus]\nurl = "amqp://{user}@{NOBODY}/"\npassword_file = "credential:trimtab-{name}-password"\n{more}'
    for name, user, more in (
        ("controller", "controller.a", ""),
        ("agent", "agent.n1", '[node]\nname = "n1"\n[hypervisor]\ndriver = "process"\nuri = ""\n'),
    )
}
REMEMBER = f"""
from daemons.store import SqlStore
from shared.messages import Happened
store = SqlStore("{URL}")
store.take_lead("a")
store.append_events([Happened(5.0, "kept", "x")])
"""
RECALL = f"""
from daemons.store import SqlStore
store = SqlStore("{URL}")
print(store.schema(), [event.what for event in store.events(5)])
"""
TABLES = """
import sqlite3
print(sqlite3.connect("/var/lib/trimtab/controller.db").execute("SELECT version_num FROM trimtab_schema").fetchall())
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
INSTALL_S = 120.0
_CLOCK = SystemClock()

Packages = tuple[Path, Path]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The package of this tree, and its next version."""
    folder = tmp_path_factory.mktemp("package")
    debian_root()  # what cannot be shown need not be built
    made = build(folder)
    return made, newer(made, folder)


@pytest.fixture
def host(packages: Packages) -> Iterator[Machine]:
    """A machine with both packages in /srv; none is installed."""
    with bare_machine(debian_root()) as running:
        for name, package in zip(("now", "next"), packages, strict=True):
            running.put(f"/srv/{name}.deb", package.read_bytes())
        yield running


def dpkg(host: Machine, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return host.run(["dpkg", *words], check=check, limit_s=INSTALL_S)


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
        host.put(f"/etc/trimtab/{name}.toml", text, 0o640)
        host.run(["chgrp", "trimtab", f"/etc/trimtab/{name}.toml"])


@pytest.mark.full
def test_the_package_from_its_installation_to_its_end(host: Machine) -> None:
    dpkg(host, "--install", "/srv/now.deb")
    installed(host)
    whole(host)
    refused_without_secrets(host)
    started_in_order(host)
    restarted(host)
    store_kept(host)
    upgraded(host)
    not_downgraded(host)
    removed(host)
    purged(host)


def installed(host: Machine) -> None:
    """Users, folders and units are there; nothing runs, nothing is enabled, and all is root's."""
    assert shell(host, "id -nG trimtab; id -nG trimtab-job; getent group libvirt | cut -d: -f1").split() == [
        "trimtab",
        "trimtab-job",
        "libvirt",
    ]
    modes = shell(host, "stat -c '%n %a %U:%G' /etc/trimtab /etc/credstore /var/lib/trimtab /var/lib/trimtab/backups")
    assert modes.splitlines() == [
        "/etc/trimtab 750 root:trimtab",
        "/etc/credstore 700 root:root",
        "/var/lib/trimtab 711 trimtab:trimtab",
        "/var/lib/trimtab/backups 700 trimtab:trimtab",
    ]
    units = shell(host, "systemctl list-unit-files --no-legend 'trimtab*' | awk '{print $1, $2}'").splitlines()
    assert f"{AGENT} disabled" in units
    assert f"{CONTROLLER} disabled" in units
    assert [line for line in units if line.endswith("enabled")] == []
    assert shell(host, "systemctl list-units --no-legend --all 'trimtab*'") == ""
    assert shell(host, "ls /etc/trimtab") == ""
    assert shell(host, "dpkg --verify trimtab") == ""
    assert shell(host, "find $(dpkg -L trimtab) -maxdepth 0 ! -type d ! -user root") == ""
    assert shell(host, "find /opt/trimtab ! -type l -perm /022") == ""


def whole(host: Machine) -> None:
    """The commands, their manual pages and completions work, with what the extras bring."""
    assert shell(host, "trimtab --version").startswith("trimtab, version ")
    checks = json.loads(host.run(["trimtab", "doctor", "--output", "json"], check=False, limit_s=SOON_S).stdout)[
        "checks"
    ]
    assert [check["name"] for check in checks if not check["ok"]] == []
    assert shell(host, f"{PYTHON} -c 'import libvirt, psycopg; print(libvirt.getVersion() >= 9e6)'") == "True"
    pages = shell(host, "ls /usr/share/man/man1/trimtab*.1.gz /usr/share/man/man8/trimtab*.8.gz").split()
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
    host.run([PYTHON, "-c", REMEMBER], "trimtab", limit_s=SOON_S)
    assert shell(host, f"{PYTHON} -c '{RECALL}'", "trimtab") == f"{SCHEMA} ['kept']"


def upgraded(host: Machine) -> None:
    """What ran runs again, on a store of the next version with all that was in it; a backup of it is there."""
    host.run(["systemctl", "enable", AGENT, CONTROLLER])
    before = {unit: shown(host, unit, "MainPID") for unit in (AGENT, CONTROLLER)}

    said = dpkg(host, "--install", "/srv/next.deb")

    assert "not upgraded" not in said.stderr
    for unit in (AGENT, CONTROLLER):
        wait_for(host, unit, f"{unit} does not come back", lambda unit=unit: host.state(unit) == "active")  # type: ignore[misc]
        assert shown(host, unit, "MainPID") not in ("0", before[unit])
        assert shell(host, f"systemctl is-enabled {unit}") == "enabled"
    began_us = int(shown(host, CONTROLLER, "ExecMainStartTimestampMonotonic"))
    assert began_us >= int(shown(host, STORE, "ExecMainExitTimestampMonotonic")) > 0
    assert shell(host, "trimtab --version") == f"trimtab, version {NEXT}"
    assert shell(host, f"{PYTHON} -c '{RECALL}'", "trimtab") == f"{SCHEMA + 1} ['kept']"
    backup = f"/var/lib/trimtab/backups/version-{SCHEMA}-1.db"
    assert shell(host, f"stat -c '%a %U' {backup}") == "600 trimtab"
    look = f'import sqlite3; print(sqlite3.connect("{backup}").execute("SELECT what FROM events").fetchall())'
    assert shell(host, f"{PYTHON} -c '{look}'") == "[('kept',)]"


def not_downgraded(host: Machine) -> None:
    """The version before is refused, says the way back, and all goes on."""
    before = shown(host, CONTROLLER, "MainPID")

    done = dpkg(host, "--install", "/srv/now.deb", check=False)

    assert done.returncode != 0
    assert f"trimtab: {NEXT} is installed, which is newer than" in done.stderr
    assert "trimtab store restore --force FILE" in done.stderr
    assert shell(host, "dpkg-query -W -f '${Version} ${Status}' trimtab") == f"{NEXT} install ok installed"
    assert (shown(host, CONTROLLER, "MainPID"), host.state(CONTROLLER)) == (before, "active")


def removed(host: Machine) -> None:
    """Nothing runs any more; configuration, passwords and state are as they were."""
    dpkg(host, "--remove", "trimtab")

    assert shell(host, "pgrep -f /opt/trimtab || echo none") == "none"
    assert shell(host, "ls -d /opt/trimtab 2>/dev/null || echo none") == "none"
    assert shell(host, "systemctl list-units --no-legend --all 'trimtab*'") == ""
    assert shell(host, "find /etc/systemd/system -name 'trimtab*.service'") == ""
    assert shell(host, "ls /etc/trimtab").split() == ["agent.toml", "controller.toml"]
    assert shell(host, "cd /var/lib/trimtab && ls agent.journal controller.db").split() == [
        "agent.journal",
        "controller.db",
    ]


def purged(host: Machine) -> None:
    """Nothing is left but the accounts."""
    host.run(["rm", "-r", f"/etc/systemd/system/{AGENT}.d"])  # this test's own

    dpkg(host, "--purge", "trimtab")

    left = "find / -xdev -name '*trimtab*' ! -path '/proc/*' ! -path '/sys/*' ! -path '/var/cache/man/*'"
    assert shell(host, left) == ""
    assert shell(host, "id -un trimtab") == "trimtab"


class Apart:
    """The installed agent on the machine, and beside it the controller of the next version, out of a folder."""

    def __init__(self, host: Machine, broker: PrivateBroker, port: int, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.vhost = f"apart-{os.getpid()}"
        admin = {"TRIMTAB_BROKER_ADMIN": f"{broker.user}:{broker.password}"}
        accounts = ["--nodes", NODE, "--controllers", LEADER, "--operators", PERSON, "--vhost", self.vhost]
        reached = ["--management", f"http://127.0.0.1:{broker.management}", "--host", f"127.0.0.1:{port}", "--plain"]
        self.call(["broker", "setup", *accounts, *reached, "--folder", str(folder)], admin)
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
        self.host.put(f"/etc/trimtab/{name}.toml", harness.toml(layers), 0o640)
        self.host.run(["chgrp", "trimtab", f"/etc/trimtab/{name}.toml"])

    def start(self) -> None:
        """Hypervisor, agent, and the newer controller, as its unit would but for the folder."""
        where = "/var/lib/trimtab/fake.socket"
        driver = {"node": {"name": NODE}, "hypervisor": {"driver": "fake", "uri": f"unix://{where}?node={NODE}"}}
        self.put("agent", harness.merged(harness.AGENT, driver, {"bus": self.bus(f"agent.{NODE}")}))
        controller = {"name": LEADER, "bus": self.bus(f"controller.{LEADER}")}
        self.put("controller", harness.merged(harness.CONTROLLER, controller))
        server = [PYTHON, "-m", "sim_backend.fake_server", "--socket", where, "--costs", "none"]
        self.run("fake", [*server, "--nodes", f"{NODE}:2x1000:2000"])
        wait_for(self.host, "fake", "no fake server", lambda: (self.host.root / where.lstrip("/")).exists())
        self.host.run(["systemctl", "start", AGENT], limit_s=SOON_S)
        shell(self.host, "dpkg-deb --extract /srv/next.deb /srv/next")
        newer = "-EPYTHONPATH=/srv/next/opt/trimtab/lib/python3.11/site-packages"
        self.run("newer", ["/usr/bin/python3.11", "-m", "daemons.main"], newer)

    def run(self, unit: str, words: list[str], *options: str) -> None:
        """Run a program as the daemons' user."""
        as_user = [f"--unit={unit}", "-pUser=trimtab", "-pWorkingDirectory=/var/lib/trimtab", *options]
        self.host.run(["systemd-run", "--quiet", *as_user, *words])


@pytest.mark.full
def test_agents_work_with_the_controller_of_the_next_version(
    host: Machine, broker: PrivateBroker, tmp_path: Path
) -> None:
    """Given a controller that was upgraded and an agent that was not, then a job runs and its end is heard of."""
    dpkg(host, "--install", "/srv/now.deb")
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
        assert shell(host, f"{PYTHON} -c '{TABLES}'", "trimtab") == f"[('{SCHEMA + 1}',)]"
        assert shell(host, "trimtab --version") != f"trimtab, version {NEXT}"
    finally:
        way.close()
