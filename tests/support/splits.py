"""A reservation made of the cheapest splits of its demands."""

from __future__ import annotations

from dataclasses import replace

from shared.base.errors import InvalidValue
from shared.policy_api.admission import Split
from shared.values.reservation import Reservation, ServiceClass, Share


def reserved_by(reservation: Reservation, splits: tuple[Split, ...]) -> Reservation:
    """The reservation with the shares of splits, one for each of its resources in their order. Raises `InvalidValue`
    where they promise different thetas: the shares of a reservation are the same for all of its resources."""
    thetas = {share.theta for split in splits for share in split.shares if share.units and share.theta}
    if len(thetas) > 1:
        raise InvalidValue("theta", sorted(thetas), "one theta for all resources: one price for class predictable")
    demands = tuple(
        replace(demand, layers=(split.shares[0].units, split.shares[1].units))
        for demand, split in zip(reservation.demands, splits, strict=True)
    )
    shares = [Share(ServiceClass.GUARANTEED, max(demand.layers[0] for demand in demands))]
    top = max(demand.layers[1] for demand in demands)
    shares.append(
        Share(ServiceClass.PREDICTABLE, top, thetas.pop()) if thetas else Share(ServiceClass.BEST_EFFORT, top)
    )
    return replace(reservation, demands=demands, shares=tuple(shares))
