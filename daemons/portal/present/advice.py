"""What alarms mean, as docs/operate/troubleshooting.md says it (a test compares), and what to do about them in terms of
the pages."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from daemons.portal.present.workloads import app_url, job_url


@dataclass(frozen=True, slots=True)
class Advice:
    """What an alarm means, and what to do."""

    means: str
    do: str


NONE = Advice("", "")

# Whose page tells more, by how the code of an alarm begins: of a node, a job, a web application.
_NODE = ("node-", "off-node", "clock-", "setup-", "term-")
_JOB = ("job-",)
_APP = ("web-", "probe-", "balancer-")


def page_of(what: str, subject: str) -> str:
    """The page of what an alarm is about, "" where there is none."""
    if what == "plan-waiting":
        return "/decision"
    if what == "vm-out-of-sight" or what.endswith("-by-other"):
        return f"/vms/one?vm={quote(subject, safe='')}"
    if what.startswith(_NODE):
        return f"/nodes/{quote(subject, safe='')}"
    if what.startswith(_JOB):
        return job_url(subject)
    return app_url(subject) if what.startswith(_APP) and what != "web-instance-blocked" else ""


ADVICE = {
    "adopted-vm-off": Advice(
        "An adopted VM does not run; its definition and its disks are where they were.",
        "Start it as ever (virsh start), or let it go: trimtab vms forget.",
    ),
    "adopted-vm-lost": Advice(
        "No node that could have it reports the definition of an adopted VM. It stays until the VM is seen again or is"
        " let go.",
        "Its last definition: trimtab vms definition JOB. Then let it go: trimtab vms forget.",
    ),
    "not-acting": Advice(
        "After a restore the controller only observes.",
        "Look whether what it sees is right, then let it act: trimtab unpause.",
    ),
    "plan-waiting": Advice(
        "A decision waits for approval; the detail has its number.",
        "Look at the decision and approve or reject it; or leave it: the next decision takes its place.",
    ),
    "decision-trouble": Advice(
        "The last computation brought no decision: data too old, a policy failed or ran out of time.",
        "The detail says what; what was decided before stays in force. Out of time: timeouts.decide_limit_s.",
    ),
    "node-silent": Advice(
        "No report for timeouts.silent_after_s, or none yet to this leader; never one that was put to sleep.",
        "Look at the machine and its agent. If it is really off, say so on its page: its VMs are started "
        "elsewhere then.",
    ),
    "node-off": Advice("Proven off: its VMs count as lost.", "Switch it on again, or remove it on its page."),
    "off-node-reports": Advice(
        "It was taken for off and is not; shown for one decision period.",
        "Find out how that could be: a VM may have run twice.",
    ),
    "clock-skewed": Advice(
        "Its clock is more than timeouts.max_skew_s off; nothing is done there.", "Put its time service right."
    ),
    "node-failed": Advice(
        "It did not come into service.",
        "The driver's words are on its page; when the cause is gone, let it be tried again there.",
    ),
    "setup-failed": Advice(
        "A setup failed when it changed hands.",
        "The output is on its page; when the cause is gone, let it be tried again there.",
    ),
    "job-stalled": Advice(
        "No CPU time for timeouts.stall_after_s.",
        "Look at its console: its guest hangs, waits, or has done its work and not switched itself off.",
    ),
    "moved-by-other": Advice(
        "Somebody did that to a VM of ours with other means; its workload is left alone for a while.",
        "Nothing: it is let be again after a while. Or take its VM in hand again on its page.",
    ),
    "stopped-by-other": Advice(
        "Somebody did that to a VM of ours with other means; its workload is left alone for a while.",
        "Nothing: it is let be again after a while. Or take its VM in hand again on its page.",
    ),
    "started-by-other": Advice(
        "Somebody did that to a VM of ours with other means; its workload is left alone for a while.",
        "Nothing: it is let be again after a while. Or take its VM in hand again on its page.",
    ),
    "paused-by-other": Advice(
        "Somebody did that to a VM of ours with other means; its workload is left alone for a while.",
        "Nothing: it is let be again after a while. Or take its VM in hand again on its page.",
    ),
    "resumed-by-other": Advice(
        "Somebody did that to a VM of ours with other means; its workload is left alone for a while.",
        "Nothing: it is let be again after a while. Or take its VM in hand again on its page.",
    ),
    "reweighted-by-other": Advice(
        "Somebody did that to a VM of ours with other means; its workload is left alone for a while.",
        "Nothing: it is let be again after a while. Or take its VM in hand again on its page.",
    ),
    "vm-out-of-sight": Advice(
        "A VM of ours is not where it was: somebody else took it away, or it is gone and some node has not "
        "told since that it is not there.",
        "Find it. If it runs nowhere, say so on its page.",
    ),
    "action-overdue": Advice(
        "An order for a VM is not answered, timeouts.operation_timeout_s after it must have been begun.",
        "Look at the node's agent, and at what its hypervisor does; the agent's own operation_timeout_s ends it.",
    ),
    "job-blocked": Advice(
        "A decided start finds no room for longer than timeouts.gang_timeout_s.",
        "Look for VMs that are not ours, or an image that must be where it was; the next decision may place "
        "it elsewhere.",
    ),
    "web-instance-blocked": Advice(
        "A decided start finds no room for longer than timeouts.gang_timeout_s.",
        "Look for VMs that are not ours, or an image that must be where it was; the next decision may place "
        "it elsewhere.",
    ),
    "job-waits-for-ever": Advice(
        "A job that it is after was cancelled or forgotten.", "Cancel it and submit it without that."
    ),
    "message-refused": Advice(
        "An account sends what no program of ours sends (another node's reports, orders, noise), or asks "
        "again and again for what is not its own.",
        "Look at that machine. Give the account another password (trimtab broker setup --new-passwords), or delete it.",
    ),
    "term-ahead": Advice(
        "A node's agent has seen a later term than the store knows: the store is an older one, or the agent "
        "lies. Nothing is ordered there, and it is not fenced.",
        "Look which store this is: after a restore of an older one nothing is ordered there until you have decided.",
    ),
    "promise-in-danger": Advice(
        "A deadline window will break its promise; jobs of its last period were not done.",
        "More nodes, or less work: the forecast has the numbers.",
    ),
    "deadline-missed": Advice(
        "A deadline window will break its promise; jobs of its last period were not done.",
        "More nodes, or less work: the forecast has the numbers.",
    ),
    "cluster-too-small": Advice(
        "The goals of all workloads need more CPU than the nodes have: by how much, for how long, what each side gets.",
        "Add nodes, put goals later, or ask for less; until then the worst off is served first.",
    ),
    "prediction-missed": Advice(
        "What decisions predicted for it did not come, several cycles in a row.",
        "The alarm names the wrong input. Nothing is moved or suspended for it until predictions hold again.",
    ),
    "web-too-few": Advice("Fewer instances run than must.", "Its page says of each instance why it does not run."),
    "web-model-wrong": Advice(
        "Requests take far longer, or shorter, than their response-time model says.",
        "Is something else slow (a database, a disk)? Then t_min_s is too small; else choose another model.",
    ),
    "web-not-measured": Advice("Its counters cannot be read.", "Look at its metrics_url, or HAProxy's socket."),
    "web-unhealthy": Advice(
        "Instances do not serve, and why none is replaced if so.", "The probe's words are on its page."
    ),
    "probe-unknown": Advice(
        "An agent does not know, or cannot run, the command of a probe.",
        "Name the command in [monitor.commands] of that agent.",
    ),
    "balancer-unreachable": Advice(
        "The load balancer cannot be told which instances there are.", "Look at HAProxy's sockets and their modes."
    ),
    "environment-short": Advice(
        "Too few nodes are left for an environment's lower bound.", "Repair or add nodes, or resize the environment."
    ),
    "unknown-type": Advice(
        "The type of an environment cannot be had where the controller runs; it keeps what it has.",
        "Install its package where the controller runs.",
    ),
    "assurance-missed": Advice(
        "An environment is served less than it was promised.",
        "Its page has the slots in which it was served less; more nodes, or a smaller promise.",
    ),
    "notifications-dead": Advice(
        "Messages over that channel were given up, or there was no room for more of them in the last hour.",
        "The page of notifications has why; mend it, test the channel, then retry or drop them.",
    ),
    "metrics-unserved": Advice(
        "The address of the controller's metrics cannot be had.",
        "The detail: another process has the port, or the machine has no such address: metrics.listen.",
    ),
    "prices-stale": Advice(
        "Prices that should be known are forecasts: the feed has stopped, or its file is wrong.",
        "Look at the feed and its file.",
    ),
}
