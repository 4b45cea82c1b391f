"""Reading logs: what is read, what is refused and with which words, how fast."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.capacity.swf import PROBLEMS_MAX, SwfJob, read_swf, replay_jobs
from shared.base.errors import InvalidInput

REST = "-1 -1 4 100 -1 1 7 -1 -1 -1 -1 -1 -1"  # fields 6 to 18


def line(number: object = 1, submit: object = 0, run: object = 10, processors: object = 4, rest: str = REST) -> str:
    return f"{number} {submit} -1 {run} {processors} {rest}"


def written(folder: Path, *lines: str, name: str = "log.swf") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def refused(path: Path) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        read_swf(path)
    return [str(problem) for problem in caught.value.problems]


def test_fields_comments_and_blank_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "; Version: 2.2", "", "  " + line(7, 3.5, 12.25, 8), "\t;note", line(8, 4, -1, -1))
    assert read_swf(path) == (
        SwfJob(
            7,
            3.5,
            -1.0,
            run_s=12.25,
            processors=8,
            requested_processors=4.0,
            requested_s=100.0,
            status=1,
            user=7,
            line=3,
        ),
        SwfJob(
            8,
            4.0,
            -1.0,
            run_s=-1.0,
            processors=-1,
            requested_processors=4.0,
            requested_s=100.0,
            status=1,
            user=7,
            line=5,
        ),
    )


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    packed = tmp_path / "log.swf"
    packed.write_bytes(gzip.compress(line().encode() + b"\r\n"))
    assert [job.number for job in read_swf(packed)] == [1]
    assert read_swf(written(tmp_path, line(), name="plain.swf.gz"))[0].run_s == 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2 3", "3 fields (expected 18 numbers)"),
        (line() + " 5", "19 fields"),
        (line(run="ten"), "field 4 is 'ten'"),
        (line(run="nan"), "field 4 is 'nan'"),
        (line(run="inf"), "field 4 is 'inf'"),
        (line(run="1_0"), "field 4 is '1_0'"),
        (line(run=-2), "field 4 (run time) is '-2'"),
        (line(run=-0.5), "field 4 (run time) is '-0.5'"),
        (line(processors=1.5), "field 5 (processors) is '1.5'"),
        (line(processors=-2), "field 5 (processors) is '-2'"),
        (line(number=1.5), "field 1 (job number) is '1.5'"),
        (line(number=-1), "field 1 (job number) is '-1'"),
        (line(submit=1e300), "field 2 (submit time) is '1e+300'"),
        (line(rest=REST.replace("100", "1e999")), "field 9 is '1e999'"),
        (line(rest=REST.replace("100", "x" * 900)), "field 9 is 'xxxxx"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, "; header", line(), text)
    (problem,) = refused(path)
    assert problem.startswith(f"{path}:3: ")
    assert said in problem
    assert len(problem) < len(str(path)) + 150


def test_every_broken_line_is_named_up_to_a_bound(tmp_path: Path) -> None:
    assert len(refused(written(tmp_path, line(), "x", line(2), "y"))) == 2
    assert len(refused(written(tmp_path, *["x"] * 100))) == PROBLEMS_MAX


def test_what_is_not_a_log(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    packed = gzip.compress("\n".join(line(number) for number in range(500)).encode())
    cut, bad = tmp_path / "cut.gz", tmp_path / "bad.gz"
    cut.write_bytes(packed[: len(packed) // 2])
    bad.write_bytes(packed[:20] + b"\xff" * 20 + packed[40:])
    assert "no job" in refused(empty)[0]
    assert "no job" in refused(written(tmp_path, "; only a comment"))[0]
    assert "gzip" in refused(cut)[0]
    assert "gzip" in refused(bad)[0]
    assert "is a directory" in refused(tmp_path)[0]
    assert "No such file" in refused(tmp_path / "nowhere")[0]
    assert "null" in refused(Path("\0"))[0]


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(content)
    try:
        jobs = read_swf(path)
    except InvalidInput:
        return
    assert jobs


def test_which_jobs_a_replay_submits(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        line(9, 50, 10, 9),
        line(10, 50, 0, 8),
        line(2, 100, 10, 1),  # at the end of the window: not in it
        line(3, 99.9, 10, 1),
        line(4, -1, 10, 1),
        line(5, 10, -1, 1),
        line(6, 10, 10, 0),
        line(7, 10, 10, -1),
        line(8, 0, 10, 16),
    )
    chosen = replay_jobs(read_swf(path), window_s=100, divide_sizes=8, skip={8})
    assert [(job.number, job.nodes, job.line) for job in chosen] == [(9, 2, 1), (10, 1, 2), (3, 1, 4)]
    assert [job.number for job in replay_jobs(read_swf(path))] == [8, 9, 10, 3, 2]


def test_ties_go_by_number_not_by_text_or_place(tmp_path: Path) -> None:
    path = written(tmp_path, line(10, 5), line(9, 5), line(100, 5), line(1, 6))
    assert [job.number for job in replay_jobs(read_swf(path))] == [9, 10, 100, 1]


def test_one_number_twice_is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    jobs = read_swf(written(tmp_path, line(1), line(2), line(1, 5)))
    with pytest.raises(InvalidInput, match=r"a\.swf:3: job 1 .*first in line 1"):
        replay_jobs(jobs, source="a.swf")
    assert len(replay_jobs(jobs, skip={1})) == 1
    assert len(replay_jobs(jobs, window_s=5)) == 2


def test_the_public_logs(data_folder: Path) -> None:
    """Counts that the archive states."""
    nasa = read_swf(data_folder / "nasa-ipsc-1993" / "NASA-iPSC-1993-3.1-cln.swf.gz")
    assert len(nasa) == 18_239
    assert len(replay_jobs(nasa, 1_209_600)) == 2_604
    blue = read_swf(data_folder / "sdsc-blue-2000" / "SDSC-BLUE-2000-first-two-weeks.swf.gz")
    assert len(replay_jobs(blue, 1_209_600, 8, {729})) == 2_672
    for log, jobs in (("SDSC-SP2-1998-first-5000-lines", 4_961), ("HPC2N-Seth-excerpt", 3_170)):
        found = read_swf(data_folder / "swf-other" / f"{log}.swf.gz")
        assert len(found) == jobs
        assert all(math.isfinite(job.submit_s) for job in found)
