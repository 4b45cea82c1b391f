"""Who is at a limit of the broker."""

from __future__ import annotations

from shared.bus.broker_setup import OWN_QUEUES, QUEUES_MAX, Account, Use, at_limits, definitions, differences, keeping
from shared.protocol.shares import USER

FULL = OWN_QUEUES["max-length-bytes"]


def test_those_who_have_all_that_they_may_are_named() -> None:
    """Controllers have no limit, and administrators are none of ours."""
    most = USER.connections_max
    tom, kim = [("user.tom", 0)] * most, [("owner.kim", 1)] * (most - 1)
    others = [("controller.a", 5_000), *[("admin", 9)] * 99]
    queues = [("reply.user.joe.1", FULL), ("reply.user.ann", FULL // 4), ("controller", 9 * FULL)]

    assert at_limits([*tom, *kim, *others], queues) == (
        Use("user.tom", "connections", most, most),
        Use("user.joe", "bytes in reply.user.joe.1", FULL, FULL),
    )
    assert at_limits([("user.joe", USER.channels_max)], ()) == (
        Use("user.joe", "channels", USER.channels_max, USER.channels_max),
    )


def test_those_who_have_what_the_broker_does_not_limit_are_named() -> None:
    """Transactions, in which none of ours sends anything, and many queues."""
    queues = [(f"reply.user.joe.{number}", 0) for number in range(QUEUES_MAX)]
    few = [(f"events.operator.ann.{number}", 0) for number in range(QUEUES_MAX - 1)]

    assert at_limits((), [*queues, *few], [("user.tom", 400), ("user.tom", 35), ("agent.n1", 0)]) == (
        Use("agent.n1", "messages in transactions", 0, 0),
        Use("user.tom", "messages in transactions", 435, 0),
        Use("user.joe", "queues", QUEUES_MAX, QUEUES_MAX),
    )


def test_accounts_that_are_there_get_the_permissions_that_they_have_now() -> None:
    """Given accounts of an earlier setup that might write to their own queues, when another is made, then all have what
    they need and no more; passwords, and what is none of ours, stay."""
    people = [Account("user.tom", "old"), Account("agent.n1", "old"), Account("admin", "old")]
    before = definitions("/", people)
    for one in before["permissions"]:
        one["write"] = ".*"
    before["topic_permissions"] = []
    applied = keeping(definitions("/", [Account("user.kim", "new")]), before, "/", ["user.kim"])

    now = definitions("/", [Account("user.tom", ""), Account("agent.n1", ""), Account("user.kim", "")])
    assert differences({**now, "users": []}, applied) == ()
    assert "admin" not in {one["user"] for one in applied["permissions"]}
    hashes = {user["name"]: user["password_hash"] for user in before["users"]}
    kept = {user["name"]: user["password_hash"] for user in applied["users"] if user["name"] != "user.kim"}
    assert kept == {name: hashes[name] for name in ("user.tom", "agent.n1")}
