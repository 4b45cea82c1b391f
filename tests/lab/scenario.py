"""What `make lab` shows: jobs and a web application under APC on real guests, as an operator sees it.

A host is drained, and its VMs move while they run. An urgent job comes when all memory is taken: a patient one is saved
to disk for it and goes on later. In the end it is looked at what guests, clients, HAProxy and libvirt say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.integration import debian
from tests.integration.harness import CLOCK, Section, toml
from tests.lab import shares, verdicts
from tests.lab.clients import Clients
from tests.lab.cluster import MEMORY_MIB, SETTINGS, UNIT_S, WEB_MEMORY_MIB, Cluster, cluster
from tests.lab.hosts import HostSpec
from tests.lab.verdicts import Finding

HOSTS_MIN, HOSTS_MAX = 3, 8
CPUS_MIN = 2
GUEST_CPUS = 0.9  # of one CPU of the machine for all guests together: the others are left to the daemons
CORE_MHZ = 1_000.0
APP, INSTANCE = "shop", "shop#0"
RATE_PER_S = 2.0
REQUEST_TURNS, REQUEST_MCYCLES = 500, 150.0
GOAL_S = 2.0
JOB_MIN_MHZ = 250.0  # what a guest needs in order to be saved or moved soon
PATIENT = ((56, 5.0), (56, 6.0), (36, 9.0))  # units, and due in how many times the shortest run time
LATER_UNITS, LATER_FACTOR = 24, 4.0
URGENT, URGENT_UNITS, URGENT_FACTOR = "urgent", 12, 3.0
SHARES_S, SHARES_TRIES, POINTS_MAX = 20.0, 4, 10.0
LIMIT_S = 240.0  # for any one thing to come about, on a machine that is busy
DECIDE_S, OPERATION_S = 10.0, 120.0
CONTROLLER: Mapping[str, Section] = {
    "periods": {"decide_s": DECIDE_S, "scrape_s": 2.0},
    "policies": {"placement": verdicts.POLICY},
    "operation_costs": {"start_s": 2.0, "suspend_s_per_mib": 0.03, "resume_s_per_mib": 0.03, "migrate_s_per_mib": 0.05},
    "timeouts": {"operation_timeout_s": OPERATION_S},
}
# Until a drained host is empty: the next decision, its computing, and both of its VMs moved, one after the other.
DRAIN_LIMIT_S = DECIDE_S + float(SETTINGS["timeouts"]["decide_limit_s"]) + 2 * OPERATION_S
SHOWN_WIDTH = "150"
TOLD = ("job-", "vm-migrated", "web-instance", "node-draining", "node-undrained", "action-failed", "node-unreachable")


@dataclass(slots=True)
class Scenario:
    """The cluster, and what was seen of it so far. `tell` takes each line; times in them count from `begin_s`.
    `limit_s`: for any one thing to come about."""

    cluster: Cluster
    tell: Callable[[str], None]
    begin_s: float
    limit_s: float
    units: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _told: int = 0

    def play(self) -> None:
        """All of it. AssertionError when something does not come about."""
        clients = self.open_shop()
        self.submit_patient()
        node = self.drain()
        self.compare_shares()
        self.show("nodes", "undrain", node)
        self.fill()
        self.hurry()
        self.finish(clients)

    # --- acts -------------------------------------------------------------------------------------------------------

    def open_shop(self) -> Clients:
        """The web application behind HAProxy; its clients begin when it answers."""
        proxy = self.cluster.proxy
        assert proxy is not None
        listen = proxy.serving.listen
        file = self.cluster.lab.folder / f"{APP}.web.toml"
        file.write_text(web_file(listen))
        self.say(f"web application {APP}: {GOAL_S:g} s a request on average, {RATE_PER_S:g} requests a second")
        self.show("web", "submit", str(file))
        self.until(lambda: INSTANCE in self.cluster.homes(), f"{INSTANCE} runs")
        self.until(lambda: verdicts.answers(self.cluster, INSTANCE), "the application answers")
        self.say(f"{APP} answers on {self.cluster.hosts.machine_address}:{listen}")
        return Clients(self.cluster.hosts.machine_address, listen, RATE_PER_S)

    def submit_patient(self) -> None:
        """As many jobs with late goals as there are hosts."""
        for index, _ in enumerate(self.cluster.lab.hosts):
            self.submit(f"patient-{index + 1}", *PATIENT[index % len(PATIENT)])
        self.until_running()
        self.show("nodes", "list")
        self.show("jobs", "list")
        self.show("vms", "list")

    def drain(self) -> str:
        """The host of the web application is emptied; returns which that is."""
        node = self.cluster.homes()[INSTANCE]
        leaving = sorted(vm for vm, home in self.cluster.homes().items() if home == node)
        self.show("nodes", "drain", node)
        begin_s = CLOCK.monotonic_s()
        self.until(lambda: node not in self.cluster.homes().values(), f"{node} is empty", DRAIN_LIMIT_S)
        took_s = CLOCK.monotonic_s() - begin_s
        said = f"{node} after {took_s:.1f} s of {DRAIN_LIMIT_S:g} s: {', '.join(leaving)}"
        self.found(Finding("a drained host is empty within its limits", said, took_s <= DRAIN_LIMIT_S))
        self.until(lambda: not verdicts.agreement(self.cluster), "everything is where it is wanted")
        self.show("plan", "show")
        self.show("vms", "list")
        return node

    def compare_shares(self) -> None:
        """On a host with two jobs: neither leaves any of its CPU to the other."""
        seen = None
        for _ in range(SHARES_TRIES):
            self.until(self.crowded, "a host with two jobs")
            seen = shares.watch(self.cluster, self.cluster.lab.hosts[self.crowded()], SHARES_S)
            if seen is not None:
                break
        assert seen is not None, "no host's guests stayed the same for long enough"
        said = "; ".join(f"{one.vm} {one.decided_frac:.1%} decided {one.got_frac:.1%} got" for one in seen.of_guests)
        whole = f"{seen.host}, {seen.seconds:.0f} s, {seen.quota_frac:.0%} of its quota used: {said}"
        worst = max(one.off_points for one in seen.of_guests)
        self.found(Finding("CPU shares within 10 points of the decision", whole, worst <= POINTS_MAX))

    def fill(self) -> None:
        """Jobs for all memory that is left."""
        for index in range(len(self.cluster.lab.hosts) - 1):
            self.submit(f"later-{index + 1}", LATER_UNITS, LATER_FACTOR)
        self.until_running()
        self.show("nodes", "list")

    def hurry(self) -> None:
        """A job that is due soon: another one goes to disk for it, and goes on when there is room again."""
        self.submit(URGENT, URGENT_UNITS, URGENT_FACTOR)
        self.until(lambda: self.cluster.heard("job-suspended"), "APC suspends a job")
        self.until(lambda: self.cluster.heard("job-started", URGENT), f"{URGENT} runs")
        self.show("jobs", "list")
        self.show("vms", "list")
        self.until(lambda: self.cluster.heard("job-resumed"), "APC resumes the job")
        self.show("vms", "list")

    def finish(self, clients: Clients) -> None:
        """Wait for the jobs, and look at everything."""
        self.until(lambda: all(self.cluster.heard("job-completed", job) for job in self.units), "all jobs are complete")
        self.until(lambda: not verdicts.agreement(self.cluster), "everything is where it is wanted")
        asked = clients.end()
        for words in (("jobs", "list"), ("vms", "list"), ("web", "show", APP), ("plan", "show")):
            self.show(*words)
        changes = verdicts.decided(self.cluster, ("migrate", "suspend", "resume"))
        for one in changes:
            self.say(str(one))
        self.found(verdicts.moves_and_waits(self.cluster, changes))
        self.found(verdicts.jobs_done_once(self.cluster, self.units))
        self.found(verdicts.nobody_lost(self.cluster, APP, asked.sent, asked.good))
        self.say(f"requests took {asked.mean_s:.2f} s on average, {asked.worst_s:.2f} s at most")
        self.check_inventory()

    def check_inventory(self) -> None:
        """Desired, known and real: on the hosts and on the disk."""
        differs, left = verdicts.agreement(self.cluster), verdicts.left_on_disk(self.cluster)
        said = f"{differs or 'the same by Trimtab and by virsh'}; {left or 'nothing'} left on disk"
        self.found(Finding("the inventory is as desired", said, not differs and not left))

    # --- inside -----------------------------------------------------------------------------------------------------

    def submit(self, name: str, units: int, factor: float) -> None:
        """A job of one burner that is to be complete within `factor` times its shortest run time."""
        self.units[name] = units
        shortest_s = units * UNIT_S / self.spec.core_frac
        self.say(
            f"job {name}: {units} units, {shortest_s:.0f} s on a core of its own; due in {factor * shortest_s:.0f} s"
        )
        self.cluster.submit_burner(name, units, min_mhz=JOB_MIN_MHZ, goal={"factor": factor})

    @property
    def spec(self) -> HostSpec:
        """What each host has."""
        return next(iter(self.cluster.lab.hosts.values())).spec

    def until_running(self) -> None:
        """All jobs that are not complete have begun."""
        self.until(lambda: all(self.cluster.heard("job-started", job) for job in self.units), "all jobs have begun")

    def crowded(self) -> str:
        """A host on which two jobs run and nothing else; "" where there is none."""
        homes = self.cluster.homes()
        counts = {node: [vm for vm in homes if homes[vm] == node] for node in homes.values()}
        return next((node for node, vms in sorted(counts.items()) if len(vms) == 2 and INSTANCE not in vms), "")

    def until(self, holds: Callable[[], object], what: str, limit_s: float | None = None) -> None:
        """Wait for something, and meanwhile tell what happens."""

        def look() -> bool:
            self.tell_events()
            return bool(holds())

        self.cluster.wait_for(look, limit_s or self.limit_s, what)

    def tell_events(self) -> None:
        """Those that have come since the last time."""
        events = self.cluster.happened()
        for one in events[self._told :]:
            if one["what"].startswith(TOLD):
                self.say(f"{one['what']} {one['subject']}  {one['detail']}".rstrip())
        self._told = len(events)

    def say(self, text: str) -> None:
        """A line with the time."""
        self.tell(f"{CLOCK.monotonic_s() - self.begin_s:6.1f} s  {text}")

    def show(self, *words: str) -> None:
        """A command of the operator's, with what it prints. AssertionError when it fails."""
        self.say(f"$ trimtab {' '.join(words)}")
        file = str(self.cluster.operator_file)
        said = self.cluster.run(*words, "--config", file, env={"COLUMNS": SHOWN_WIDTH})
        for line in (said.out + said.err).splitlines():
            if line.strip():
                self.tell(f"            {line.rstrip()}")
        assert said.status == 0, said

    def found(self, finding: Finding) -> None:
        """Keep it for the summary, and say it."""
        self.findings.append(finding)
        self.say(f"{'ok' if finding.holds else 'WRONG'}: {finding.what}: {finding.found}")


def web_file(listen: int) -> str:
    """The application's file."""
    limits = {"instance_max": 8, "queue_max": 200, "queue_limit_s": 60}
    probe = {"kind": "http", "path": "/up", "port": 80, "period_s": 5.0, "limit_s": 5.0, "grace_s": 60.0}
    size = {"memory_mib": WEB_MEMORY_MIB, "max_mhz": CORE_MHZ, "min_instances": 1, "max_instances": 1}
    head = {"name": APP, "template": "web", "arguments": [str(REQUEST_TURNS)], **size}
    flow = {"name": "page", "mean_s": GOAL_S, "work_mcycles": REQUEST_MCYCLES, "t_min_s": 0.05}
    served = {"serving": {"port": 80, "listen": listen, **limits}, "probe": probe}
    return toml({**head, **served}) + "[[flows]]\n" + toml(flow)


@contextmanager
def scene(hosts: int, tell: Callable[[str], None], limit_s: float = LIMIT_S) -> Iterator[Scenario]:
    """A cluster in which the memory of `hosts` hosts is for one instance and twice as many jobs less one, and no
    more; gone afterwards. Skips the test, or fails it when CI=true, where there can be none."""
    if len(os.sched_getaffinity(0)) < CPUS_MIN:
        debian.go_without(f"a cluster at work in a lab needs {CPUS_MIN} CPUs")
    spec = HostSpec(1, CORE_MHZ, GUEST_CPUS / hosts, memory_mib=WEB_MEMORY_MIB + MEMORY_MIB)
    begin_s = CLOCK.monotonic_s()
    with cluster(hosts, spec, controller=CONTROLLER, web=True, balancer=True, cpus=guest_cpu()) as made:
        yield Scenario(made, tell, begin_s, limit_s)


def guest_cpu() -> str:
    """The last of the machine's CPUs that this process may use."""
    return str(max(os.sched_getaffinity(0)))


def table(findings: list[Finding]) -> str:
    """The summary."""
    width = max(len(one.what) for one in findings)
    return "\n".join(f"{'ok   ' if one.holds else 'WRONG'}  {one.what:<{width}}  {one.found}" for one in findings)


def operations(made: Scenario) -> Mapping[str, int]:
    """How many operations of each kind the agents have begun."""
    return verdicts.begun(made.cluster)
