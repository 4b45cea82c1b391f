"""What is looked at when a scenario in the lab is over: what the guests printed, what HAProxy and the clients counted,
what the controllers decided, what the agents did, and whether Trimtab's inventory is libvirt's."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.integration.scene import log_lines
from tests.lab.cluster import Cluster
from tests.lab.guest_output import requests_served

POLICY = "apc"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was to hold, what was found in words, and whether it holds."""

    what: str
    found: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """One change of a decision's: what is to become of which workload, and why."""

    decision: int
    policy: str
    kind: str
    workload: str
    reason: str

    def __str__(self) -> str:
        return f"decision {self.decision}: {self.workload}: {self.kind}: {self.reason}"


def data(cluster: Cluster, *words: str) -> Any:
    """What a command of the operator's says as JSON."""
    return cluster.do(*words, "--output", "json").data


def decided(cluster: Cluster, kinds: Sequence[str]) -> list[Decided]:
    """The changes of these kinds that were decided so far, in order."""
    rows = data(cluster, "plan", "history", "--limit", "200")["decisions"]
    numbers = sorted(row["number"] for row in rows if set(row["kinds"]) & set(kinds))
    return [one for number in numbers for one in _changes(cluster, number) if one.kind in kinds]


def _changes(cluster: Cluster, number: int) -> Iterator[Decided]:
    decision = data(cluster, "plan", "show", "--decision", str(number))["decision"]
    for change in decision["changes"]:
        yield Decided(number, decision["policy"], change["kind"], change["workload"], change["reason"]["text"])


def begun(cluster: Cluster) -> Counter[str]:
    """How many operations of each kind the agents have begun."""
    lines = [line for agent in cluster.lab.agents.values() for line in log_lines(agent)]
    return Counter(line["kind"] for line in lines if line["event"] == "operation begun")


def moves_and_waits(cluster: Cluster, changes: Sequence[Decided]) -> Finding:
    """APC has decided on a live migration, a suspend and a resume, and all three were done on real guests."""
    counts = Counter(one.kind for one in changes if one.policy == POLICY)
    done = begun(cluster)
    kinds = ("migrate", "suspend", "resume")
    said = ", ".join(f"{kind} decided {counts[kind]} begun {done[kind]}" for kind in kinds)
    return Finding("migrations, suspends and resumes by APC", said, all(counts[kind] and done[kind] for kind in kinds))


def jobs_done_once(cluster: Cluster, units: Mapping[str, int]) -> Finding:
    """Each job's one guest has done each of its units once, by its own word."""
    faults = {job: fault for job, wanted in units.items() if (fault := cluster.printed(f"{job}#0").fault(wanted))}
    phases = Counter(row["phase"] for row in data(cluster, "jobs", "list")["jobs"])
    said = f"{len(units)} guests, {sum(units.values())} units; jobs {dict(phases)}"
    good = not faults and phases == {"completed": len(units)}
    return Finding("each guest did each of its units once", f"{said} {faults or ''}".rstrip(), good)


def nobody_lost(cluster: Cluster, app: str, sent: int, good: int) -> Finding:
    """The clients, HAProxy and the guests have counted the same requests, all answered well."""
    at_proxy, answered = proxy_counts(cluster, app)
    served = requests_served(sorted(cluster.lab.places.serial.glob(f"{app}#*.log")))
    said = f"clients {good} of {sent}, HAProxy {answered} of {at_proxy}, guests {served}"
    same = len({sent, good, at_proxy, answered, served}) == 1
    return Finding("requests answered, by who counts them", said, same and sent > 0)


def proxy_counts(cluster: Cluster, app: str) -> tuple[int, int]:
    """Requests for an application that HAProxy's worker has taken, and that instances have answered with 200."""
    rows = _at_proxy(cluster, app)
    return int(rows["FRONTEND"]["req_tot"]), int(rows["BACKEND"]["hrsp_2xx"])


def answers(cluster: Cluster, vm: str) -> bool:
    """Whether a check of HAProxy's was answered well by an instance; it takes one that it begins with for healthy."""
    app, _, index = vm.partition("#")
    row = _at_proxy(cluster, app).get(f"{app}.{index}", {})
    return row.get("status") == "UP" and row.get("check_status") == "L7OK"


def _at_proxy(cluster: Cluster, app: str) -> dict[str, dict[str, str]]:
    """What HAProxy counts of an application, by frontend, server and backend; nothing while it does not know it."""
    assert cluster.proxy is not None
    rows = cluster.proxy.beside().ask(["show stat"]).splitlines()
    found = csv.DictReader([rows[0].removeprefix("# "), *rows[1:]])
    return {row["svname"]: row for row in found if row["pxname"] == f"trimtab-{app}"}


def agreement(cluster: Cluster) -> str:
    """How what is desired, what Trimtab knows and what libvirt has differ; "" where they are the same."""
    wanted = _wanted(cluster)
    known = {row["vm"]: (row["node"], row["state"]) for row in data(cluster, "vms", "list")["vms"]}
    seen: dict[str, tuple[str, str]] = {}
    for name, host in cluster.lab.hosts.items():
        for vm in host.virsh("list", "--all", "--name").split():
            seen[vm] = (name, host.virsh("domstate", vm))
    in_progress = data(cluster, "status")["actions"]["total"]
    if wanted == known == seen and not in_progress:
        return ""
    return f"desired {wanted}, Trimtab's {known}, libvirt's {seen}, actions under way {in_progress}"


def _wanted(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Which VMs are to run, and where."""
    found: dict[str, tuple[str, str]] = {}
    for row in data(cluster, "jobs", "list")["jobs"]:
        if row["phase"] == "running":
            found |= {f"{row['name']}#{index}": (node, "running") for index, node in enumerate(row["nodes"])}
    for app in data(cluster, "web", "list")["apps"]:
        replicas = data(cluster, "web", "show", app["name"])["app"]["seats"]
        found |= {
            replica["vm"]: (replica["wanted_node"], "running") for replica in replicas if replica["phase"] == "running"
        }
    return found


def left_on_disk(cluster: Cluster) -> list[str]:
    """Volumes and saved images of VMs that are there no more."""
    host = next(iter(cluster.lab.hosts.values()))
    found = []
    for pool in ("shared", "trimtab-saved"):
        host.virsh("pool-refresh", pool)
        found += [line.split()[0] for line in host.virsh("vol-list", pool).splitlines()]
    return [name for name in found if "#" in name or "%23" in name]
