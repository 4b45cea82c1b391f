"""Prices as they are configured, and the file of prices: CSV, plain or gzip, with the begin of each period in its first
column."""

from __future__ import annotations

from pathlib import Path

from daemons.config.controller import Prices, PriceShape
from daemons.manifests.prices import read_prices
from daemons.values.calendar import check_zone
from daemons.values.settings import PriceSettings
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.ports.effects import PricesRead


def prices_of(table: Prices) -> PriceSettings:
    """Settings of the table [prices]. Raises `InvalidInput`, naming the keys, for what cannot work."""
    problems = []
    try:
        check_zone("timezone", table.timezone)
    except InvalidValue as error:
        problems.append(Problem("prices.timezone", f"is {error.got!r}", error.expected))
    if table.shape is PriceShape.SERIES and not table.file:
        problems.append(Problem("prices.file", "is empty", 'a file of prices, since prices.shape is "series"'))
    if table.shape is not PriceShape.SERIES and table.file:
        problems.append(Problem("prices.shape", f"is {table.shape.value!r}", '"series", since prices.file is given'))
    if problems:
        raise InvalidInput(*problems)
    return PriceSettings(
        table.shape.value,
        table.per_kwh,
        table.ratio,
        table.currency,
        table.timezone,
        table.read_every_s,
        table.per_utility,
    )


def feed_of(table: Prices) -> PriceFeed | None:
    """Return the feed that the table [prices] names; None if prices have a shape."""
    if table.shape is not PriceShape.SERIES:
        return None
    return PriceFeed(table.file, table.column, table.timezone, table.factor)


class PriceFeed:
    """The series that the configuration names: the first column says when each period begins, by the clock of the time
    zone where it has no offset; prices are in `column`, times `factor`."""

    def __init__(self, file: str, column: str, timezone: str, factor: float = 1.0) -> None:
        self._path, self._column, self._timezone, self._factor = Path(file), column, timezone, factor
        self._seen: tuple[int, int, int] | None = None
        self._last = PricesRead()

    def read(self) -> PricesRead:
        """Return the prices now in the file, or why it cannot be read; the same object as before while the file is the
        same."""
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except (OSError, ValueError) as error:  # a null byte in a path is a ValueError
            self._seen = None
            return PricesRead(error=f"{self._path}: {getattr(error, 'strerror', None) or error}")
        if seen != self._seen:
            self._last, self._seen = self._parse(), seen
        return self._last

    def _parse(self) -> PricesRead:
        try:
            return read_prices(self._path, self._column, self._timezone, self._factor)
        except InvalidInput as error:
            return PricesRead(error=str(error))
