"""The resource management policy of a batch environment (phoenixcloud.txt section 5.2)."""

from __future__ import annotations

import math

from shared.coordination import Party


def managed(batch: Party) -> tuple[int, str]:
    """How many units the manager wants at its timer, and why in words.

    The ratio of adjusting is queued / owned; without a unit of its own it is infinite if anything waits, else 0. Above
    U it asks for DR1 = queued - owned more; else, if the biggest waiting job exceeds what is owned, for DR2 = biggest -
    idle more; below V it gives back RSS = G x idle, rounded down.
    """
    terms, owned = batch.batch, batch.owned
    ratio = batch.queued / owned if owned else (math.inf if batch.queued else 0.0)
    if ratio > terms.request_ratio:
        more = max(0, batch.queued - owned)  # less is queued when U is below 1
        return owned + more, f"DR1 = {more}: {batch.queued} queued, {owned} owned"
    if batch.biggest > owned:
        more = batch.biggest - batch.idle
        return owned + more, f"DR2 = {more}: the biggest job needs {batch.biggest}, {batch.idle} idle of {owned}"
    if ratio < terms.release_ratio:
        less = math.floor(terms.elastic_factor * batch.idle)
        return owned - less, f"RSS = {less}: {batch.queued} queued, {batch.idle} idle of {owned}"
    return owned, ""
