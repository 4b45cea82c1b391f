"""The driver `process` on cgroups of this machine, as tests use it: real programs, tiny ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from agents.hypervisors.process.build import from_config
from agents.hypervisors.process.cgroups import ControlGroup, Hierarchies, mounted
from agents.hypervisors.process.cgroups import Place as CgroupPlace
from agents.hypervisors.process.driver import ProcessHypervisor
from shared.base.errors import TrimtabError
from shared.config.agent import AgentConfig, HypervisorChoice, NodeFacts, ProcessKeys, Program, RunnerName
from tests.conformance.real_time import RealTime
from tests.integration.debian import go_without, need_root

# Burns as much CPU as the file of its VM says, then ends; without one it idles for ever. In Perl: every Debian has it,
# for all accounts.
GUEST = """
open(my $task, "<", "$ARGV[0]/$ARGV[1]") or do { sleep 3600 while 1 };
my $limit_s = <$task>;
while ((times)[0] + (times)[1] < $limit_s) { my $sum = 0; $sum += $_ for 1 .. 2000 }
"""
PERL = "/usr/bin/perl"
CORE_MHZ = 1_000.0
OWNER = "nobody"


def places() -> dict[str, CgroupPlace]:
    """Where the controllers of this machine are."""
    return mounted(Path("/proc/self/mounts").read_text("utf-8"))


def need_cgroups(found: Mapping[str, CgroupPlace]) -> None:
    """Skip the test, or fail it when CI=true, unless groups can be made there."""
    need_root("making cgroups")
    name = f"/trimtab-probe-{os.getpid()}"
    try:
        group = Hierarchies(name, found).group()
        group.make()
        group.remove()
    except TrimtabError as problem:
        go_without(f"no cgroups can be made here: {problem}")


class Site:
    """A node of its own on this machine: one CPU and 1,000 MiB, below a folder and a cgroup of its own."""

    def __init__(self, folder: Path, programs: Mapping[str, Program], **keys: object) -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.cgroup = f"/trimtab-test-{os.getpid()}-{folder.name}"
        fixed: dict[str, object] = {
            "runner": RunnerName.CGROUP,
            "user": OWNER,
            "programs": dict(programs),
            "stop_limit_s": 1.0,
            "state": str(folder / "state"),
            "output": str(folder / "output"),
            "cgroup": self.cgroup,
            "cores": 1,
            "core_mhz": CORE_MHZ,
            "memory_mib": 1_000,
        }
        node = NodeFacts(name="n1", address="127.0.0.7")
        self.keys = ProcessKeys(**{**fixed, **keys})  # type: ignore[arg-type]
        self.config = AgentConfig(node=node, hypervisor=HypervisorChoice("process"), process=self.keys)

    def driver(self, wake: Callable[[], None] = lambda: None) -> ProcessHypervisor:
        """As an agent makes it."""
        return from_config(self.config, wake)

    def group(self, name: str = "") -> ControlGroup:
        """The cgroup of a program, by its escaped name, or that of all."""
        hierarchies = Hierarchies(self.cgroup, places())
        return hierarchies.group(f"p-{name}") if name else hierarchies.group()

    def clear(self) -> None:
        """End and remove everything."""
        hierarchies = Hierarchies(self.cgroup, places())
        names = {Path(folder).name for folder in self._groups(hierarchies)}
        for name in sorted(names):
            hierarchies.group(name).kill()
        for name in sorted(names):
            hierarchies.group(name).remove()
        hierarchies.group().remove()

    def _groups(self, hierarchies: Hierarchies) -> Iterator[Path]:
        for place in hierarchies.places.values():
            root = place.folder / hierarchies.root
            if root.is_dir():
                yield from (folder for folder in root.iterdir() if folder.is_dir())


@contextmanager
def site(tmp_path: Path, programs: Mapping[str, Program], **keys: object) -> Iterator[Site]:
    """A site that leaves nothing behind. Folders of pytest are closed to others: programs get one that is open."""
    need_cgroups(places())
    folder = Path("/var/tmp") / f"trimtab-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o755)
    made = Site(folder, programs, **keys)
    try:
        yield made
    finally:
        made.clear()
        shutil.rmtree(folder)


class Place(Protocol):
    """Where a driver is made, and a folder for the tasks of its programs."""

    @property
    def folder(self) -> Path:
        """Readable by the programs' account."""
        ...

    def driver(self) -> ProcessHypervisor:
        """As an agent makes it."""
        ...


class Harness(RealTime):
    """The surroundings that the conformance checks ask for."""

    template = "guest"
    peer = None
    tolerance_frac = 0.25

    def __init__(self, at: Place, capabilities: frozenset[str]) -> None:
        super().__init__()
        self.capabilities = capabilities
        self.tasks = at.folder / "tasks"
        self.tasks.mkdir(exist_ok=True)
        self.node: ProcessHypervisor = at.driver()

    def will_end(self, vm: str, cpu_s: float) -> None:
        """Give the program a task."""
        (self.tasks / vm).write_text(str(cpu_s))


def guest(folder: Path) -> dict[str, Program]:
    """The program of the checks, with its tasks in a folder of the site's."""
    run = (PERL, "-e", GUEST, str(folder / "tasks"), "{vm}")
    return {"guest": Program(run)}


@contextmanager
def harness(tmp_path: Path, capabilities: frozenset[str], **keys: object) -> Iterator[Harness]:
    """A harness on a site of its own."""
    with site(tmp_path, {}, **keys) as at:
        programs = guest(at.folder)
        at.config = replace(at.config, process=replace(at.keys, programs=programs))
        made = Harness(at, capabilities)
        try:
            yield made
        finally:
            made.node.close()
