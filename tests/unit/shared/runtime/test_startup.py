"""The composition roots: what a wrong configuration costs, and what the cores are told."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from agents.disk_journal import DiskJournal
from agents.service import main as agents_main
from daemons.config.controller import ControllerConfig
from daemons.portal import main as portal_main
from daemons.service import main as daemons_main
from daemons.store import Retention
from daemons.values.records.cluster import Deleted
from daemons.values.settings import Automation, ControllerSettings
from shared.base.errors import InvalidInput, StoreUnavailable
from shared.config import toml
from shared.config.agent import AgentConfig
from shared.config.broker_url import Tls
from shared.config.common import Log
from shared.ports.controller import PowerAnswer
from shared.runtime import startup
from shared.values.nodes import Node, PowerOperation
from sim_backend.fakes.hypervisor import FakeHypervisor
from sim_backend.fakes.store import MemoryStore
from tests.extent import first
from tests.support.paths import ROOT
from tests.support.shell_harness import InlineDecider
from tests.unit.shared.runtime.test_shell_core import lone_link

AGENT_URL = "amqp://agent.n1:secret@127.0.0.1/"
CONTROLLER_URL = "amqp://controller.a:secret@127.0.0.1/"


def controller_config(url: str = CONTROLLER_URL, more: str = "") -> ControllerConfig:
    return toml.parse(f'{more}\n[bus]\nurl = "{url}"\n', ControllerConfig)


def built(settings: ControllerConfig) -> daemons_main.ControllerShell:
    return daemons_main.build(
        settings, lone_link().connect, 1, lambda _url, _keep: MemoryStore(Deleted), InlineDecider()
    )


@pytest.mark.parametrize("main", [agents_main.main, daemons_main.main])
def test_every_problem_of_a_file_is_told_and_nothing_begins(
    main: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text('[log]\nlevel = "loud"\nfrmat = "json"\n')
    assert callable(main)

    status = main(["--config", str(file)])

    told = capsys.readouterr().err
    assert status == 2
    assert "loud" in told
    assert "frmat" in told


@pytest.mark.usefixtures("libvirt_installed")
@pytest.mark.parametrize("main", [agents_main.main, daemons_main.main])
def test_a_good_file_can_be_checked_without_beginning(main: object, tmp_path: Path) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text('[log]\nlevel = "warning"\n')
    assert callable(main)

    assert main(["--config", str(file), "--check"]) == 0
    assert main(["--config", str(tmp_path / "nowhere.toml"), "--check"]) == 2


@pytest.mark.parametrize(
    ("main", "name"),
    [
        (agents_main.main, "trimtab-agent"),
        (daemons_main.main, "trimtab-controller"),
        (portal_main.main, "trimtab-portal"),
    ],
)
def test_a_daemon_prints_its_version(main: object, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)

    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{name}, version {metadata.version('trimtab')}\n"


@pytest.mark.full
@pytest.mark.parametrize(
    ("module", "text", "told"),
    first(
        [
            ("daemons.service.main", "", "bus.url: is empty"),
            ("agents.service.main", "", "bus.url: is empty"),
            ("agents.service.main", f'[node]\nname = "n2"\n[bus]\nurl = "{AGENT_URL}"\n', "'agent.n2'"),
            ("agents.service.main", f'[hypervisor]\ndriver = "zen"\n[bus]\nurl = "{AGENT_URL}"\n', "there is no 'zen'"),
            ("daemons.service.main", f'name = "b"\n[bus]\nurl = "{CONTROLLER_URL}"\n', "'controller.b'"),
            ("daemons.service.main", f'[bus]\nurl = "{CONTROLLER_URL}"\n[policies]\nplacement = "best"\n', "best"),
            (
                "agents.service.main",
                f'[bus]\nurl = "{AGENT_URL}"\ntls.ca_file = "/nowhere.pem"\n',
                "bus.url is not encrypted",
            ),
            (
                "daemons.service.main",
                f'[bus]\nurl = "{CONTROLLER_URL}"\ntls.ca_file = "/nowhere.pem"\n',
                "bus.url is not encrypted",
            ),
        ],
        2,
    ),
)
def test_what_only_shows_when_it_is_put_together_is_told_too(module: str, text: str, told: str, tmp_path: Path) -> None:
    """As processes: exit status 2, the reason on standard error, no password and no traceback."""
    file = tmp_path / "daemon.toml"
    driver = "" if "hypervisor" in text or module == "daemons.service.main" else '\n[hypervisor]\ndriver = "fake"\n'
    journal = "" if module == "daemons.service.main" else f'\n[journal]\npath = "{tmp_path}/journal"\n'
    file.write_text(text + driver + journal)
    file.chmod(0o600)

    command = [sys.executable, "-m", module, "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)

    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("url", "tls", "told"),
    [
        (AGENT_URL, Tls(server_name="broker"), "bus.tls: is given, but bus.url is not encrypted"),
        ("amqps://a:secret@broker/", Tls(ca_file="/nowhere.pem"), "bus.tls: names '/nowhere.pem'"),
        ("amqps://a:secret@broker/", Tls(ca_file=__file__), f"bus.tls: names '{__file__}'"),
        ("amqps://a:secret@broker/", Tls(key_file="/key.pem"), "bus.tls.cert_file: is missing"),
    ],
)
def test_a_connection_that_could_not_be_verified_as_told_is_refused_at_the_start(url: str, tls: Tls, told: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)) as caught:
        startup.broker(url, tls)

    assert "secret" not in str(caught.value)


def test_an_encrypted_connection_needs_no_files_of_its_own() -> None:
    assert callable(startup.broker("amqps://a:secret@broker/"))


def test_an_agent_is_put_together_from_its_file(tmp_path: Path) -> None:
    """Given a node type and labels, when the agent is made, then the inventory it reports shows them."""
    parsed = toml.parse(
        f'[node]\nname = "n1"\ntype = "fast"\nlabels = ["ssd", "gpu"]\n[bus]\nurl = "{AGENT_URL}"\n'
        f'[journal]\npath = "{tmp_path}/agent.journal"\n[node_types.fast]\ncore_mhz_factor = 1.5\nreserve_mib = 1000\n',
        AgentConfig,
    )

    shell = agents_main.build(parsed, lone_link().connect, lambda _uri, _wake: FakeHypervisor(), 1)
    shape = agents_main.shape_of(parsed, "n1")

    assert shape(Node("fake", 4, 2000.0, memory_mib=8192, labels=("gpu",))) == Node(
        "n1", 4, 3000.0, memory_mib=8192, reserve_mib=1000, labels=("gpu", "ssd"), node_type="fast"
    )
    assert shell.core.boot_id == "boot-1"  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable, match="another process"):
        DiskJournal(tmp_path / "agent.journal")


def test_a_driver_of_this_machine_has_its_boot(tmp_path: Path) -> None:
    file = tmp_path / "boot_id"
    file.write_text("5f0c-1\n")

    assert startup.boot_id(str(file)) == "5f0c-1"
    assert len(startup.boot_id()) > 8


class Rack:
    """Sockets that can be switched."""

    name = "rack"
    does = frozenset({PowerOperation.WAKE, PowerOperation.FENCE})

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        return PowerAnswer(operation in self.does, f"{node} {mac_addresses}")


def test_a_controller_is_told_how_nodes_leave_power() -> None:
    more = '[power]\nstandby_s = 7.0\nnever_sleep = ["gate"]\nkeep_nodes = 2\n[power.draw.old]\nidle_w = 90.0\n'
    power = daemons_main.settings_of(controller_config(more=more), Rack()).power

    assert (power.driver, power.does, power.through_agents, power.can_sleep) == ("rack", Rack.does, True, True)
    assert (power.standby_s, power.keep_nodes, power.draw_of("old").idle_w, power.draw_of("new").peak_w) == (
        7.0,
        2,
        90.0,
        200.0,
    )
    assert {"gate", startup.host_name()} <= power.never
    assert not daemons_main.settings_of(controller_config()).power.can_sleep


def test_a_controller_is_told_what_its_file_says() -> None:
    more = (
        "[periods]\nreport_s = 1.0\ndecide_s = 300.0\n[timeouts]\nfence_after_s = 99.0\n[automation]\n"
        'level = "confirm"\nhold_starts = true\n[limits]\nactions_total = 77\n[memory]\nvm_overhead_mib = 32\n'
        '[policies]\nplacement = "edf"\n'
    )
    parsed = controller_config(more=more)

    settings = daemons_main.settings_of(parsed, Rack())

    assert (settings.report_s, settings.decide_s, settings.fence_after_s) == (1.0, 300.0, 99.0)
    assert (settings.automation, settings.hold_starts) == (Automation.CONFIRM, True)
    assert (settings.limits.actions_total, settings.vm_overhead_mib, settings.placement.name) == (77, 32.0, "edf")
    assert daemons_main.settings_of(parsed).fence_after_s is None


def test_a_controller_keeps_history_as_long_as_its_file_says() -> None:
    more = "[store.retention]\njobs_days = 3\nsamples_days = 7.5\n"

    assert built(controller_config(more=more)).keep == Retention(jobs_days=3.0, samples_days=7.5)
    assert built(controller_config()).keep == Retention()


def test_the_defaults_of_the_file_are_safe_ones() -> None:
    settings = daemons_main.settings_of(controller_config())

    assert settings.automation is Automation.ADVISE
    assert settings.probe_s == ControllerSettings().probe_s


@pytest.mark.parametrize(
    ("url", "more", "name"),
    [(CONTROLLER_URL, "", "a"), (CONTROLLER_URL, 'name = "a"', "a"), ("", 'name = "b"', "b")],
)
def test_a_controller_has_the_name_of_its_user(url: str, more: str, name: str) -> None:
    assert built(controller_config(url, more)).controller.name == name


def test_a_controller_without_a_name_is_called_by_host_and_process() -> None:
    assert built(controller_config("")).controller.name.startswith(f"{startup.host_name()}-")


def test_a_user_that_is_no_controller_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"controller\.NAME"):
        daemons_main.name_of(controller_config("amqp://guest:guest@127.0.0.1/"))


def test_reloading_an_unusable_file_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def read() -> ControllerConfig:
        return controller_config(more='[log]\nlevel = "loud"\n')

    startup.configure_log(Log())
    startup.relog(read, controller_config())

    assert "configuration not reloaded" in capsys.readouterr().err


def test_reloading_names_what_needs_a_restart(capsys: pytest.CaptureFixture[str]) -> None:
    startup.configure_log(Log())
    startup.relog(lambda: controller_config(more="[periods]\ndecide_s = 300\n"), controller_config())
    startup.relog(lambda: controller_config(), controller_config())

    said = capsys.readouterr().err
    assert "these keys need a restart" in said
    assert "periods.decide_s" in said
    assert "configuration reloaded" in said


def test_a_daemon_that_is_asked_to_stop_while_it_is_built_ends_well(tmp_path: Path) -> None:
    """Given one whose parts are still being put together, when SIGTERM comes, then its exit status is 0."""
    program = tmp_path / "daemon.py"
    program.write_text(
        "import os, signal, sys, time\n"
        "from shared.config.agent import AgentConfig\n"
        "from shared.runtime.startup import Daemon\n"
        "def run(path, config):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(60)\n"
        "    return 9\n"
        "sys.exit(Daemon('d', AgentConfig, sys.argv[1], run).main([]))\n"
    )
    file = tmp_path / "agent.toml"
    file.write_text("")
    ended = subprocess.run([sys.executable, str(program), str(file)], timeout=50, check=False)
    assert ended.returncode == 0


def test_in_a_daemon_garbage_is_looked_for_rarely(tmp_path: Path) -> None:
    program = tmp_path / "daemon.py"
    program.write_text(
        "import gc, sys\n"
        "from shared.config.agent import AgentConfig\n"
        "from shared.runtime.startup import Daemon\n"
        "def run(path, config):\n"
        "    print(gc.get_threshold()[0], gc.get_freeze_count() > 1_000, gc.isenabled())\n"
        "    return 0\n"
        "sys.exit(Daemon('d', AgentConfig, sys.argv[1], run).main([]))\n"
    )
    file = tmp_path / "agent.toml"
    file.write_text("")
    ended = subprocess.run([sys.executable, str(program), str(file)], timeout=50, check=True, capture_output=True)
    assert ended.stdout.split() == [b"%d" % startup.GARBAGE_AFTER, b"True", b"True"]


def test_check_says_that_the_account_is_another_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.toml"
    bus = '[bus]\nurl = "amqp://agent.n2:secret@127.0.0.1/"\n'
    file.write_text('[node]\nname = "n3"\n' + bus + '[hypervisor]\ndriver = "process"\nuri = ""\n')
    file.chmod(0o600)
    assert agents_main.main(["--config", str(file), "--check"]) == startup.UNREADABLE
    assert "bus.url: has the user 'agent.n2' (expected 'agent.n3')" in capsys.readouterr().err
