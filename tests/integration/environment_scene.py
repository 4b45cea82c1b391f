"""A scene with environments: accounts of owners and a user, and hosts whose setups are a real program.

The program writes down each run as `begin STEP ENVIRONMENT WHAT` and `end ...`; a file `hold-NODE` keeps it running,
a file `break-NODE` lets it fail with what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from daemons.cli.main import main
from tests.integration.harness import OPERATOR, merged, toml
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, NODES, REQUEST_S, SOON_S, Said, Scene, scene

ADMIN = {"TRIMTAB_BROKER_ADMIN": f"{PrivateBroker.user}:{PrivateBroker.password}"}
OWNERS, USERS = ("kim", "lee"), ("joe", "ann")
KIM, LEE, JOE, ANN = "owner.kim", "owner.lee", "user.joe", "user.ann"
PROVIDER = OPERATOR
LEASE_S = 8.0
CALM_MHZ, BUSY_MHZ = 500.0, 1_300.0  # load of a web application that asks for one instance, for two
SETUP = """#!/bin/sh
# setup WHAT: TRIMTAB_NODE is being released or acquired.
what="$TRIMTAB_STEP $TRIMTAB_ENVIRONMENT $1"
echo "begin $what" >> "{folder}/setups-$TRIMTAB_NODE"
while [ -e "{folder}/hold-$TRIMTAB_NODE" ]; do sleep 0.1; done
if [ -e "{folder}/break-$TRIMTAB_NODE" ]; then cat "{folder}/break-$TRIMTAB_NODE"; exit 7; fi
echo "end $what" >> "{folder}/setups-$TRIMTAB_NODE"
echo "$1 of $TRIMTAB_NODE done"
"""
CONTROLLER: Mapping[str, Any] = {"periods": {"web_adjust_s": 1.0}, "setup": {"attempts": 1}}
BATCH: Mapping[str, Any] = {
    "name": "night",
    "owner": "kim",
    "workload": "batch",
    "lower": 1,
    "lease_s": LEASE_S,
    "users": ["joe"],
    "setup": {"policy": "wipe"},
}
WEB: Mapping[str, Any] = {
    "name": "front",
    "owner": "lee",
    "workload": "web",
    "lower": 1,
    "lease_s": LEASE_S,
    "shares": True,
    "notice_s": 2.0,
    "setup": {"policy": "exec", "command": "web-image", "limit_s": 60},
    "web": {"over_s": 2.0},
}


class Setups:
    """What setups do on the hosts, and what they have done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "setup"
        self.program.write_text(SETUP.format(folder=folder))
        self.program.chmod(0o755)

    def section(self) -> dict[str, Any]:
        """The agents' section [setup]."""
        command = {"run": [str(self.program), "web-image"], "limit_s": 60.0}
        return {"setup": {"wipe": [[str(self.program), "wipe"]], "commands": {"web-image": command}}}

    def lines(self, node: str) -> list[str]:
        """What was begun and ended on a node, in order."""
        file = self.folder / f"setups-{node}"
        return file.read_text().splitlines() if file.exists() else []

    def done(self, node: str) -> list[str]:
        """The setups that came to their end on a node, in order."""
        return [line.removeprefix("end ") for line in self.lines(node) if line.startswith("end ")]

    def hold(self, *nodes: str) -> None:
        """Let setups on these nodes go on without an end."""
        for node in nodes:
            (self.folder / f"hold-{node}").touch()

    def release(self, *nodes: str) -> None:
        """Let them end."""
        for node in nodes:
            (self.folder / f"hold-{node}").unlink()

    def break_(self, node: str, says: str) -> None:
        """Let setups on this node fail with these words."""
        (self.folder / f"break-{node}").write_text(says)

    def mend(self, node: str) -> None:
        """Let them succeed again."""
        (self.folder / f"break-{node}").unlink()


class Estate(Scene):
    """A cluster whose provider, owners and users work on it with the command, each under an account of their own."""

    setups: Setups

    def make_accounts(self) -> None:
        """As docs/how-to/environments.md says it; the broker may know them from an earlier scene."""
        words = (
            "broker",
            "setup",
            "--owners",
            ",".join(OWNERS),
            "--users",
            ",".join(USERS),
            "--plain",
            "--new-passwords",
        )
        place = ("--vhost", self.vhost, "--management", self.broker.management_url)
        host = ("--host", f"127.0.0.1:{self.broker.amqp}", "--folder", str(self.lab.folder / "accounts"))
        done = self.run(*words, *place, *host, env=ADMIN)
        assert done.status == 0, done

    def by(self, account: str, *words: str) -> Said:
        """Run a command under an account."""
        file = self.lab.folder / "accounts" / f"{account}.toml"
        return self.run(*words, "--config", str(file), "--timeout", str(REQUEST_S), env={})

    def done_by(self, account: str, *words: str) -> Said:
        """Run one that must succeed."""
        said = self.by(account, *words)
        assert said.status == 0, f"{account}: {words}: {said}\n{self.logs()}"
        return said

    def here(self, account: str, *words: str) -> Said:
        """Run a command in this process, which is quicker: for those of which there are many."""
        file = self.operator_file if account == PROVIDER else self.lab.folder / "accounts" / f"{account}.toml"
        done = CliRunner().invoke(main, [*words, "--config", str(file), "--timeout", str(REQUEST_S)])
        return Said(done.exit_code, done.stdout, done.stderr)

    def look(self, *words: str) -> dict[str, Any]:
        """What a command shows the provider."""
        said = self.here(PROVIDER, *words, "--output", "json")
        assert said.status == 0, f"{words}: {said}\n{self.logs()}"
        return dict(said.data)

    # --- environments -----------------------------------------------------------------------------------------------

    def agreement(self, *layers: Mapping[str, Any], **keys: Any) -> str:
        """The file of an agreement."""
        whole = merged(*layers, keys)
        file = self.lab.folder / f"{whole['name']}.env.toml"
        file.write_text(toml(whole))
        return str(file)

    def open(self, *layers: Mapping[str, Any], **keys: Any) -> None:
        """Create an environment and activate it, as its owner."""
        whole = merged(*layers, keys)
        file, name = self.agreement(whole), str(whole["name"])
        for words in (("create", file), ("activate", name, "--wait", "30")):
            said = self.here(f"owner.{whole['owner']}", "env", *words)
            assert said.status == 0, f"{words}: {said}\n{self.logs()}"

    def environment(self, name: str) -> dict[str, Any]:
        """What `trimtab env show` says of it to the provider."""
        return dict(self.look("env", "show", name)["environment"])

    def states(self) -> dict[str, tuple[str, str]]:
        """State and wanted state of every environment."""
        rows = self.look("env", "list")["environments"]
        return {row["name"]: (row["state"], row["wanted"]) for row in rows}

    def nodes_of(self, name: str) -> list[str]:
        """The nodes that are given to an environment and in its hand."""
        nodes = self.environment(name)["nodes"]
        return sorted(
            node["name"]
            for node in nodes
            if (node["given"], node["environment"], node["handover"]) == (name, name, "settled")
        )

    def until_nodes(self, name: str, count: int, timeout_s: float = SOON_S) -> list[str]:
        """Wait until an environment has so many nodes in its hand, those on their way to it not counted."""
        self.wait_for(lambda: len(self.nodes_of(name)) == count, timeout_s, f"{count} nodes in the hand of {name}")
        return self.nodes_of(name)

    def begin_with_known_nodes(self) -> None:
        """As `begin`, but the controller knows the nodes before their agents start: those of others would wait before
        they try again. Every node's size is known afterwards."""
        self.follow()
        for controller in self.lab.controllers.values():
            controller.start()
        self.wait_for(lambda: self.heard("leading"), LIMIT_S, "a leader")
        self.do("nodes", "add", *self.lab.nodes)
        for agent in self.lab.agents.values():
            agent.start()
        self.wait_for(lambda: all(self.heard("node-up", node) for node in self.lab.nodes), LIMIT_S, "all nodes")
        self.wait_for(lambda: all(self.node(node)["memory_mib"] for node in self.lab.nodes), LIMIT_S, "their size")

    def node(self, name: str) -> dict[str, Any]:
        """What `trimtab nodes show` says of a node."""
        return dict(self.look("nodes", "show", name)["node"])

    def until_environment(self, name: str, timeout_s: float = SOON_S, **values: Any) -> dict[str, Any]:
        """Wait until an environment looks like that."""
        last: dict[str, Any] = {}

        def look() -> bool:
            last.update(self.environment(name))
            return {key: last[key] for key in values} == values

        try:
            self.wait_for(look, timeout_s, f"{name} with {values}")
        except AssertionError as error:
            raise AssertionError(f"{last}\n{error}") from error
        return last

    def until_heard(self, what: str, subject: str = "", count: int = 1, timeout_s: float = SOON_S) -> dict[str, Any]:
        """Wait until so many events of a kind have been heard; the last of them."""
        self.wait_for(lambda: len(self.heard(what, subject)) >= count, timeout_s, f"{what} {subject}")
        return self.heard(what, subject)[-1]

    # --- workloads --------------------------------------------------------------------------------------------------

    def submit_to(self, account: str, environment: str, name: str, work_s: float, instances: int = 1) -> None:
        """Submit a job whose instances each need a node for themselves."""
        file = self.job_file(name, work_s, instances, spread=True)
        self.done_by(account, "jobs", "submit", str(file), "--env", environment)

    def app_file(self, name: str = "shop", **keys: Any) -> str:
        """The file of an application without a goal, whose guests do what `FakeControl.load` says."""
        file = self.lab.folder / f"{name}.web.toml"
        app = {
            "name": name,
            "memory_mib": 1_000,
            "max_mhz": 1_000.0,
            "min_instances": 1,
            "max_instances": 2,
        }
        file.write_text(toml(app | keys))
        return str(file)

    def serve(self, load_mhz: float = CALM_MHZ, account: str = LEE, environment: str = "front", **keys: Any) -> None:
        """Submit an application that has so much to do; `lab.fake.load` changes that."""
        file = self.app_file(**keys)
        self.lab.fake.load(Path(file).name.partition(".")[0], load_mhz)
        self.done_by(account, "web", "submit", file, "--env", environment)


@contextmanager
def estate(
    broker: PrivateBroker,
    folder: Path,
    *,
    nodes: str = NODES,
    controller: Mapping[str, Any] | None = None,
    begin: bool = True,
) -> Iterator[Estate]:
    """Nodes of four cores, a controller, and the accounts of all. `controller`: sections laid over those here."""
    setups = Setups(folder)
    sections = merged(CONTROLLER, controller or {})
    with scene(broker, begin=False, kind=Estate, nodes=nodes, controller=sections, agent=setups.section()) as made:
        assert isinstance(made, Estate)
        made.setups = setups
        made.make_accounts()
        if begin:
            made.begin()
            made.wait_for(lambda: all(made.node(node)["memory_mib"] for node in made.lab.nodes), LIMIT_S, "nodes")
        yield made
