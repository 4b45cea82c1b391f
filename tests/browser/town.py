"""A cluster whose people come by the page: a real portal in front of a real controller, broker and agents."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemons.portal.auth.account_command import account_command
from shared.bus.broker_setup import Account, definitions
from shared.protocol import topology
from tests.integration.environment_scene import PROVIDER, Estate
from tests.integration.harness import Process, toml, user_url
from tests.integration.private_broker import PrivateBroker, answers
from tests.integration.scene import LIMIT_S, PASSWORD, scene
from tests.ports import free_ports

PORTAL_USER = topology.PORTAL_USER_PREFIX + "browser"
PEOPLE_PASSWORD = "correct horse staple"
JANE, JUNE = "jane", "june"  # providers
CYCLE_S = 20.0
CONTROLLER: Mapping[str, Any] = {
    "periods": {"report_s": 0.5, "reconcile_s": 0.5, "decide_s": CYCLE_S, "web_adjust_s": 1.0},
    "timeouts": {"unreachable_after_s": 6.0, "fence_after_s": 12.0},
    "automation": {"level": "confirm", "hold_starts": True},
    "prices": {"shape": "uniform", "per_kwh": 0.30, "currency": "EUR"},
    "policies": {"admission": "statistical"},
    "notify": {"channels": {"pager": {"kind": "command", "argv": ["/bin/false"]}}},
}
RULES = '[[notify.rules]]\nevents = ["node-up", "alarm:*"]\nchannels = ["pager"]\n'


class Town(Estate):
    """An `Estate` with a portal at `url`. `history`: where the portal looks for the controller's store."""

    portal: Process | None = None
    url = ""

    def prepare(self) -> None:
        """As of every scene; the portal has an account of its own at the broker."""
        super().prepare()
        self.api.apply(definitions(self.vhost, [Account(each, PASSWORD) for each in (*self.lab.users, PORTAL_USER)]))
        for name in self.lab.controllers:
            with (self.lab.folder / f"controller-{name}.toml").open("a") as file:
                file.write(RULES)
        (port,) = free_ports(1)
        self.url = f"https://localhost:{port}"
        self.portal_file = self.lab.folder / "portal.toml"
        self.history = self.lab.folder / "history.db"
        self._write_config(port)
        command = [sys.executable, "-P", "-m", "daemons.portal.main", "--config", str(self.portal_file)]
        self.portal = Process("portal", command, self.lab.folder)

    def _write_config(self, port: int) -> None:
        folder = self.lab.folder
        sections = {
            "public_url": self.url,
            "server": {"port": port},
            "tls": {"cert_file": f"{self.broker.folder}/server.pem", "key_file": f"{self.broker.folder}/server.key"},
            "login": {"second_factor": "nobody"},
            "store": {"url": f"sqlite:///{folder}/portal.db"},
            "history": {"url": f"sqlite:///{self.history}"},
            "what_if": {"folder": f"{folder}/what-if"},
            "bus": {"url": user_url(self.lab.broker, PORTAL_USER)},
            "metrics": {"listen": ""},
        }
        self.portal_file.write_text(toml(sections))
        self.portal_file.chmod(0o600)

    def link_history(self) -> None:
        """Let the portal find the controller's store, which it cannot before."""
        self.history.symlink_to(self.lab.folder / "controller.db")

    def add_account(self, name: str, role: str) -> None:
        """Make an account of the portal's, as docs/reference/portal.md says it."""
        secret = self.lab.folder / "people-password"
        secret.write_text(PEOPLE_PASSWORD)
        secret.chmod(0o600)
        words = ["add", name, "--role", role, "--password-file", str(secret), "--config", str(self.portal_file)]
        assert account_command(words) == 0, words

    def open_portal(self) -> None:
        """Start the portal and wait until it listens."""
        assert self.portal is not None
        self.portal.start()
        port = int(self.url.rpartition(":")[2])
        self.wait_for(lambda: answers(port), LIMIT_S, "the portal")

    def as_provider(self, *words: str) -> None:
        """Run a command of `trimtab` that must succeed."""
        said = self.here(PROVIDER, *words)
        assert said.status == 0, f"{words}: {said}\n{self.logs()}"

    def waiting(self) -> int | None:
        """The number of the decision that waits for approval."""
        found = self.look("status")["waiting_approval"]
        return None if found is None else int(found)

    def approve(self) -> None:
        """Approve what waits, by command; another decision may take its place meanwhile."""
        self.wait_for(lambda: self.waiting() is not None, LIMIT_S, "a plan that waits")

        def done() -> bool:
            number = self.waiting()
            return number is None or self.here(PROVIDER, "plan", "approve", str(number)).status == 0

        self.wait_for(done, LIMIT_S, "the approval")

    def logs(self) -> str:
        """The ends of all logs."""
        return f"{super().logs()}\n=== portal\n{self.portal.tail() if self.portal is not None else ''}"

    def close(self) -> None:
        """End everything."""
        if self.portal is not None:
            self.portal.end()
        super().close()


def slug(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") or "root"


@contextmanager
def town(broker: PrivateBroker, *, approvals: int = 1, with_history: bool = True) -> Iterator[Town]:
    """Three nodes of four cores whose controller waits for `approvals` accounts, a portal, and two accounts of the
    provider: jane and june."""
    controller = dict(CONTROLLER) | {"automation": {**CONTROLLER["automation"], "approvals": approvals}}
    with scene(broker, begin=False, kind=Town, controller=controller) as made:
        assert isinstance(made, Town)
        for name in (JANE, JUNE):
            made.add_account(name, "provider")
        made.begin_with_known_nodes()
        if with_history:
            made.link_history()
        made.open_portal()
        yield made


def file_of(folder: Path, name: str) -> Path:
    """A file in a folder that is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
