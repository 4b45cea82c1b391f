"""The parts of the assurance experiments: traces, days drawn from demands, and the policing experiment."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from shared.base.errors import InvalidInput
from sim_backend.experiments.assurance.data import BITBRAINS, PLANETLAB, data_folder, read_demands
from sim_backend.experiments.assurance.draws import drawn, resampled, satisfied
from sim_backend.experiments.assurance.policed import BAD_FROM_DAYS, Pools, course, honest, misbehaving
from sim_backend.experiments.assurance.policed_rows import rows_policed
from sim_backend.experiments.assurance.sizes import example_of

FIRST = datetime(2013, 8, 13, tzinfo=UTC)  # a Tuesday
HOUR_S = 3_600


def write(path: Path, lines: Sequence[str]) -> None:
    """A compressed CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def bitbrains(folder: Path, rows: Sequence[tuple[int, int, float]]) -> None:
    """One VM of four CPUs and 8,000 MHz, with these ends, durations and MHz; and one that was there for a day."""
    begin, end = int(FIRST.timestamp()), int((FIRST + timedelta(days=29)).timestamp())
    write(folder / BITBRAINS[0], ["heading", *(f"7,{at},{length},4,{mhz}" for at, length, mhz in rows)])
    write(folder / BITBRAINS[1], ["heading", f"7,{begin},{end},4,8000.0,1", f"8,{begin},{begin + 86_400},4,8000.0,1"])


def test_bitbrains_by_hand(tmp_path: Path) -> None:
    """Given one VM idle but for two rows, then it needs one server, and those of the largest row in every hour that the
    row touches; weekends and the VM that left are left out; servers come an hour early and stay an hour longer."""
    begin = int(FIRST.timestamp())
    idle = [(begin + (hour + 1) * HOUR_S, HOUR_S, 0.0) for hour in range(29 * 24)]
    half = begin + 5 * HOUR_S + HOUR_S // 2
    busy = [(half, HOUR_S, 4_000.0), (half, 300, 4_000.1)]  # from 4:30 to 5:30, at half of four CPUs and a bit above
    saturday = begin + 4 * 86_400
    busy.append((saturday + 12 * HOUR_S, 300, 9_000.0))  # above what it has, which counts as all
    bitbrains(tmp_path, [*idle, *busy])
    found = read_demands(tmp_path, "bitbrains")
    assert found.plain.shape == found.overhead.shape == (21, 24, 1)
    assert found.plain[0, 3:8, 0].tolist() == [1, 4, 5, 1, 1]
    assert found.overhead[0, 2:9, 0].tolist() == [1, 4, 5, 5, 5, 1, 1]
    assert found.plain.sum() == 21 * 24 + 3 + 4


def test_bitbrains_with_a_gap(tmp_path: Path) -> None:
    """Given hours without a sample, then an error that names the file."""
    bitbrains(tmp_path, [(int(FIRST.timestamp()) + HOUR_S, HOUR_S, 0.0)])
    with pytest.raises(InvalidInput, match="hours without a sample"):
        read_demands(tmp_path, "bitbrains")


def test_planetlab_by_hand(tmp_path: Path) -> None:
    """Given 49 VMs of both days, then the first and the last make one application; five minutes of an hour of a day are
    an observation; a VM of one day counts for nothing."""
    percent = np.full((49, 288), 10)
    percent[0, 12 + 3], percent[48, 12 + 3] = 100, 51  # 1:15: 151 % of one CPU, for which four at 50 % are needed
    lines = [f"vm{number:02d}," + ",".join(map(str, row)) for number, row in enumerate(percent)]
    write(tmp_path / PLANETLAB[0], ["heading", *lines, "zz" + "," + ",".join(["100"] * 288)])
    write(tmp_path / PLANETLAB[1], ["heading", *reversed(lines)])
    found = read_demands(tmp_path, "planetlab")
    assert found.plain.shape == (24, 24, 48)
    assert np.argwhere(found.plain > 1).tolist() == [[3, 1, 0], [15, 1, 0]]
    assert found.plain.max() == 4
    assert np.argwhere(found.overhead[..., 0] > 1).tolist() == [[2, 1], [3, 1], [4, 1], [14, 1], [15, 1], [16, 1]]


@pytest.mark.parametrize(
    ("line", "said"), [("vm1,1,2", "2 columns"), ("vm1," + ",".join(["x"] * 288), "numbers"), ("vm1", "numbers")]
)
def test_broken_traces(line: str, said: str, tmp_path: Path) -> None:
    """Given too few columns, or what is no number, then an error that says so."""
    for file in PLANETLAB:
        write(tmp_path / file, ["heading", line])
    with pytest.raises(InvalidInput, match=said):
        read_demands(tmp_path, "planetlab")


def test_too_few_vms(tmp_path: Path) -> None:
    """Given fewer VMs of both days than applications, then an error."""
    for file in PLANETLAB:
        write(tmp_path / file, ["heading", "vm1," + ",".join(["1"] * 288)])
    with pytest.raises(InvalidInput, match="1 VMs of both days"):
        read_demands(tmp_path, "planetlab")


def test_a_folder_that_lacks_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then they are named."""
    monkeypatch.setenv("TRIMTAB_DATA", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"without bitbrains-50vm/cpu_5min\.csv\.gz"):
        data_folder("bitbrains")


OBSERVED = np.stack([np.array([1, 2, 3, 4]), np.array([5, 9, 9, 9])], axis=-1)[:, None, :]  # 4 days, 1 slot, 2 apps


def test_drawn_as_observed() -> None:
    """Values come as often as observed; together, the larger of one is the larger of the other."""
    rng = np.random.default_rng(0)
    alone, together = drawn(OBSERVED, 4_000, rng)[:, 0], drawn(OBSERVED, 4_000, rng, together=True)[:, 0]
    for sample in (alone, together):
        assert np.bincount(sample[:, 0])[1:] / 4_000 == pytest.approx([0.25] * 4, abs=0.03)
        assert (sample[:, 1] == 5).mean() == pytest.approx(0.25, abs=0.03)
    assert ((together[:, 0] == 1) == (together[:, 1] == 5)).all()
    assert abs(float(np.asarray(np.corrcoef(alone.T))[0, 1])) < 0.06


def test_resampled_from_observed() -> None:
    """Another history has as many days as asked for, of values that were there, not all as often."""
    found = resampled(OBSERVED, 100, np.random.default_rng(1))
    assert found.shape == (100, 1, 2)
    assert set(found[..., 0].ravel()) <= {1, 2, 3, 4}
    assert set(found[..., 1].ravel()) == {5, 9}
    assert np.bincount(found[:, 0, 0]).tolist() != [0, 25, 25, 25, 25]


def test_satisfied_by_hand() -> None:
    """99 of 100 servers satisfy 0.99; all where nothing is asked for."""
    demand = np.array([[[60, 40]], [[10, 5]], [[0, 0]]])
    assert satisfied(demand, 99).tolist() == [[0.99], [1.0], [1.0]]


def test_the_example_varies() -> None:
    """Of applications that deviate by 0, 1, 2 and 3 it is the one in the middle of those that vary."""
    sizes = np.array([0, 3, 1, 2])
    demand = np.stack([np.zeros((1, 4)), 2 * np.ones((1, 4))]).astype(np.int64) * sizes + 1
    assert example_of(demand) == 3


def test_misbehaving_applications() -> None:
    """From a day within the first 35 on, each asks for its peak in slots 10 to 18, and for what it needs in others."""
    good = np.ones((60, 24, 3), dtype=np.int64)
    bad = misbehaving(good, np.full((24, 3), 7), np.random.default_rng(2))
    assert (bad[BAD_FROM_DAYS:, 9:18] == 7).all()
    assert (np.delete(bad, np.arange(9, 18), axis=1) == 1).all()
    begun = (bad[:, 9] == 7).argmax(axis=0)
    assert len(set(begun.tolist())) == 3
    assert (begun < BAD_FROM_DAYS).all()
    assert (np.diff(bad[:, 9], axis=0) >= 0).all()


POOLS = Pools(5, np.array([[4, 6], [3, 5]]))  # of which the predictable ones have 4 and 6 servers


def test_pools_by_hand() -> None:
    """Slot 0 needs both pools as a whole; in slot 1 each has one to spare, which goes to the higher class first."""
    entitled = np.array([[[[6, 4], [0, 2]], [[2, 3], [2, 3]]]])  # [1 day, 2 slots, 2 applications, 2 classes]
    found = course(POOLS, np.array([[5, 2]]), entitled)
    assert found.theta.tolist() == [[4 / 6, 1.0], [1.0, 1.0]]
    assert found.seen[0].tolist() == [[4 / 6, 1.0], [0.0, 1.0]]  # who asks for nothing sees nothing
    # 15 servers in all: 5 + 4 + 6 are used in slot 0, 2 + 4 + 6 in slot 1.
    assert np.flatnonzero(found.left).tolist() == [0, 3]


def test_honest_losses_by_hand() -> None:
    """Of 20 asked for, 4 are surplus: lost where no server is left, served as best effort as far as some are."""
    entitled = np.array([[[[4, 6]], [[2, 4]]]])
    asked = entitled + np.array([1, 1])
    found = honest(POOLS, np.array([[5, 9]]), entitled, asked)
    # 5 + 4 + 6 of 15 servers are used in slot 0, 9 + 2 + 4 in slot 1: nothing is left for the 2 of each.
    assert found.surplus == pytest.approx(4 / 20)
    assert found.lost == pytest.approx(4 / 20)
    found = honest(POOLS, np.array([[4, 0]]), entitled, asked)
    assert found.lost == pytest.approx(1 / 20)  # one is left in slot 0, nine in slot 1


def test_no_rows_without_runs() -> None:
    """Nothing played, nothing said."""
    assert rows_policed([]) == []
