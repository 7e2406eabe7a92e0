"""The log under the streaming source: segments, slices, gaps, and its single writer."""

import pyarrow as pa
import pytest

from forebay import errors
from forebay.spark._sources.wal import Log, Slice, spread

pytestmark = pytest.mark.spark


def table(first, rows):
    return pa.table({"n": list(range(first, first + rows))})


@pytest.fixture
def log(tmp_path):
    log = Log(str(tmp_path / "log"))
    yield log
    log.close()


def numbers(slices):
    return [row["n"] for piece in slices for batch in piece.batches() for row in batch.to_pylist()]


def test_rows_are_numbered_over_segments_and_restarts(log, tmp_path):
    assert (log.first, log.end, log.size) == (0, 0, 0)
    for first, rows in ((0, 3), (3, 1), (4, 6)):
        log.append(table(first, rows))
    assert (log.first, log.end) == (0, 10)
    assert log.size > 0
    assert numbers(log.slices(0, 10)) == list(range(10))
    assert numbers(log.slices(2, 5)) == [2, 3, 4]
    assert log.slices(7, 7) == []
    log.close()
    again = Log(str(tmp_path / "log"))
    assert (again.first, again.end, again.size) == (0, 10, log.size)
    again.append(table(10, 2))
    assert numbers(again.slices(9, 12)) == [9, 10, 11]
    again.close()


def test_trimmed_rows_are_gone_and_the_position_stays(log, tmp_path):
    for first in (0, 3, 6):
        log.append(table(first, 3))
    log.trim(5)
    assert (log.first, log.end) == (3, 9)
    log.trim(9)
    assert (log.first, log.end) == (6, 9)
    assert len(list((tmp_path / "log").glob("*.arrow"))) == 1
    assert log.size == 0
    log.append(table(9, 1))
    assert log.size > 0
    log.trim(10)
    with pytest.raises(errors.IoError, match=r"rows 8 to 9 are asked for, .* has rows 9 to 9"):
        log.slices(8, 10)
    with pytest.raises(errors.IoError, match="not the one that this checkpoint was made with"):
        log.slices(10, 11)


def test_a_segment_that_was_not_finished_is_none(log, tmp_path):
    log.append(table(0, 3))
    half = tmp_path / "log" / f"{3:020d}-{5:020d}.new"
    half.write_bytes(b"ARROW1")
    log.close()
    again = Log(str(tmp_path / "log"))
    assert again.end == 3
    assert not half.exists()
    again.close()


def test_a_segment_that_is_missing_in_the_middle_is_noticed(log, tmp_path):
    for first in (0, 3, 6):
        log.append(table(first, 3))
    log.close()
    (tmp_path / "log" / f"{3:020d}-{6:020d}.arrow").unlink()
    with pytest.raises(errors.IoError, match="has no rows 3 to 5"):
        Log(str(tmp_path / "log"))


def test_a_log_has_one_writer(log, tmp_path):
    with pytest.raises(errors.InvalidArgument, match="another query has the log"):
        Log(str(tmp_path / "log"), patience=0.1)


def test_a_folder_that_is_none_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(errors.IoError, match="file"):
        Log(str(file))


def test_rows_are_counted_in_bytes(log):
    for first, rows in ((0, 10), (10, 20), (30, 10)):
        log.append(table(first, rows))
    each = [piece.size / (piece.end - piece.first) for piece in log._segments]
    assert log.within(0, 1) == 1
    assert log.within(0, int(5.5 * each[0])) == 5
    assert log.within(5, int(5 * each[0] + 3.5 * each[1])) == 13
    assert log.within(9, 1 << 20) == 40
    assert log.within(40, 1 << 20) == 40


@pytest.mark.parametrize(
    ("sizes", "parts", "smallest", "shares"),
    [
        ([10], 4, 1, [3, 3, 3, 1]),
        ([10], 4, 10, [10]),
        ([4, 4, 4], 2, 1, [6, 6]),
        ([1, 1, 1], 8, 1, [1, 1, 1]),
        ([5, 5], 3, 4, [4, 4, 2]),
        ([], 3, 1, []),
    ],
)
def test_slices_are_spread_over_tasks_in_order(sizes, parts, smallest, shares):
    slices = [Slice(str(number), 0, size) for number, size in enumerate(sizes)]
    groups = spread(slices, parts, smallest)
    assert [sum(piece.rows for piece in group) for group in groups] == shares
    rows = [(piece.path, piece.skip + n) for group in groups for piece in group for n in range(piece.rows)]
    assert rows == [(str(number), n) for number, size in enumerate(sizes) for n in range(size)]
