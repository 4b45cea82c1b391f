"""Whether a VM can go to a node alive: what live migrations need, and what nodes have, as texts "kind=value"."""

from __future__ import annotations


def lacks(has: tuple[str, ...], needs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the features that a VM needs of the target of a live migration and that a node with these features lacks;
    sorted.

    Both are texts "kind=value": "machine=pc-q35-7.2" (machine type), "cpu=Westmere" (CPU model), "network=default",
    "pool=shared" (storage pool), "tls=yes". A kind that the node does not list is not lacking.
    """
    if not has or not needs:
        return ()
    kinds = {one.partition("=")[0] for one in has}
    return tuple(sorted(one for one in set(needs) - set(has) if one.partition("=")[0] in kinds))


def of_kind(has: tuple[str, ...], kind: str) -> str:
    """Return the first value of a kind among such texts ("": there is none)."""
    return next((one.partition("=")[2] for one in has if one.partition("=")[0] == kind), "")
