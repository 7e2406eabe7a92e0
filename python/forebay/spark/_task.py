"""The Spark task of a write, and the names of its rows."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

from . import _batches
from ._config import WriteConfig

ROWS_PER_TASK = 1 << 32
"""Rows of a task that have numbers for deduplication; the batch of the stream is above them."""


@dataclass(frozen=True)
class Task:
    """The Spark task that runs this code."""

    partition: int
    attempt: int
    stage: int
    query: str | None
    """Id of the streaming query. It and ``batch`` stay the same when a batch is replayed."""
    batch: int | None
    run: str | None = None
    """Id of the query since its last start."""

    @classmethod
    def current(cls, config: WriteConfig) -> Task:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls(0, 0, 0, None, config.batch_id)
        names = (_batches.QUERY, _batches.BATCH, _batches.RUN)
        query, batch, run = (context.getLocalProperty(name) for name in names)
        if query is None or batch is None:
            query, batch = None, config.batch_id
        elif config.batch_id is not None:
            batch = config.batch_id
        number = None if batch is None else int(batch)
        return cls(context.partitionId(), context.attemptNumber(), context.stageId(), query, number, run)

    def ids(self, config: WriteConfig) -> tuple[str, str] | None:
        """Name of the property with ids, and the beginning of the ids. The attempt is not part of them,
        because it repeats the same rows."""
        if config.id_property is None:
            return None
        write, part = self._identity(config)
        if self.batch is not None:
            write = f"{write}/{self.batch}"
        return config.id_property, f"{write}/{part}"

    def producer_name(self, config: WriteConfig) -> str | None:
        """Name of the task's producers, if they have one: the same for each attempt, and for each batch of a
        stream that has as many tasks."""
        name = config.producer.get("name")
        if config.delivery == "idempotent":
            write, part = self._identity(config)
            return f"{name or 'forebay'}-{write}-{part}"
        return f"{name}-{self.partition}" if name else None

    def sequence(self, config: WriteConfig) -> int | None:
        """Sequence id of the first row, if the broker is to drop rows that are sent again."""
        if config.delivery != "idempotent":
            return None
        return (self.batch or 0) * ROWS_PER_TASK

    def _identity(self, config: WriteConfig) -> tuple[str, str]:
        """Names of the write and of its part that this task has. With its batch and its number, they tell a
        row from all others, also when another job repeats the write.

        Row 5 of task 1 of 4 is not row 5 of task 1 of 2. So a name that outlives the job contains the number
        of tasks. If the number is unknown, the name does not outlive the run of the query.
        """
        lasting = config.write_id or self.query
        if lasting is None:
            # One writer may be used for several frames, which differ in their stages.
            return f"{config.run_id}-{self.stage}", str(self.partition)
        if config.tasks is None:
            return f"{lasting}-{self.run or config.run_id}", str(self.partition)
        return lasting, f"{self.partition}-of-{config.tasks}"
