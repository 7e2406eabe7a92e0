"""Streaming queries of Spark that read with the data source, for the tests of all protocols."""

import json

from forebay.spark import register

from support.waiting import eventually


def started(start):
    """The query that ``start`` starts. Spark gives the Python of a source 10 s to begin, and a busy machine
    may need more: the query ends before it has read anything, and is started again."""
    while True:
        query = start()

        def has_begun(query=query):
            return query.exception() or "Initializing" not in query.status["message"]

        eventually(has_begun, 240)
        if "connect back" not in str(query.exception()):
            return query
        # Its name and its checkpoint are free when it has ended.
        query.stop()


def end_of(query):
    """The offset behind the last batch, as it is told."""
    offset = query.lastProgress["sources"][0]["endOffset"]
    return json.loads(offset) if isinstance(offset, str) else offset


class Stream:
    """Runs a query over what there is, again and again with one checkpoint."""

    def __init__(self, spark, url, topic, folder, **options):
        register(spark)
        self._spark, self._folder = spark, folder
        self._options = {"url": url, "subscribe": topic, "startingOffsets": "earliest", **options}
        self.batches = []

    def _writer(self):
        given = {name: str(value) for name, value in self._options.items()}
        frame = self._spark.readStream.format("forebay").options(**given).load().select("value")

        def collect(batch, number):
            self.batches.append((number, sorted(int(bytes(row.value)) for row in batch.collect())))

        return frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(self._folder))

    def start(self, **trigger):
        return started(lambda: self._writer().trigger(**(trigger or {"processingTime": "0 seconds"})).start())

    def run(self):
        """Reads what there is now; returns the query, which has ended."""
        query = self.start(availableNow=True)
        query.awaitTermination(120)
        assert query.exception() is None
        return query

    @property
    def values(self):
        return sorted(value for _, values in self.batches for value in values)

    def forget_last_commit(self):
        """As if the driver had died between the sink and the commit log."""
        commits = sorted((self._folder / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        (self._folder / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
