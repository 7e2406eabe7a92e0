"""A short run of the faults of Spark; `make soak SOAK=spark` is a long one."""

import pytest

from support.campaign import spark as campaign

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("part", "count"), [("workers", 8), ("copies", 2), ("drivers", 2)])
def test_no_row_is_lost_and_none_comes_twice_that_must_not(part, count):
    """The campaign itself fails if one does."""
    found = campaign.run(part, count, timeout=580)
    assert sum(tally["faults"] for tally in found.values()) >= count
    assert all(tally["rows"] for tally in found.values())
    assert found["idempotent"]["repeated"] == 0
