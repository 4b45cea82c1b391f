"""START of an adopted VM that this node does not have, by the definition that the controller kept of it."""

from __future__ import annotations

from agents.hypervisors.answers import other
from agents.hypervisors.libvirt import domain_xml
from agents.hypervisors.libvirt.codes import CREATE_PAUSED
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.operations import Basic, clear, lives
from agents.hypervisors.libvirt.site import Answered, Site, Task
from agents.hypervisors.libvirt.statistics import ObservedDomain
from shared.base.errors import InvalidValue
from shared.values.actions import Action
from shared.values.vms import VmSpec


class StartDefined(Basic):
    """START with a definition. Its disks are those that every node sees: they are used as they are, and never removed.
    Libvirt does not start it with the host, since Trimtab may restart it on yet another one."""

    def __init__(self, site: Site, task: Task, action: Action, here: ObservedDomain | None) -> None:
        super().__init__(site, task, action, here)
        assert action.spec is not None
        self.spec: VmSpec = action.spec
        self._noted = False
        try:
            self._text = domain_xml.without_meta("".join(self.spec.definition))
            domain_xml.facts_of(self._text, site.reader.here)
        except ValueError as error:
            raise InvalidValue("definition", action.vm, f"the XML of a domain: {error}") from error

    def do(self) -> None:
        """Define, create; the definition says that it has not begun until it has."""
        self._make_way()
        self.task.stop()
        with self.site.link.use(f"define {self.vm}") as conn:
            conn.defineXML(domain_xml.relabelled(self._text, self._meta(begun=False)))
        self.task.stop()
        with self.site.domain(self.vm, "start") as (_conn, domain):
            domain.createWithFlags(CREATE_PAUSED if self.action.paused else 0)
        self.task.stop()
        self._note()
        self._noted = True

    def undo(self) -> None:
        """Remove the definition again, unless it is of somebody else."""
        now = self.site.see(self.vm)
        if now is None or not now.adopted or now.generation != self.action.generation:
            return
        self.site.destroy(self.vm)
        self.site.remove(now, moved=True)

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is live as requested."""
        return lives(now, self.action)

    def tidy(self) -> None:
        """Note that the VM has come to life, if that was not noted."""
        if not self._noted:
            self._note()

    def _make_way(self) -> None:
        """Remove what an interrupted start has left here, or a migration away that nobody could tidy up after: that
        definition is older, since the VM has lived elsewhere. Raises Answered where the VM is here."""
        now = self.site.see(self.vm)
        if now is None:
            return
        if now.stale:
            clear(self.site, now)
        elif now.left and now.adopted:
            self.site.remove(now, moved=True)
        else:
            raise Answered(*other(now))

    def _note(self) -> None:
        """Note in the definition that the VM has come to life."""
        meta = self._meta(begun=True)
        if meta.stays_off:
            self.site.set_stays_off(self.vm, on=True)
        self.site.set_meta(self.vm, meta)

    def _meta(self, begun: bool) -> Meta:
        spec = self.spec
        return Meta(
            generation=self.action.generation,
            attempt=spec.attempt,
            cpu_mhz=spec.cpu_mhz,
            cap_mhz=spec.cap_mhz,
            node=self.site.node,
            begun=begun,
            disks=self.action.disks,
            failover=True,
            autostart=spec.autostart,
            stays_off=spec.stays_off,
        )
