"""Reasons of decisions in words: what each means, as docs/errors.md says it, and what would lift it where something is
not done."""

from __future__ import annotations

from dataclasses import dataclass

from shared.policy_api.decision import ReasonCode


@dataclass(frozen=True, slots=True)
class Words:
    """What a reason means; what would lift it ("": it hinders nothing)."""

    means: str
    lifts: str = ""


UNKNOWN = Words("a reason of the policy's own", "the policy's documentation says")

WORDS: dict[str, Words] = {
    ReasonCode.ARRIVAL_ORDER: Words("its turn in order of arrival", "those before it are over, or there is more room"),
    ReasonCode.EARLIER_GOAL: Words("its goal comes first"),
    ReasonCode.LATER_GOAL: Words("gives way to an earlier goal", "more room, or an earlier goal of its own"),
    ReasonCode.DRAIN: Words("its node is being emptied", "the node is let take VMs again (undrain)"),
    ReasonCode.KEEP: Words("nothing better was found"),
    ReasonCode.NO_MEMORY: Words(
        "no eligible node has the memory free", "a node with that much memory free: one more in service, or others end"
    ),
    ReasonCode.NO_CPU: Words("no eligible node has the CPU free", "CPU becomes free, or one more node is in service"),
    ReasonCode.TOO_FEW_NODES: Words(
        "fewer eligible nodes than instances that must be on separate ones",
        "more nodes in service, or instances that may share one",
    ),
    ReasonCode.FITS_NO_NODE: Words(
        "larger than any node, even an empty one", "a larger node, or a smaller workload: it never fits otherwise"
    ),
    ReasonCode.NO_NODES: Words("no node is in service and known", "a node comes into service and reports"),
    ReasonCode.LABELS: Words("no node has the labels it needs", "a node with these labels in service, or other labels"),
    ReasonCode.NOT_YET: Words("before its desired start, or waiting after a failure", "that time comes"),
    ReasonCode.UNKNOWN_NODE: Words(
        "an instance is on a node that is silent", "the node reports again, or somebody confirms that it is off"
    ),
    ReasonCode.BAD_PROFILE: Words(
        "a number in its profile is not finite or out of range", "it is submitted again with another profile"
    ),
    ReasonCode.STALE: Words(
        "the workload changed after the snapshot that the decision was made on", "the next decision sees it as it is"
    ),
    ReasonCode.HELD: Words(
        "automation level advise or confirm, or deciding is paused", "somebody approves it, or deciding goes on"
    ),
    ReasonCode.OPERATOR: Words("an operator asked for it", "an operator takes it back"),
    ReasonCode.HIGHER_UTILITY: Words("the smallest utilities grow"),
    ReasonCode.GIVES_WAY: Words(
        "its place serves a workload that is worse off", "that one is better off, or there is more room"
    ),
    ReasonCode.LOAD: Words("the demand of a web application asks for more, or less"),
    ReasonCode.IDLE_ROOM: Words("there is room that nobody uses"),
    ReasonCode.NO_GAIN: Words(
        "what it would displace is not better off by the tolerance",
        "a larger gain, or a smaller tolerance of the policy",
    ),
    ReasonCode.GUARD: Words(
        "it would displace a job that is no less urgent", "that job ends, or becomes less urgent than this one"
    ),
    ReasonCode.MOVES_LIMIT: Words("as many changes are made as a cycle may make", "the next cycle, or a higher limit"),
    ReasonCode.COOL_DOWN: Words("it was moved a short while ago", "some time passes"),
    ReasonCode.CONSTRAINT: Words(
        "pin, forbid, keep, together or apart leaves no node", "one of its nodes has room, or it has other constraints"
    ),
    ReasonCode.CONTRADICTION: Words("its constraints cannot all hold", "it is submitted with other constraints"),
    ReasonCode.NO_DEMAND: Words("more instances would not raise its utility", "more demand"),
    ReasonCode.DUPLICATE: Words("its name is taken by another workload", "another name"),
    ReasonCode.AFTER: Words("a job that must be completed before it is not", "that job is completed"),
    ReasonCode.PROMISE: Words("a deadline window needs so many nodes to keep its promise"),
    ReasonCode.CHEAPER: Words("so many nodes are expected to cost least"),
    ReasonCode.NEEDED: Words("jobs with goals or web applications would fall too low with fewer nodes"),
    ReasonCode.SPARE: Words("fewer nodes are enough for everything"),
    ReasonCode.OUT_OF_REACH: Words(
        "not even all nodes keep the promise", "more nodes, fewer jobs, or a later deadline"
    ),
    ReasonCode.NO_TABLES: Words("the tables of the policy are still being computed", "they are ready"),
    ReasonCode.LIMIT: Words("as many nodes are woken, or put to sleep, as a minute may see", "the next minute"),
    ReasonCode.PROTECTED: Words("the node must not leave service", "the node is protected no more"),
    ReasonCode.ENVIRONMENT: Words("the workload's environment is not running", "its environment is activated"),
    ReasonCode.ENTITLEMENT: Words(
        "the workload's environment has no unit left for it", "its environment has more units, or other jobs of it end"
    ),
    ReasonCode.RECLAIMED: Words("the units of its environment are taken back for another", "units become free again"),
    ReasonCode.UNHEALTHY: Words("the application monitor of its node finds that an instance does not serve"),
    ReasonCode.ADJUSTMENT: Words("the mean CPU use of a web application's instances asks for one more, or one fewer"),
    ReasonCode.HANDS_OFF: Words(
        "somebody else moved, stopped, started or paused a VM of it: it is left alone for a while",
        "the while is over, or an operator says that it may be touched (hands on)",
    ),
    ReasonCode.ADOPTED: Words("it was adopted, and is never suspended or stopped for others"),
    ReasonCode.MIGRATION_FIT: Words(
        "no node with room has what a live migration of it needs: CPU model, machine type, networks, storage pools",
        "room on a node that has them",
    ),
    ReasonCode.REJECTED: Words(
        "an operator has rejected that change of late: it is not proposed again for four cycles",
        "the cycles pass, the workload changes, or other nodes serve",
    ),
    ReasonCode.FAIR_SHARE: Words("it has no goal, and gets its part of what those with goals leave"),
    ReasonCode.STARVED: Words(
        "it has no goal, and what runs beside it leaves it next to nothing",
        "others end, a node with room, or a goal of its own",
    ),
    ReasonCode.SHARING: Words(
        "others on the node slow it by what they share with it beside the CPU, or would",
        "a node whose other VMs do not need the same",
    ),
}


def words_of(code: str) -> Words:
    """The words of a reason's code."""
    return WORDS.get(code, UNKNOWN)
