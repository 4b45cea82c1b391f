"""A harness whose nodes report disks, and whose agents run standard jobs when a test says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shared.ports.effects import Publish
from shared.protocol import topology
from shared.protocol.messages import Reply, RunStandardJob, StandardJobEnded
from shared.protocol.operator_messages import ProfileNode, Query, SubmitJob
from shared.values.actions import GuestChange
from shared.values.load_vector import StandardJob, StandardPace, StandardRun
from shared.values.nodes import NodeSample
from shared.values.vms import VmState
from sim_backend.fakes.store import MemoryStore
from tests.support.controller_harness import ControllerHarness, job

TYPES = {"n1": "a", "n2": "a", "n3": "b"}


class InterferenceHarness(ControllerHarness):
    """Nodes n1 and n2 of type "a" and n3 of type "b". `sent`: standard jobs that agents were asked for. `does`: what a
    VM does in a second, seconds of CPU and seconds that its disk requests kept it waiting."""

    def __init__(self, store: MemoryStore | None = None, **settings: Any) -> None:
        self.sent: list[RunStandardJob] = []
        self.does: dict[str, tuple[float, float]] = {}
        super().__init__(TYPES, store, **settings)
        self.nodes = {name: replace(node, node_type=TYPES[name], labels=(name,)) for name, node in self.nodes.items()}
        self._asks = 0

    def _publish(self, effect: Publish) -> None:
        if isinstance(effect.message, RunStandardJob):
            self.sent.append(effect.message)
        super()._publish(effect)

    def _id(self) -> str:
        self._asks += 1
        return f"ask-{self._asks}"

    def successor(self) -> InterferenceHarness:
        """The controller dies and another leads, over the same store and hosts."""
        other = InterferenceHarness(self.store)
        other.now_s, other.boots, other.seqs = self.now_s, self.boots, self.seqs
        other.vms, other.does = self.vms, self.does
        other.carry(other.controller.start(other.now_s))
        for _ in range(2):  # once greeted, they are believed
            for name in other.nodes:
                other.report(name)
        return other

    # --- jobs -------------------------------------------------------------------------------------------------------

    def run(self, name: str, node: str, does: tuple[float, float], job_class: str = "", **fields: Any) -> None:
        """A job that runs on a node."""
        wanted = job(name, job_class=job_class, work=1e12, required_labels=(node,), **fields)
        reply = self.ask(SubmitJob(self._id(), wanted))
        assert reply.done, reply
        self.obey()
        assert f"{name}#0" in self.vms[node]
        self.does[f"{name}#0"] = does

    def finish(self, name: str) -> None:
        """A job is complete."""
        node = next(node for node, vms in self.vms.items() if f"{name}#0" in vms)
        self.guest(node, f"{name}#0", GuestChange.ENDED, self.controller.cluster.nodes[node].events_seen + 1)
        self.obey()

    def work(self, seconds: float) -> None:
        """Time passes while VMs do what they do, in steps of 10 s."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 10.0
            for node, vms in self.vms.items():
                for vm, status in list(vms.items()):
                    cpu, io = self.does.get(vm, (0.0, 0.0))
                    if status.state is VmState.RUNNING:
                        self.change(
                            node,
                            vm,
                            cpu_time_s=status.cpu_time_s + 10.0 * cpu,
                            disk_time_s=status.disk_time_s + 10.0 * io,
                        )
                self.report(node, sample=NodeSample())
            self.settle()

    # --- standard jobs ------------------------------------------------------------------------------------------------

    def probe(self, node: str, standard: str = "io", beside: str = "", copies: int = 1, run_s: float = 10.0) -> Reply:
        """An operator wants a standard job run."""
        run = StandardRun(StandardJob(standard), run_s, copies)
        return self.ask(ProfileNode(self._id(), node, run, beside))

    def ran(self, units_per_s: float, ok: bool = True, **fields: Any) -> None:
        """The agent answers the last request: each copy did so much."""
        asked = self.sent[-1]
        paces = tuple(
            StandardPace(units_per_s * asked.run.run_s, asked.run.run_s, 0.1) for _ in range(asked.run.copies)
        )
        given: dict[str, Any] = {
            "node": asked.node,
            "boot_id": self.boots[asked.node],
            "seq": self.next_seq(asked.node),
            "clock_s": self.now_s,
            "request": asked.request,
            "ok": ok,
            "paces": paces if ok else (),
            "detail": "" if ok else "no room on the disk",
        }
        self.say(StandardJobEnded(**(given | fields)), topology.agent_user(asked.node))

    # --- what is known ----------------------------------------------------------------------------------------------

    def view(self, subject: str = "") -> dict[str, Any]:
        """What the view of profiles says."""
        reply = self.ask(Query(self._id(), "profiles", subject))
        assert reply.done, reply
        return dict(reply.data)

    def profile(self, name: str, node_type: str = "a") -> dict[str, Any]:
        """The row of a profile."""
        return next(row for row in self.view(name)["profiles"] if (row["class"], row["node_type"]) == (name, node_type))

    def told(self, what: str) -> list[str]:
        """The details of events of one kind."""
        return [event.detail for event in self.happenings(what)]
