"""Keys of agreement files: what a controller, its agents and others do for the environment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agents.setups.host import OwnSetups
from daemons.controller.admission.policing import Policing
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.manifests.agreement import AgreementFile, agreement_of
from daemons.values.settings import AssuranceSettings, PolicyChoice
from shared.base.errors import InvalidInput
from shared.config.agent import SetupCommand, SetupKeys
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import SetUpAnswer, SetUpNode
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    CheckReservation,
    ConsentEnvironment,
    CreateEnvironment,
    DestroyEnvironment,
    Query,
    SubmitJob,
    SubmitWeb,
)
from shared.values.actions import GuestChange
from shared.values.agreement import Agreement
from shared.values.nodes import NodeSample
from shared.values.web_app import WebApp
from tests.conformance.settings.core import Recorded
from tests.conformance.settings.row import Given, Row, shown_by, shown_together
from tests.support import parts
from tests.support.controller_harness import job
from tests.support.environment_cases import agreement
from tests.support.installed_types import installed

KIM, JOE = "owner.kim", "user.joe"
NODES = tuple(f"n{index}" for index in range(1, 7))
FILE: dict[str, Any] = {"name": "hpc", "owner": "kim", "workload": "batch", "lower": 2, "lease_s": 600}
SHARED = FILE | {"model": "flb-nub", "lower": 1, "upper": 4}
WEB = SHARED | {"name": "shop", "workload": "web", "upper": 4}
VMS = FILE | {
    "granularity": "vm",
    "template.name": "small",
    "template.vcpus": 1,
    "template.memory_mib": 1_000,
    "template.max_mhz": 1_000,
}
DIGEST = "a" * 64


def read(given: Given) -> Agreement:
    """The agreement."""
    text = given.text.replace("/FOLDER", str(given.folder))
    return agreement_of(Given(text, given.folder).read(AgreementFile), given.folder)


class Provider(Recorded):
    """Six nodes, of which two run debian 12 and two debian 11; their agents carry setups out at once, and are in use as
    `cpu_frac` says. `asked`: the setups that they were asked for."""

    def __init__(self, nodes: tuple[str, ...] = NODES, **settings: Any) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.cpu_frac = 0.0
        super().__init__(nodes, **({"placement": PolicyChoice("first-fit")} | settings))
        systems = {"n1": "11", "n2": "11", "n3": "12", "n4": "12"}
        for name, version in systems.items():
            self.nodes[name] = replace(self.nodes[name], os_type="debian", os_version=version)
        self.lead()
        for name in nodes:
            self.report(name)

    def _publish(self, effect: fx.Publish) -> None:
        super()._publish(effect)
        if isinstance(asked := effect.message, SetUpNode):
            self.asked.append((asked.node, asked.step.value, repr(asked.setup)))
            seq = self.next_seq(asked.node)
            answer = SetUpAnswer(asked.node, self.boots[asked.node], seq, self.now_s, asked.request, True, "")
            self.say(answer, topology.agent_user(asked.node))

    def report(self, node: str, **fields: Any) -> None:
        for name, status in list(self.vms[node].items()):
            self.change(node, name, cpu_time_s=status.cpu_time_s + 5.0 * self.cpu_frac)
        super().report(node, sample=NodeSample(cpu_frac=self.cpu_frac), **fields)

    def go(self, seconds: float) -> None:
        """Let time pass; orders are carried out, agents report."""
        self.obey()
        self.wait(seconds, list(self.nodes))
        self.obey()

    def finish(self, name: str) -> None:
        """The guest of a job that runs has done its work."""
        for node in self.nodes:
            if f"{name}#0" in self.vms[node]:
                events_seen = self.controller.cluster.nodes[node].events_seen
                self.guest(node, f"{name}#0", GuestChange.ENDED, events_seen + 1)

    def held(self) -> dict[str, list[str]]:
        """The nodes of each environment."""
        found: dict[str, list[str]] = {}
        for node in self.controller.cluster.nodes.values():
            found.setdefault(node.given or node.environment, []).append(node.name)
        return found


def opened(given: Given, *others: Agreement, nodes: tuple[str, ...] = NODES) -> tuple[Provider, Agreement]:
    """The environment, and others, are made and activated."""
    provider, own = Provider(nodes), read(given)
    for each in (*others, own):
        provider.say(CreateEnvironment(f"c-{each.name}", each), f"owner.{each.owner}")
        provider.say(ActivateEnvironment(f"a-{each.name}", each.name), f"owner.{each.owner}")
    provider.go(30.0)
    return provider, own


def life(given: Given) -> object:
    """Jobs come and are done, and then the environment ends: what was answered, held, set up and ordered."""
    try:
        provider, own = opened(given)
    except InvalidInput as error:
        return [problem.where for problem in error.problems]
    for index in range(8):
        memory_mib = 900 + 100 * index if own.template else 3_000
        goal_s = 90_000.0 - 1_000.0 * index
        wanted = job(f"j{index}", environment=own.name, memory_mib=memory_mib, vcpus=1 + index % 2, goal_s=goal_s)
        provider.say(SubmitJob(f"s{index}", wanted), JOE if index == 7 else KIM)
    found = []
    for index in range(8):
        provider.go(200.0)
        provider.finish(f"j{index}")
        found.append((provider.held(), _jobs(provider)))
    for index in range(6):
        provider.say(SubmitJob(f"e{index}", job(f"e{index}", environment=own.name, instances=9)), KIM)
    shown = provider.ask(Query("q", "environment", own.name))
    provider.say(DestroyEnvironment("d", own.name), KIM)
    provider.go(100.0)
    answers = [(reply.request, reply.code, reply.detail) for reply in provider.replies if reply.request != "q"]
    relationship = shown.data["environment"]["agreement"]["relationship"] if shown.done else ""
    return answers, found, provider.asked, provider.ordered, relationship


def _jobs(provider: Provider) -> dict[str, str]:
    return {name: entry.phase.value for name, entry in provider.controller.cluster.jobs.items()}


def idle(given: Given) -> object:
    """Half of its jobs are done: how many nodes it keeps."""
    provider, own = opened(given)
    for index in range(6):
        provider.say(SubmitJob(f"s{index}", job(f"j{index}", environment=own.name, memory_mib=3_900)), KIM)
    found = []
    for number in range(5):
        provider.go(350.0)
        if number == 2:
            for index in range(3):
                provider.finish(f"j{index}")
        found.append(len(provider.held().get(own.name, ())))
    return found


def pressed(given: Given) -> object:
    """It shares nodes with a web environment whose load grows and goes: who has how many, and what becomes of jobs."""
    other = agreement("front", "web", 3, owner="kim", model="fb", lease_s=600.0)
    provider, own = opened(given, other, nodes=NODES[:4])
    for index in range(5):
        provider.say(SubmitJob(f"s{index}", job(f"j{index}", environment=own.name, memory_mib=3_900, work=5e5)), KIM)
    app = WebApp("site", (), 3_900, max_mhz=4_000.0, max_instances=6, vcpus=4, environment="front", min_instances=1)
    provider.say(SubmitWeb("w", app), KIM)
    found = []
    for cpu_frac in (0.1, 0.95, 0.95):
        provider.cpu_frac = 4.0 * cpu_frac
        provider.go(350.0)
        found.append((provider.held(), _jobs(provider)))
    partners = {name: entry.partner for name, entry in provider.controller.cluster.environments.items()}
    return found, provider.ordered, partners


def crowded(given: Given) -> object:
    """An application of a web environment is in full use, then half idle: how many instances it has."""
    provider, own = opened(given)
    app = WebApp("site", (), 3_900, max_mhz=4_000.0, max_instances=6, vcpus=4, environment=own.name, min_instances=1)
    provider.say(SubmitWeb("w", app), KIM)
    found = []
    for cpu_frac in (0.5, 0.75, 0.75, 0.95, 0.95, 0.95, 0.45, 0.45, 0.45, 0.1):
        provider.cpu_frac = 4.0 * cpu_frac
        provider.go(60.0)
        found.append(len(provider.controller.cluster.replicas.get("site", {})))
    return found, provider.ordered


def parting(given: Given) -> object:
    """An environment of somebody else names it; its owner consents, and withdraws that: until when they share."""
    other = agreement("front", "web", 1, owner="lee", model="flb-nub", upper=3, lease_s=600.0, coordinated_with="hpc")
    provider, own = opened(given, other)
    found = []

    def look() -> None:
        found.append(provider.controller.cluster.environments[own.name].partner)

    look()
    provider.say(ConsentEnvironment("y", own.name, "front", True), KIM)
    provider.go(10.0)
    look()
    provider.say(ConsentEnvironment("n", own.name, "front", False), KIM)
    for _ in range(5):
        provider.go(1_000.0)
        look()
    return found


def brought(given: Given) -> object:
    """A node comes: what its agent does there."""
    source = given.folder / "source"
    for name in ("a", "b"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(name.encode())
    keys = SetupKeys(
        commands={name: SetupCommand(("/bin/echo", name)) for name in ("one", "two")},
        urls=(f"file://{source}/",),
        files_folder=str(given.folder / "files"),
        services=("*.service",),
        packages=("shop*",),
        helper=str(given.folder / "helper.sock"),
        library=str(source),
        images_folder=str(given.folder / "images"),
    )
    done: list[str] = []

    class Units:
        def start(self, unit: str, limit_s: float | None = None) -> None:
            done.append(f"start {unit} within {limit_s or 0:.0f} s")

        def stop(self, unit: str, limit_s: float | None = None) -> None:
            done.append(f"stop {unit} within {limit_s or 0:.0f} s")

    provider, own = opened(given)
    del provider
    from shared.values.nodes import SetupStep

    found = OwnSetups("n1", keys, given.folder / "lock", Units()).set_up("u", own.name, SetupStep.ACQUIRE, own.setup)
    there = [(path, path.stat().st_mode) for path in sorted(given.folder.rglob("*")) if path.is_file()]
    return repr((found.ok, found.output, done, there)).replace(str(given.folder), "/FOLDER")


def packages(given: Given) -> object:
    """Which packages the root helper is asked for."""
    from tests.unit.agents.setups.test_host_duties import FakeHelper

    done: list[str] = []
    helper = FakeHelper(given.folder / "helper.sock", done, ['{"ok": true, "installed": [], "present": []}'])
    brought(given)
    helper.end()
    return [request["install"] for request in helper.requests]


def reserved(given: Given) -> object:
    """Whether it would be let in, and what it may ask for then."""
    (given.folder / "one.csv").write_text(_demand(2))
    (given.folder / "two.csv").write_text(_demand(5))
    try:
        own = read(given)
    except InvalidInput as error:
        return [problem.where for problem in error.problems]
    provider = Provider(admission=PolicyChoice("statistical"))
    reply = provider.ask(CheckReservation("r", own))
    provider.now_s += 5.0
    provider.say(CreateEnvironment("c", own), KIM)
    environment = provider.controller.cluster.environments.get(own.name)
    judged = []
    if environment is not None:
        entry = parts.admission(provider.controller).assurance.entry_of(environment)
        policing = Policing(UnitOfWork(), AssuranceSettings(), set())
        judged = [policing.judge(entry, units, 0, 3_600.0 * hour) for hour in (0, 1, 9, 30) for units in (1, 3, 6)]
    return reply.code, reply.data, judged


def _demand(units: int) -> str:
    rows = [f"{hour * 3600},{units if hour % 2 else 1}" for hour in range(24 * 14)]
    return "\n".join(["time,servers", *rows]) + "\n"


def installed_type(given: Given) -> object:
    """The type `jobs` of another package, which takes a term `speed`, is asked how many units are needed."""
    from tests.support.planted_types import PLANTED

    PLANTED.clear()
    PLANTED["units"] = 3
    try:
        with installed(given.folder / "types", {"jobs": "tests.support.planted_types:Jobs"}):
            provider, own = opened(given)
            provider.go(700.0)
            return provider.held(), [reply.code for reply in provider.replies], own.workload
    except InvalidInput as error:
        return [problem.where for problem in error.problems]
    finally:
        PLANTED.clear()


SLOTS = {"assurance.slot": [{"first": 0, "last": 23, "units": [0, 3], "chances": [0.5, 0.5]}]}
PROMISED = SHARED | {
    "lower": 0,
    "assurance.share[].class": "predictable",
    "assurance.share[].units": 3,
    "assurance.share[].theta": 0.9,
    "assurance.slot[].first": 0,
    "assurance.slot[].last": 23,
    "assurance.slot[].units": [1, 3],
    "assurance.slot[].chances": [0.5, 0.5],
}
FROM_FILE = {key: value for key, value in PROMISED.items() if ".slot[]" not in key} | {"assurance.demand": "one.csv"}
FILES = FILE | {
    "setup.files[].url": "file:///FOLDER/source/a",
    "setup.files[].path": "a",
    "setup.files[].sha256": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
}
IMAGES = FILE | {
    "setup.policy": "image",
    "setup.images[].name": "a",
    "setup.images[].sha256": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
}
SHOP = FILE | {"setup.packages[].name": "shop", "setup.packages[].sha256": DIGEST}

TABLE: tuple[Row, ...] = (
    *shown_by(
        life,
        {
            "name": ("hpc", "big"),
            "owner": ("kim", "lee"),
            "lower": (2, 3),
            "model": ("fb", "flb-nub"),
            "relationship": ("affiliated", "business"),
            "os_type": ("debian", "fedora"),
            "os_version": ("11", "12"),
            "users": ([], ["joe"]),
            "scheduling.policy": ("first-fit", "edf"),
            "scheduling.params": ({}, {"speed": 1}),
            "resource": ("node", "vm"),
        },
        FILE | {"os_type": "debian"},
    ),
    *shown_together(
        life,
        {
            "upper": (4, 2),
            "lease_s": (600, 300),
            "batch.request_ratio": (1.2, 9.0),
        },
        SHARED,
    ),
    *shown_by(
        idle,
        {"batch.release_ratio": (0.9, 0.0), "batch.elastic_factor": (0.4, 0.9)},
        SHARED | {"upper": 6, "batch.release_ratio": 0.9, "batch.elastic_factor": 0.9},
    ),
    *shown_by(
        life,
        {
            "granularity": ("vm", "node"),
            "template.name": ("small", "tiny"),
            "template.vcpus": (1, 2),
            "template.memory_mib": (1_000, 2_000),
            "template.max_mhz": (1_000, 500),
        },
        VMS,
    ),
    *shown_by(
        pressed,
        {
            "batch.on_reclaim": ("suspend", "kill"),
            "coordinated_with": ("front", ""),
        },
        FILE | {"lower": 1, "coordinated_with": "front"},
    ),
    *shown_by(crowded, {"web.add_above": (0.8, 0.6), "web.over_s": (20, 90)}, WEB | {"web.remove_below": 0.4}),
    *shown_by(crowded, {"web.remove_below": (0.8, 0.2)}, WEB),
    *shown_by(parting, {"shares": (False, True), "notice_s": (1_500, 3_500)}, SHARED),
    *shown_by(
        life,
        {"setup.acquire": (True, False), "setup.release": (True, False)},
        FILE | {"setup.policy": "wipe"},
    ),
    *shown_by(brought, {"setup.policy": ("noop", "wipe"), "setup.services": (["a.service"], ["b.service"])}, FILE),
    *shown_by(brought, {"setup.command": ("one", "two")}, FILE | {"setup.policy": "exec"}),
    *shown_by(brought, {"setup.limit_s": (60, 300)}, FILE | {"setup.services": ["a.service"]}),
    *shown_by(
        brought,
        {"setup.images[].name": ("a", "b"), "setup.images[].sha256": (IMAGES["setup.images[].sha256"], DIGEST)},
        IMAGES,
    ),
    *shown_by(
        packages,
        {
            "setup.packages[].name": ("shop", "shop-data"),
            "setup.packages[].sha256": (DIGEST, "b" * 64),
            "setup.packages[].version": ("", "1.0"),
        },
        SHOP,
    ),
    *shown_by(
        brought,
        {
            "setup.files[].url": ("file:///FOLDER/source/a", "file:///FOLDER/source/b"),
            "setup.files[].path": ("a", "c"),
            "setup.files[].sha256": (FILES["setup.files[].sha256"], DIGEST),
            "setup.files[].executable": (False, True),
        },
        FILES,
    ),
    *shown_by(installed_type, {"workload": ("batch", "jobs")}, SHARED),
    *shown_by(installed_type, {"terms": ({"speed": 1}, {"pace": 1})}, SHARED | {"workload": "jobs"}),
    *shown_by(
        reserved,
        {
            "assurance.share[].class": ("predictable", "guaranteed"),
            "assurance.share[].units": (3, 2),
            "assurance.share[].theta": (0.9, 0.5),
            "assurance.timezone": ("UTC", "Asia/Tokyo"),
            "assurance.start": ("", "1970-01-02"),
            "assurance.end": ("", "1970-01-02"),
        },
        PROMISED,
    ),
    *shown_by(
        reserved,
        {
            "assurance.slot[].units": ([1, 3], [2, 6]),
            "assurance.slot[].chances": ([0.9, 0.1], [0.1, 0.9]),
        },
        PROMISED | {"assurance.share[].units": 6},
    ),
    *shown_by(
        reserved,
        {"assurance.slot[].first": (0, 1), "assurance.slot[].last": (23, 22)},
        PROMISED,
    ),
    *shown_by(
        reserved,
        {
            "assurance.demand": ("one.csv", "two.csv"),
            "assurance.calendar": ("hour-of-day", "hour-of-week"),
            "assurance.slot_s": (3_600, 7_200),
        },
        FROM_FILE,
    ),
)
