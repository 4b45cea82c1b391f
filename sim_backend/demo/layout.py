"""The folder of a demo: which files it has, and what the configuration files say."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from daemons.cli.connection import CONFIG_VARIABLE
from daemons.cli.secret_options import STORE_URL_VARIABLE
from shared.base.errors import InvalidInput, PermanentError, Problem
from shared.protocol import topology
from shared.values.nodes import Node

ACCOUNT = "demo"  # of the operator on the bus, and of the portal's provider
CONTROLLER_NAME = "demo"
HOSTS_MAX = 50
CORES, CORE_MHZ, MEMORY_MIB = 4, 2_000.0, 16_384
COSTS = {  # of `shared.values.operation_costs`, which loads numpy: here they are plain
    "start_s": 1.0,
    "suspend_s_per_mib": 0.001,
    "resume_s_per_mib": 0.001,
    "migrate_s_per_mib": 0.002,
}
PATH_BYTES_MAX = 107  # what the address of a Unix socket holds
FOLDER_MODE, FILE_MODE = 0o700, 0o600
FORM = re.compile(r"[\w./@:+,=~-]+")

# A failure is noticed within seconds and a decision comes soon, so that somebody who watches need not wait.
CONTROLLER: Mapping[str, Any] = {
    "periods": {"report_s": 0.5, "reconcile_s": 0.5, "decide_s": 300.0, "probe_s": 2.0, "web_adjust_s": 5.0},
    "timeouts": {
        "unreachable_after_s": 4.0,
        "fence_after_s": 6.0,
        "gang_timeout_s": 60.0,
        "action_ttl_s": 30.0,
        "operation_timeout_s": 60.0,
        "decide_limit_s": 10.0,
        "external_change_pause_s": 60.0,
    },
    "automation": {"level": "confirm"},
    "operation_costs": {
        **COSTS,
    },
    "metrics": {"listen": ""},
}
AGENT: Mapping[str, Any] = {
    "periods": {"report_s": 0.5},
    "timeouts": {"operation_timeout_s": 60.0},
    "node": {"reserve_mib": 0},
    "metrics": {"listen": ""},
}


@dataclass(frozen=True, slots=True)
class Layout:
    """A demo of `host_count` hosts in `folder` (absolute), whose portal listens on `port` of the loopback address."""

    folder: Path
    host_count: int = 6
    port: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts: host1, host2, ..."""
        return tuple(f"host{number + 1}" for number in range(self.host_count))

    @property
    def nodes(self) -> list[Node]:
        """The hosts as the fake server takes them."""
        return [Node(name, CORES, CORE_MHZ, memory_mib=MEMORY_MIB) for name in self.hosts]

    # --- files -------------------------------------------------------------------------------------------------------

    @property
    def lock(self) -> Path:
        """Locked by the process of the demo as long as it lives; marks the folder as one of a demo."""
        return self.folder / "demo.lock"

    @property
    def control_socket(self) -> Path:
        """Where the process of the demo takes orders."""
        return self.folder / "control.socket"

    @property
    def bus_socket(self) -> Path:
        """Where the bus listens."""
        return self.folder / "bus.socket"

    @property
    def hosts_socket(self) -> Path:
        """Where the fake hosts listen."""
        return self.folder / "hosts.socket"

    @property
    def operator_file(self) -> Path:
        """The configuration of the command `trimtab`."""
        return self.folder / "operator.toml"

    @property
    def env_file(self) -> Path:
        """Sets, in a shell that reads it, which cluster the command `trimtab` asks, and which store it reads."""
        return self.folder / "env"

    @property
    def config(self) -> Path:
        """The folder of the daemons' configuration files."""
        return self.folder / "config"

    @property
    def state(self) -> Path:
        """The folder of journals and stores."""
        return self.folder / "state"

    @property
    def logs(self) -> Path:
        """The folder of logs, one of each process."""
        return self.folder / "logs"

    @property
    def portal_store(self) -> str:
        """The URL of the portal's store."""
        return f"sqlite:///{self.state}/portal.db"

    @property
    def controller_store(self) -> str:
        """The URL of the controller's store."""
        return f"sqlite:///{self.state}/controller.db"

    @property
    def portal_url(self) -> str:
        """Where browsers reach the portal."""
        return f"http://localhost:{self.port}"

    def bus_url(self, user: str) -> str:
        """Return the URL of the bus for an account."""
        return f"unix://{quote(user, safe='')}@{quote(str(self.bus_socket))}"

    # --- making and removing -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises InvalidInput for a folder that cannot be used: a bad path, or files in it that are no demo's."""
        longest = max((self.control_socket, self.bus_socket, self.hosts_socket), key=lambda path: len(path.name))
        expected = "letters, digits and ./_-@:+,=~, short enough for a socket in it"
        if not FORM.fullmatch(str(self.folder)) or len(os.fsencode(longest)) > PATH_BYTES_MAX:
            raise InvalidInput(Problem("--folder", f"is {self.folder}", expected))
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInput(Problem("--folder", f"{self.folder} is no folder", "a folder, or a new name"))
        if self.folder.is_dir() and not self.lock.exists() and any(self.folder.iterdir()):
            raise InvalidInput(Problem("--folder", f"{self.folder} has other files", "an empty folder, or a new name"))

    def take(self) -> int:
        """Make the folder, lock it and remove what a demo that was killed has left. Return the lock's descriptor, to be
        kept open. Raises InvalidInput as `check` does, PermanentError when a demo runs there."""
        self.check()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(FOLDER_MODE)
            lock = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise InvalidInput(Problem("--folder", f"{self.folder}: {error.strerror}", "a folder to write")) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise PermanentError(f"a demo runs in {self.folder} already: trimtab demo stop") from error
        self._remove_files()
        for folder in (self.config, self.state, self.logs):
            folder.mkdir(mode=FOLDER_MODE)
        return lock

    def remove(self) -> None:
        """Remove what the demo has made; the folder too, unless there are other files in it."""
        self._remove_files()
        self.lock.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def is_left_behind(self) -> bool:
        """Return whether a killed demo has left its files behind: no process holds the lock."""
        try:
            lock = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(lock)
        return True

    def _remove_files(self) -> None:
        for folder in (self.config, self.state, self.logs):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.control_socket, self.bus_socket, self.hosts_socket, self.operator_file, self.env_file):
            file.unlink(missing_ok=True)

    # --- configuration -----------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write every configuration file."""
        for host in self.hosts:
            self._write(self.agent_file(host), toml_text(_merged(AGENT, self._agent(host))))
        self._write(self.controller_file, toml_text(_merged(CONTROLLER, self._controller())))
        self._write(self.portal_file, toml_text(self._portal()))
        operator = {"bus": {"url": self.bus_url(topology.OPERATOR_USER_PREFIX + ACCOUNT)}}
        self._write(self.operator_file, toml_text(operator))
        variables = {CONFIG_VARIABLE: str(self.operator_file), STORE_URL_VARIABLE: self.controller_store}
        self._write(self.env_file, "".join(f"export {name}={value}\n" for name, value in variables.items()))

    def agent_file(self, host: str) -> Path:
        """Return the configuration file of a host's agent."""
        return self.config / f"agent-{host}.toml"

    @property
    def controller_file(self) -> Path:
        """The configuration of the controller."""
        return self.config / "controller.toml"

    @property
    def portal_file(self) -> Path:
        """The configuration of the portal."""
        return self.config / "portal.toml"

    def _agent(self, host: str) -> Mapping[str, Any]:
        return {
            "node": {"name": host},
            "hypervisor": {"driver": "fake", "uri": f"unix://{self.hosts_socket}?node={host}"},
            "journal": {"path": f"{self.state}/{host}.journal"},
            "bus": {"url": self.bus_url(topology.agent_user(host))},
        }

    def _controller(self) -> Mapping[str, Any]:
        fence = [sys.executable, "-P", "-m", "sim_backend.demo", "fence", str(self.control_socket), "{node}"]
        return {
            "name": CONTROLLER_NAME,
            "store": {"url": self.controller_store},
            "bus": {"url": self.bus_url(topology.CONTROLLER_USER_PREFIX + CONTROLLER_NAME)},
            "power": {"driver": "exec", "exec": {"fence": fence}},
        }

    def _portal(self) -> Mapping[str, Any]:
        return {
            "public_url": self.portal_url,
            "server": {"port": self.port},
            "login": {"second_factor": "nobody"},
            "store": {"url": self.portal_store},
            "history": {"url": self.controller_store},
            "what_if": {"folder": f"{self.state}/what-if"},
            "bus": {"url": self.bus_url(topology.PORTAL_USER_PREFIX + ACCOUNT)},
            "metrics": {"listen": ""},
        }

    @staticmethod
    def _write(file: Path, text: str) -> None:
        file.write_text(text, "utf-8")
        file.chmod(FILE_MODE)


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Sections laid over one another; the last value of a key counts."""
    made: dict[str, Any] = {}
    for layer in layers:
        for name, section in layer.items():
            made[name] = {**made.get(name, {}), **section} if isinstance(section, Mapping) else section
    return made


def toml_text(sections: Mapping[str, Any], within: str = "") -> str:
    """Return a TOML file: plain values first, then one table per section."""
    plain = {key: value for key, value in sections.items() if not isinstance(value, Mapping)}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in plain.items()]
    for name, section in sections.items():
        if isinstance(section, Mapping):
            lines.append(f"\n[{within}{name}]\n" + toml_text(section, f"{within}{name}."))
    return "".join(lines)
