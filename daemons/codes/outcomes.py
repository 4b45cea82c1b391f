"""How actions on VMs end, what guests do without an order, and verdicts on reservations and requests for units."""

from __future__ import annotations

from daemons.codes.code import Code, Kind, codes

OUTCOMES: tuple[Code, ...] = codes(
    Kind.OUTCOME,
    "Outcomes of actions",
    ("ok", "The action is done, or its result was there already."),
    ("older-term", "The action came from a controller that no longer leads."),
    ("other-boot", "The action was meant for the host before it rebooted."),
    ("expired", "It arrived after its `expires_at_s`."),
    ("wrong-generation", "The VM or image does not have the generation that the action expects."),
    ("busy", "Another action on the same VM is in progress."),
    ("no-such-vm", "Neither a VM nor an image of that name is on the node."),
    ("already-there", "A VM of that name with another generation is on the node."),
    (
        "no-room",
        "The node does not have the memory.",
        "Look for VMs that Trimtab does not manage.",
        "trimtab nodes show NODE",
    ),
    (
        "refused",
        "The hypervisor refused, for example more CPU than vcpus x core clock.",
        "Read the hypervisor's words.",
        "trimtab jobs show JOB",
        "how-to/troubleshooting.md",
    ),
    (
        "migration-fit",
        "The node, or the one the VM comes from, lacks a storage pool for a disk's folder, or a file is in the way.",
        "Read which one in the detail.",
        "trimtab nodes show NODE",
        "how-to/libvirt-storage.md",
    ),
    (
        "stale-disk",
        "A disk is not the one that the VM ran with last: older, changed, replaced or gone since its memory was saved.",
        "Restore the disk, or cancel the job and submit it again.",
        "trimtab jobs show JOB",
        "reference/libvirt.md",
    ),
    ("failed", "It began, failed half-way and was rolled back."),
    ("timed-out", "It began, was given up at the time limit and was rolled back."),
    ("interrupted", "The agent died before it could begin."),
    (
        "will-not-converge",
        "The guest changes memory faster than it can be sent; the migration was aborted and the VM runs on its source.",
        "Allow post-copy or more downtime, or migrate when the guest is less busy.",
        "trimtab jobs show JOB",
        "how-to/live-migration.md",
    ),
)
GUEST_CHANGES: tuple[Code, ...] = codes(
    Kind.GUEST_CHANGE,
    "Changes of guests",
    ("ended", "The guest shut itself down: its work is done."),
    ("vanished", "It is no longer there and nothing says why, or it crashed."),
    ("arrived", "It came in by a migration."),
    ("left", "It left the node by a migration that the agent did not carry out."),
    ("started", "Somebody started it outside Trimtab."),
    ("stopped", "Somebody stopped it outside Trimtab, or saved it where Trimtab cannot resume it from."),
)
_RESERVATION = "Verdicts on reservations"
_REQUEST = "Verdicts on requests for units"
VERDICTS: tuple[Code, ...] = (
    *codes(
        Kind.VERDICT,
        _RESERVATION,
        ("admitted", "The reservation is admitted as it is."),
        (
            "offered",
            "The reservation does not fit as it is; the offer has the largest share that does.",
            "Reserve that share.",
            "trimtab assurance check FILE",
        ),
        (
            "refused",
            "No part of the reservation fits.",
            "Start it later, or reserve less.",
            "trimtab assurance check FILE",
        ),
        about="outcome",
    ),
    *codes(
        Kind.VERDICT,
        _RESERVATION,
        ("fits", "Every service probability holds with it."),
        ("needs-nothing", "It reserves nothing: all of it is best effort."),
        ("pool-too-small", "With it a service probability would be missed in the binding slot."),
        ("no-pool", "There is no pool of a resource that it reserves."),
        ("over", "It ends before now."),
        ("calendars", "Its slots and those of other reservations have no common grid that is coarse enough."),
        about="reason",
    ),
    *codes(
        Kind.VERDICT,
        _REQUEST,
        ("within", "All of the request is within the quota."),
        ("surplus", "It exceeds the reserved shares; the rest of its profile is best effort."),
        ("beyond-peak", "It exceeds the profile in this slot."),
        ("horizontal", "It exceeds what its slots together may use in a row."),
        ("vertical", "It exceeds what this slot may use over its last instances."),
        about="reason",
    ),
    *codes(
        Kind.VERDICT,
        _REQUEST,
        ("best-effort", "What exceeds the quota is served as far as units are free."),
        ("rejected", "What exceeds the quota is rejected."),
        about="use of the surplus",
    ),
)
