"""The journal on disk: after a crash at any byte everything that was acknowledged is there and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from agents.core.journal import AgentStarted, JournalRecord, JournalState, TermSeen, VmSeen
from agents.disk_journal import FRAME, HEADING, DiskJournal
from shared.base.errors import InvalidInput, StoreUnavailable
from shared.values.vms import VmState, VmStatus
from tests.support.paths import ROOT
from tests.unit.agents.core.test_agent_restart import busy_rig, contents


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.journal"


def reread(path: Path) -> dict[str, object]:
    """What a new process finds."""
    journal = DiskJournal(path)
    try:
        return contents(JournalState(journal.records()))
    finally:
        journal.close()


def written(path: Path, records: Iterable[JournalRecord], **options: int) -> DiskJournal:
    journal = DiskJournal(path, **options)
    for record in records:
        journal.append(record)
    return journal


def seen(number: int) -> VmSeen:
    return VmSeen(VmStatus(f"vm-{number}", VmState.RUNNING, number + 1, memory_mib=100))


def test_what_an_agent_has_written_is_found_again(path: Path) -> None:
    records = busy_rig().records
    written(path, records).close()

    assert reread(path) == contents(JournalState(records))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_fresh_journal_is_empty(path: Path) -> None:
    journal = DiskJournal(path)

    assert journal.records() == ()
    journal.close()


def test_a_crash_at_any_byte_loses_only_the_append_that_was_in_progress(path: Path) -> None:
    """Given two appends, the second of two records, when the file is cut at every byte of the second, then the first
    is whole, the second is wholly gone, and the journal goes on."""
    journal = written(path, [TermSeen(1)])
    first = path.stat().st_size
    journal.append_all([TermSeen(2), seen(1)])
    journal.close()
    whole = path.read_bytes()

    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        journal = DiskJournal(path)
        assert JournalState(journal.records()).term == 1
        assert journal.dropped_bytes == cut - first
        journal.append(TermSeen(3))
        journal.close()
        assert JournalState(DiskJournalReader(path).records()).term == 3


class DiskJournalReader:
    """Opens, reads, closes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def records(self) -> tuple[JournalRecord, ...]:
        journal = DiskJournal(self._path)
        try:
            return journal.records()
        finally:
            journal.close()


def test_a_tail_of_zeros_is_torn_too(path: Path) -> None:
    written(path, [TermSeen(1)]).close()
    with path.open("ab") as file:
        file.write(bytes(5000))

    assert JournalState(DiskJournalReader(path).records()).term == 1


def test_damage_before_sound_frames_is_an_error_that_says_what_to_do(path: Path) -> None:
    """Given a journal of three frames, when any byte of the first two is changed, then it is refused, by its place."""
    written(path, [TermSeen(1), seen(1), TermSeen(2)]).close()
    whole = path.read_bytes()
    last = whole.rindex(b"\xf5TTJ")

    for at in range(len(HEADING), last):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(InvalidInput, match=r"byte \d+.*move it away"):
            DiskJournal(path)
    path.write_bytes(whole)
    assert JournalState(DiskJournalReader(path).records()).term == 2


def test_another_file_is_refused(path: Path) -> None:
    path.write_text("[section]\nkey = 1\n")

    with pytest.raises(InvalidInput, match="is no journal"):
        DiskJournal(path)
    assert path.read_text().startswith("[section]")


def test_a_record_of_another_version_is_refused(path: Path) -> None:
    written(path, [TermSeen(1)]).close()
    body = bytes.fromhex("00000001") + bytes([5]) + b"Later" + b"\x80"
    with path.open("ab") as file:
        file.write(FRAME.pack(b"\xf5TTJ", len(body), zlib.crc32(body)) + body)

    with pytest.raises(InvalidInput, match="Later"):
        DiskJournal(path)


def test_two_processes_never_share_one(path: Path) -> None:
    journal = DiskJournal(path)

    with pytest.raises(StoreUnavailable, match="another process holds"):
        DiskJournal(path)

    journal.close()
    DiskJournal(path).close()


def test_it_compacts_itself_and_says_the_same(path: Path) -> None:
    """Given a small limit, when far more than that is appended, then the file stays small and says the same."""
    records: list[JournalRecord] = [AgentStarted(1, "boot-1"), *(seen(i % 5) for i in range(400)), TermSeen(9)]

    journal = written(path, records, compact_bytes=4096)

    assert journal.compactions >= 3
    assert path.stat().st_size < 3 * 4096
    journal.close()
    assert reread(path) == contents(JournalState(records))
    assert not path.with_name("agent.journal.new").exists()


def test_it_stays_small_in_many_short_lives(path: Path) -> None:
    """Given lives that each append less than the limit, when there are many, then the file is compacted now and then,
    and not in each of them."""
    compactions = 0
    for life in range(30):
        journal = DiskJournal(path, compact_bytes=2048)
        journal.append_all([AgentStarted(life + 1, "boot-1"), *[seen(1)] * 8])
        assert path.stat().st_size < 2 * 2048
        compactions += journal.compactions
        journal.close()

    assert 3 <= compactions <= 15
    assert JournalState(DiskJournalReader(path).records()).starts == 30


def test_one_that_has_grown_too_long_is_compacted_when_it_is_opened(path: Path) -> None:
    """Given a journal that is far longer than what it says (its disk was full, say), when it is opened, then it is
    compact before anything is appended; one that is long because it says much stays as it is."""
    written(path, [TermSeen(3), *[seen(i % 60) for i in range(300)]]).close()

    first = DiskJournal(path, compact_bytes=1024)
    assert first.compactions == 1
    assert first.size_bytes > 1024
    first.close()
    second = DiskJournal(path, compact_bytes=1024)

    assert second.compactions == 0
    assert len(JournalState(second.records()).live) == 60
    second.close()


def test_what_was_left_of_a_compaction_is_no_harm(path: Path) -> None:
    written(path, [TermSeen(1)]).close()
    path.with_name("agent.journal.new").write_bytes(b"half")

    journal = written(path, [seen(i) for i in range(50)], compact_bytes=512)

    assert journal.compactions > 0
    assert len(JournalState(journal.records()).live) == 50
    journal.close()


FULL = """
import os, resource, signal, sys
from agents.disk_journal import DiskJournal
from agents.core.journal import JournalState, TermSeen
from shared.base.errors import StoreUnavailable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = DiskJournal(sys.argv[1], compact_bytes=int(sys.argv[2]))
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
term = 0
try:
    while True:
        size = os.path.getsize(sys.argv[1])
        journal.append(TermSeen(term + 1))
        term += 1
except StoreUnavailable as error:
    assert "make room" in str(error), error
    assert os.path.getsize(sys.argv[1]) == size
try:
    journal.append_all([TermSeen(term + 1)] * 100)
except StoreUnavailable:
    pass
else:
    raise SystemExit("100 records fitted")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert JournalState(journal.records()).term == term
journal.append(TermSeen(term + 1))
print(term)
"""


def test_a_full_disk_takes_nothing_and_harms_nothing(path: Path) -> None:
    """Given a file that cannot grow, when records are appended, then the first that does not fit is refused whole,
    what was there stays, and with room again it goes on."""
    root = ROOT
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), "1000000"], capture_output=True, text=True, cwd=root, timeout=60,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    term = int(done.stdout)
    assert term > 10
    assert JournalState(DiskJournalReader(path).records()).term == term + 1


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        DiskJournal(tmp_path / "nowhere" / "agent.journal")


def test_after_it_was_closed_nothing_is_taken(path: Path) -> None:
    journal = DiskJournal(path)
    journal.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        journal.append(TermSeen(1))
