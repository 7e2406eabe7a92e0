"""Plans of idempotent writes: accepted are those that give a task that is repeated the same rows in the same
order."""

import re

import pytest

from forebay import errors
from forebay.spark import write
from forebay.spark._plans import in_any_order

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.usefixtures("own_pool")]


@pytest.fixture(scope="module")
def rows(spark):
    return spark.range(0, 100, 1, 2).selectExpr("cast(id as string) v", "id % 3 g")


@pytest.fixture(scope="module")
def shuffled(rows):
    return rows.repartition(3, "v")


def reasons(frame, **how):
    return list(in_any_order(frame._jdf.queryExecution().executedPlan(), **how))


def test_plans_that_do_not_repeat_their_rows_are_refused(spark, embedded, topic, rows, shuffled):
    def idempotent(frame, **more):
        return write(frame, embedded.url, topic, value="v", delivery="idempotent", **more).rows

    assert idempotent(rows.where("g = 1")) == 33
    counted = rows.groupBy("v").count()
    for frame, why in (
        (counted, "the order of groups"),
        (shuffled, "a shuffle"),
        (rows.limit(10), "a limit"),
        (rows.selectExpr("cast(rand() as string) v"), "random"),
        (spark.createDataFrame(rows.rdd), "an RDD"),
    ):
        with pytest.raises(errors.InvalidArgument, match=f"{why}.*stable_order=True"):
            idempotent(frame)
    assert idempotent(counted.sortWithinPartitions("v")) == 100
    assert idempotent(counted.orderBy("v")) == 100
    assert idempotent(counted, stable_order=True) == 100


def test_the_order_of_rows_is_that_of_a_sort_that_comes_last(rows, shuffled):
    pairs = rows.join(rows.withColumnRenamed("v", "w").hint("merge"), "g").select("v")
    # A sort of the join's own leaves rows with equal keys in the order in which they arrive.
    assert "a join" in reasons(pairs)[0]
    assert "the order of groups" in reasons(rows.coalesce(1).groupBy("v").count())[0]
    assert "a shuffle" in reasons(shuffled)[0]
    # What follows the sort has rows of an order of its own.
    assert reasons(shuffled.sortWithinPartitions("v").dropDuplicates(["v", "g"]))
    for frame in (pairs, shuffled, rows.groupBy("g").agg({"v": "max"}).withColumnRenamed("g", "v")):
        assert not reasons(frame.sortWithinPartitions("v").where("v <> '7'"))
        assert not reasons(frame.orderBy("v"))


def test_rows_that_may_be_others_are_not_helped_by_a_sort(spark, rows, shuffled):
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    numbered = F.row_number().over(Window.partitionBy("g").orderBy("g"))
    for frame, why in (
        (shuffled.limit(10), "a limit"),
        (shuffled.offset(5), "a limit|CollectLimit|GlobalLimit"),
        (shuffled.sample(0.5, seed=1), "a shuffle"),
        (shuffled.withColumn("n", numbered).where("n <= 3"), "a window"),
        (shuffled.dropDuplicates(["g"]), r"first\(\) may depend"),
        (shuffled.groupBy("g").agg(F.collect_list("v").alias("v")), r"collect_list\(\)"),
        (rows.join(shuffled.limit(10), "v", "left_semi"), "a limit"),
        (shuffled.mapInPandas(lambda frames: frames, shuffled.schema), "MapInPandas is not known"),
    ):
        found = reasons(frame.sortWithinPartitions(frame.columns[0]))
        assert found and re.search(why, found[0]), (why, found)


def test_a_source_that_is_not_known_is_refused(spark, rows, tmp_path):
    rows.write.parquet(str(tmp_path / "rows"))
    before = spark.conf.get("spark.sql.sources.useV1SourceList")
    spark.conf.set("spark.sql.sources.useV1SourceList", "")
    try:
        stored = spark.read.parquet(str(tmp_path / "rows"))
        assert reasons(stored.sortWithinPartitions("v")) == [
            "BatchScan is not known to give the same rows again"
        ]
    finally:
        spark.conf.set("spark.sql.sources.useV1SourceList", before)


def test_what_is_stored_is_accepted(spark, rows, shuffled, tmp_path):
    rows.write.parquet(str(tmp_path / "rows"))
    stored = spark.read.parquet(str(tmp_path / "rows"))
    small = spark.sql("values ('1', 'one') as t(v, name)")
    for frame in (
        stored,
        spark.sql("select explode(array('a', 'b')) v"),
        stored.union(rows).coalesce(1),
        stored.sample(0.5, seed=1),
        stored.join(small.hint("broadcast"), "v"),
        stored.where("g > (select max(g) - 1 from (select 1 g))"),
    ):
        assert not reasons(frame)
        assert not reasons(frame, is_run_again=True)
    # It is computed again when it is lost, by its own plan.
    for frame, is_stable in ((stored, True), (shuffled, False)):
        cached = frame.selectExpr("v", "g + 1 h").cache()
        try:
            assert (reasons(cached) == []) == is_stable
        finally:
            cached.unpersist()


def test_a_job_that_is_run_again_needs_partitions_of_the_same_rows(spark, embedded, topic, rows):
    """Found with 400,000 rows: a sort of all rows cut them elsewhere in the second run, and 4,900 were
    dropped, since the numbers of others had been theirs."""
    again = {"is_run_again": True}
    assert not reasons(rows.orderBy("v"))
    assert "a sort of all rows" in reasons(rows.orderBy("v"), **again)[0]
    assert (
        "a sort of all rows" in reasons(rows.repartitionByRange(3, "v").sortWithinPartitions("v"), **again)[0]
    )
    counted = rows.groupBy("v").count().sortWithinPartitions("v")
    assert not reasons(counted)
    assert "as their sizes have it" in reasons(counted, **again)[0]
    # The last shuffle decides, if its number of partitions is stated.
    fixed = counted.repartition(3, "v").sortWithinPartitions("v")
    assert not reasons(fixed, **again)
    assert not reasons(rows.orderBy("v").repartition(3, "v").sortWithinPartitions("v"), **again)
    # Here rows are dealt as they come.
    assert not reasons(rows.repartition(3).sortWithinPartitions("v"), **again)
    dealt = rows.groupBy("v").count().repartition(3).sortWithinPartitions("v")
    assert "the order of groups" in reasons(dealt)[0]
    with pytest.raises(errors.InvalidArgument, match="a sort of all rows"):
        write(rows.orderBy("v"), embedded.url, topic, value="v", delivery="idempotent", write_id="job")
    report = write(fixed, embedded.url, topic, value="v", delivery="idempotent", write_id="job")
    assert report.rows == 100
    stated = {"write_id": "job-2", "stable_order": True}
    assert (
        write(rows.orderBy("v"), embedded.url, topic, value="v", delivery="idempotent", **stated).rows == 100
    )
