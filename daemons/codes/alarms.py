"""Alarms: conditions that are wrong now. A row is code, meaning, what to do, the next command, a page."""

from __future__ import annotations

from daemons.codes.code import Code, Kind, codes

_EXTERNAL = (
    "Do nothing, or resume reconciliation now.",
    "trimtab vms reconcile VM",
    "how-to/external-changes.md",
)

ALARMS: tuple[Code, ...] = (
    *codes(
        Kind.ALARM,
        "Controller and decisions",
        (
            "not-acting",
            "After a restored backup the controller only observes.",
            "Check that what it sees is right, then let it act.",
            "trimtab unpause",
        ),
        (
            "plan-waiting",
            "A plan waits for approval; the detail has its number.",
            "Approve or reject it; otherwise the next plan replaces it.",
            "trimtab plan show",
            "how-to/plans.md",
        ),
        (
            "decision-trouble",
            "The last run gave no decision: data too old, a policy failed or ran out of time. Earlier decisions stay.",
            "Read the detail. If it ran out of time, see `timeouts.decide_limit_s`.",
            "trimtab status",
        ),
        (
            "cluster-too-small",
            "All goals together need more CPU than the nodes have; the detail has by how much and for how long.",
            "Add nodes or relax goals. Until then the lowest utility comes first.",
            "trimtab nodes list",
        ),
        (
            "prediction-missed",
            "Predictions for the workload failed in several cycles; it stays where it is until they hold again.",
            "The detail names the wrong input: correct it.",
            "trimtab plan history --workload NAME",
            "how-to/plans.md#when-predictions-fail",
        ),
        (
            "message-refused",
            "An account sends forged messages or forbidden requests.",
            "Check that machine; change the account's password or delete it.",
            "trimtab broker setup --new-passwords --nodes NODE",
            "how-to/security.md",
        ),
        (
            "term-ahead",
            "An agent saw a later term than the store: the store is old, or the agent lies. The node gets no orders"
            " and is not fenced.",
            "Check which store this is; after an old backup decide what to do.",
            "trimtab nodes show NODE",
            "how-to/security.md",
        ),
        (
            "metrics-unserved",
            "The metrics address is not available; the controller retries every 30 s.",
            "Check whether another process uses the port of `metrics.listen`.",
            "trimtab doctor --config /etc/trimtab/controller.toml",
        ),
        (
            "notifications-dead",
            "Messages of that channel were given up, or its queue was full within the last hour.",
            "Read the error, fix and test the channel, then retry or drop the messages.",
            "trimtab notifications list --dead",
            "how-to/notifications.md",
        ),
    ),
    *codes(
        Kind.ALARM,
        "Nodes",
        (
            "node-unreachable",
            "It sent no report for `timeouts.unreachable_after_s`, or none yet to this leader.",
            "Check the machine and its agent. If it is off, confirm that, so that its VMs start elsewhere.",
            "trimtab nodes show NODE",
            "how-to/drains.md#an-unreachable-node",
        ),
        (
            "node-off",
            "It was fenced or confirmed off; its VMs count as lost.",
            "Switch it on again, or remove it.",
            "trimtab nodes remove NODE",
        ),
        (
            "off-node-reports",
            "It counted as off, but reports; shown for one scheduling cycle.",
            "Find out why: a VM may have run twice.",
            "trimtab nodes show NODE",
        ),
        (
            "clock-skewed",
            "Its clock is off by more than `timeouts.max_skew_s`; it gets no orders.",
            "Repair its time service.",
            "trimtab nodes show NODE",
        ),
        (
            "node-failed",
            "It did not come into service.",
            "Read the driver's words, remove the cause, then let it be retried.",
            "trimtab nodes repair NODE",
        ),
        (
            "setup-failed",
            "A setup step failed during its reassignment to another environment.",
            "Read the output, remove the cause, then let it be retried.",
            "trimtab nodes repair NODE",
            "how-to/node-reassignment.md#if-it-fails",
        ),
    ),
    *codes(
        Kind.ALARM,
        "Jobs and VMs",
        (
            "job-stalled",
            "It used no CPU time for `timeouts.stall_after_s`.",
            "Read its serial log: the guest hangs, waits, or did not switch itself off.",
            "trimtab jobs show JOB",
            "how-to/troubleshooting.md",
        ),
        (
            "job-blocked",
            "A decided start found no capacity within `timeouts.gang_timeout_s`.",
            "Look for unmanaged VMs, or an image bound to one node; the next decision may place it elsewhere.",
            "trimtab jobs show JOB",
        ),
        (
            "job-dependency-failed",
            "A job that it waits for was cancelled or released.",
            "Cancel it and submit it without that dependency.",
            "trimtab jobs cancel JOB",
        ),
        (
            "action-overdue",
            "No answer to an order came within `timeouts.operation_timeout_s`.",
            "Check the node's agent and hypervisor; the agent's own timeout ends the operation.",
            "trimtab nodes show NODE",
        ),
        (
            "vm-missing",
            "A managed VM is not where it was; it may run elsewhere.",
            "Find it. If it runs nowhere, confirm that.",
            "trimtab vms confirm-gone VM",
            "how-to/external-changes.md#a-missing-vm",
        ),
        (
            "adopted-vm-off",
            "An adopted VM does not run; its definition and disks are unchanged.",
            "Start it as before (`virsh start`), or release it.",
            "trimtab vms release JOB",
        ),
        (
            "adopted-vm-lost",
            "No node reports the definition of an adopted VM. It stays until the VM is seen again or released.",
            "Print its last definition, then release it.",
            "trimtab vms definition JOB",
        ),
        (
            "moved-externally",
            "Somebody migrated a managed VM outside Trimtab; reconciliation of its workload is paused.",
            *_EXTERNAL,
        ),
        (
            "stopped-externally",
            "Somebody stopped or saved a managed VM outside Trimtab; its job is requeued after the pause.",
            *_EXTERNAL,
        ),
        (
            "started-externally",
            "Somebody started or restored a managed VM outside Trimtab; reconciliation of its workload is paused.",
            *_EXTERNAL,
        ),
        (
            "paused-externally",
            "Somebody, or the hypervisor, paused a managed VM; reconciliation of its workload is paused.",
            "Check whether the host's disk is full; else do nothing, or resume reconciliation now.",
            *_EXTERNAL[1:],
        ),
        (
            "resumed-externally",
            "Somebody resumed a managed VM outside Trimtab; reconciliation of its workload is paused.",
            *_EXTERNAL,
        ),
        (
            "cpu-changed-externally",
            "Somebody changed the CPU shares of a managed VM more than three times within an hour.",
            *_EXTERNAL,
        ),
    ),
    *codes(
        Kind.ALARM,
        "Web applications",
        (
            "web-too-few",
            "Fewer instances run than `min_instances`.",
            "Read the reason of each instance.",
            "trimtab web show APP",
            "how-to/web.md",
        ),
        (
            "web-instance-blocked",
            "A decided start of an instance found no capacity within `timeouts.gang_timeout_s`.",
            "Look for unmanaged VMs, or an image bound to one node; the next decision may place it elsewhere.",
            "trimtab web show APP",
        ),
        (
            "web-unhealthy",
            "Instances fail their health check.",
            "Read the probe's words and why none is replaced.",
            "trimtab web show APP",
            "how-to/web-health.md",
        ),
        (
            "probe-unknown",
            "An agent does not have, or cannot run, the command of a health check.",
            "Define it in `[health_checks.commands]` of that agent.",
            "",
            "how-to/web-health.md",
        ),
        (
            "web-not-measured",
            "The application's counters cannot be read.",
            "Check `metrics_url`, or HAProxy's socket.",
            "trimtab web show APP",
            "how-to/web-metrics.md",
        ),
        (
            "web-model-wrong",
            "Response times are far from what their model predicts.",
            "If something else is slow, such as a database, raise `t_min_s`; else change `model`.",
            "trimtab web show APP",
        ),
        (
            "balancer-unreachable",
            "The load balancer cannot be updated.",
            "Check HAProxy's sockets and their modes.",
            "",
            "how-to/load-balancer.md",
        ),
    ),
    *codes(
        Kind.ALARM,
        "Windows, prices and environments",
        (
            "deadline-at-risk",
            "A deadline window will not finish in time.",
            "Add nodes or reduce work.",
            "trimtab forecast",
            "how-to/deadlines.md",
        ),
        (
            "deadline-missed",
            "Jobs of the window's last period were late.",
            "Add nodes or reduce work.",
            "trimtab forecast",
            "how-to/deadlines.md",
        ),
        (
            "prices-stale",
            "Prices that should be known are forecasts: the feed stopped, or its file is wrong.",
            "Check the feed and its file.",
            "trimtab doctor --config /etc/trimtab/controller.toml",
            "how-to/prices.md",
        ),
        (
            "environment-short",
            "Too few nodes are left for an environment's guaranteed units.",
            "Repair or add nodes, or resize the environment.",
            "trimtab env resize NAME",
        ),
        (
            "unknown-type",
            "The environment's type is not installed on the controller's machine; allocations stay.",
            "Install its package there.",
            "trimtab env types",
        ),
        (
            "assurance-missed",
            "An environment is served less than its service probability.",
            "Read in which slots; add nodes, or reserve less.",
            "trimtab assurance show NAME",
            "how-to/assurance.md",
        ),
    ),
)
