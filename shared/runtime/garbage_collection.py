"""What the garbage collector looks through."""

from __future__ import annotations

import gc


def keep_what_is_there() -> None:
    """Have what is there now, all that was imported above all, looked through no more.

    Python looks through everything that has lived for a while only once a quarter more has come since it did so last.
    A process that has never done so counts from all that it imported, and what it drops afterwards, some megabytes,
    would wait for that; looking once more, at nothing, lets it count from nothing.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


def collect_young() -> None:
    """Remove what was made lately and lives on only in cycles. A process that makes few objects calls it now and then:
    until as many were made as Python waits for, an hour's garbage would wait too. Takes what the objects made since the
    last time take, not what lives."""
    gc.collect(1)
