"""Jobs of libvirt on domains that somebody else has begun, backups and block jobs, and snapshots. No domain migrates
with any of them. No statistics and no event tell when they begin, so they are looked for now and then; and so is what
else no event tells of adopted domains: whether libvirt starts one with its host, and edits of its definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agents.hypervisors.libvirt import domain_xml
from agents.hypervisors.libvirt.binding import Connection, Domain
from agents.hypervisors.libvirt.codes import JobOperation, XmlFlag
from agents.hypervisors.libvirt.errors import telling
from agents.hypervisors.libvirt.migration_needs import SNAPSHOTS
from agents.hypervisors.libvirt.statistics import CHECKPOINTS, ObservedDomain, has_checkpoints
from shared.base.errors import TrimtabError
from shared.values.migration import bound

_OF_OPERATION = {
    JobOperation.BACKUP: "backup-job",
    JobOperation.SNAPSHOT: "snapshot-job",
    JobOperation.SNAPSHOT_REVERT: "snapshot-job",
    JobOperation.SNAPSHOT_DELETE: "snapshot-job",
    JobOperation.DUMP: "job",
}


def jobs_on(
    conn: Connection, errors: type[Exception], looked_at: Iterable[ObservedDomain]
) -> Mapping[str, tuple[str, ...]]:
    """Return, by UUID, the needs that come of jobs on domains that run, and of their snapshots. A domain that does not
    answer has no job that is known."""
    found: dict[str, tuple[str, ...]] = {}
    for seen in looked_at:
        uuid = seen.facts.uuid
        try:
            with telling(errors, f"look for jobs on {seen.facts.name}"):
                domain = conn.lookupByName(seen.facts.name)
                if domain.UUIDString() != uuid or not domain.isActive():
                    continue
                needs = _needs(domain, seen)
                if domain.snapshotNum(0):
                    needs = (*needs, SNAPSHOTS)
        except TrimtabError:
            continue  # it is gone, or its monitor hangs: that is for the reading of all domains to find
        if needs:
            found[uuid] = needs
    return found


def outdated(conn: Connection, errors: type[Exception], adopted: Iterable[ObservedDomain]) -> frozenset[str]:
    """Return the UUIDs of those adopted domains whose autostart, snapshots, checkpoints or definition are not what was
    read of them: `virsh attach-disk --config` and the like are no event."""
    changed: set[str] = set()
    for seen in adopted:
        facts = seen.facts
        try:
            with telling(errors, f"look for changes of {facts.name}"):
                domain = conn.lookupByName(facts.name)
                text = domain.XMLDesc(XmlFlag.INACTIVE | XmlFlag.SECURE)
                kept = (bool(domain.snapshotNum(0)), has_checkpoints(domain, errors))
                now = (bool(domain.autostart()), *kept, domain_xml.fingerprint(text))
        except TrimtabError:
            continue  # it is gone: that is for the reading of all domains to find
        if now != (facts.autostart, SNAPSHOTS in facts.needs, CHECKPOINTS in facts.host_files, facts.fingerprint):
            changed.add(facts.uuid)
    return frozenset(changed)


def _needs(domain: Domain, seen: ObservedDomain) -> tuple[str, ...]:
    found: set[str] = set()
    if domain.jobInfo()[0]:
        operation = domain.jobStats(0).get("operation", 0)
        if operation in _OF_OPERATION:
            found.add(bound(_OF_OPERATION[JobOperation(operation)]))
    for disk in seen.facts.disks:
        if disk.target and domain.blockJobInfo(disk.target, 0):
            found.add(bound("block-job", f"on {disk.target}"))
    return tuple(sorted(found))
