"""What an agent reports of the leases of others, with a clock that the test moves."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from agents.lease.folder import FolderUnusable, Found
from agents.lease.keeper import proof_s
from agents.lease.reader import LEASES_MAX, OVERDUE_FRAC, LeaseReader, Watch
from shared.base.clock import ManualClock
from shared.runtime import logs
from shared.values.lease import Lease, SeenLease

RENEW_S = 5.0
LEASE = Lease("n1", "boot-1", 7, 75.0)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    said = io.StringIO()
    logs.configure(stream=said)
    yield said
    structlog.reset_defaults()


class Rig:
    """A reader on node n0, a folder that the test fills, and a clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.slept_s = 0.0
        self.found = Found({"n1": LEASE})
        self.error = ""
        self.takes_s = 0.0
        self.reader = LeaseReader("/leases", "n0", RENEW_S, self.clock, lambda: self.slept_s, self._read)

    def _read(self, folder: str) -> Found:
        assert folder == "/leases"
        self.clock.advance(self.takes_s)
        if self.error:
            raise FolderUnusable(self.error)
        return self.found

    def look(self, times: int = 1) -> tuple[SeenLease, ...]:
        """Look so often, at the moments at which it is due; return what is reported after the last."""
        for _ in range(times):
            self.clock.advance(max(0.0, self.reader.due_in_s()))
            self.reader.look()
        return self.reader.read(self.clock.monotonic_s())

    def put(self, **changed: object) -> None:
        self.found = Found({"n1": replace(self.found.leases["n1"], **changed)})  # type: ignore[arg-type]


@pytest.fixture
def rig(log: io.StringIO) -> Rig:
    del log
    return Rig()


def test_a_lease_that_is_not_renewed_is_reported_and_becomes_proof(rig: Rig) -> None:
    reported = [(seen.unchanged_s, seen.is_proof) for _ in range(17) for seen in rig.look()]

    assert reported == [(at, at >= 75.0) for at in (50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0)]
    assert rig.look() == (SeenLease("n1", "boot-1", 7, 85.0, 75.0),)


def test_what_is_overdue_has_missed_more_than_three_of_its_own_renewals() -> None:
    for renew_s in (0.1, 1.0, 5.0, 60.0):
        least_s = proof_s(3.0 * renew_s, renew_s)
        assert 3.0 * renew_s < OVERDUE_FRAC * least_s < least_s


def test_a_lease_that_is_renewed_is_not_reported(rig: Rig) -> None:
    for number in range(8, 40):
        rig.put(number=number)
        assert rig.look() == ()


def test_a_new_boot_begins_again(rig: Rig) -> None:
    assert rig.look(20)
    rig.put(boot_id="boot-2", number=1)
    assert rig.look() == ()
    (seen,) = rig.look(20)
    assert (seen.boot_id, seen.unchanged_s) == ("boot-2", 100.0)


def test_a_released_lease_is_never_reported(rig: Rig) -> None:
    rig.put(released=True)
    assert rig.look(40) == ()


def test_a_write_that_arrives_after_a_newer_one_says_nothing(rig: Rig) -> None:
    """Given a lease that was released, then what had been written before: the host is not called off."""
    rig.put(number=9, released=True)
    rig.look()
    rig.put(number=8, released=False)
    assert rig.look(40) == ()


def test_a_node_whose_file_vanished_is_forgotten(rig: Rig) -> None:
    there = rig.found
    assert rig.look(20)
    rig.found = Found()
    assert rig.look() == ()
    rig.found = there
    assert rig.look() == ()
    assert rig.look(20)[0].unchanged_s == 100.0


def test_its_own_lease_is_not_reported(rig: Rig) -> None:
    rig.found = Found({"n0": replace(LEASE, node="n0")})
    assert rig.look(40) == ()


def test_what_cannot_be_read_is_ignored_and_logged_once(rig: Rig, log: io.StringIO) -> None:
    there = rig.found
    rig.look(20)
    rig.found = Found({}, {"n1": "no lease"})
    assert rig.look(3) == ()
    rig.found = there
    assert rig.look(3) == ()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["event"], line["node"], line["error"]) for line in lines] == [
        ("a lease cannot be read, and is ignored", "n1", "no lease")
    ]


def test_a_folder_that_cannot_be_read_is_logged_once_and_all_begins_again(rig: Rig, log: io.StringIO) -> None:
    assert rig.look(20)
    rig.error = "/leases has no file trimtab-leases"
    assert rig.look(2) == ()
    rig.error = ""
    assert rig.look() == ()
    assert rig.look(20)[0].unchanged_s == 100.0
    lines = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
    assert lines == ["the leases cannot be read: none is reported", "the leases can be read again"]


def test_after_a_hang_of_its_own_all_begins_again(rig: Rig) -> None:
    assert rig.look(20)
    rig.takes_s = 10.5
    assert rig.look() == ()
    rig.takes_s = 0.0
    assert rig.look() == ()
    assert rig.look(20)[0].unchanged_s == 100.0


def test_after_a_gap_between_two_looks_all_begins_again(rig: Rig) -> None:
    assert rig.look(20)
    rig.clock.advance(15.1)
    assert rig.look() == ()


def test_after_a_sleep_of_the_host_all_begins_again(rig: Rig) -> None:
    assert rig.look(20)
    rig.slept_s = 3_600.0
    assert rig.look() == ()
    assert rig.look(20)[0].unchanged_s == 100.0


def test_a_reader_counts_from_the_end_of_its_first_look_to_the_beginning_of_its_last(rig: Rig) -> None:
    rig.takes_s = 2.0
    assert rig.look(16)[0].unchanged_s == 15 * 5.0 - 2.0


def test_a_result_is_used_for_two_renewals(rig: Rig) -> None:
    seen = rig.look(20)
    now_s = rig.clock.monotonic_s()
    assert rig.reader.read(now_s + 10.0) == seen != ()
    assert rig.reader.read(now_s + 10.1) == ()


def test_a_look_that_hangs_holds_up_nothing_and_is_logged_once(log: io.StringIO) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang(_folder: str) -> Found:
        begun.set()
        go_on.wait(20.0)
        return Found()

    clock = ManualClock(100.0)
    reader = LeaseReader("/leases", "n0", RENEW_S, clock, lambda: 0.0, hang)
    looking = threading.Thread(target=reader.look)
    looking.start()
    assert begun.wait(20.0)

    assert reader.read(105.0) == reader.read(111.0) == reader.read(120.0) == ()

    go_on.set()
    looking.join()
    lines = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
    assert lines == ["the storage of the leases does not answer: none is reported"]


def test_leases_are_in_order_and_bounded() -> None:
    watch = Watch(10.0)
    found = {f"n{number:04}": replace(LEASE, node=f"n{number:04}") for number in reversed(range(LEASES_MAX + 5))}
    watch.look(found, 0.0, 0.0)
    for at in range(1, 10):
        rows = watch.look(found, at * 10.0, at * 10.0)
    assert [row.node for row in rows] == sorted(found)[:LEASES_MAX]


@given(looks=st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 15.0), st.integers(0, 2)), max_size=60))
def test_no_lease_is_older_than_what_was_seen_of_it(looks: list[tuple[float, float, int]]) -> None:
    """Against a plain list of all looks: all of the last ones without a gap have seen the same lease."""
    watch, now_s, lease = Watch(10.0), 100.0, LEASE
    history: list[tuple[float, float, Lease]] = []
    for pause_s, took_s, renewals in looks:
        begun_s, done_s = now_s + pause_s, now_s + pause_s + took_s
        lease = replace(lease, number=lease.number + renewals)
        history.append((begun_s, done_s, lease))
        for row in watch.look({"n1": lease}, begun_s, done_s):
            same = [(b, d) for b, d, each in history if each == lease]
            steady = [at for at in range(len(same)) if _is_steady(same[at:])]
            assert row.unchanged_s == begun_s - same[steady[0]][1]
            assert row.number == lease.number
        now_s = done_s


def _is_steady(looks: list[tuple[float, float]]) -> bool:
    pauses = [after[0] - before[1] for before, after in pairwise(looks)]
    return all(pause <= 10.0 for pause in pauses) and all(done - begun <= 10.0 for begun, done in looks[1:])
