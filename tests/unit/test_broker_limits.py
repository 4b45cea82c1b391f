"""Who is at a limit of the broker."""

from __future__ import annotations

from shared.bus.broker_setup import OWN_QUEUES, Use, at_limits
from shared.bus.shares import USER

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
