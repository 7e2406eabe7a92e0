"""Policies of consumers."""

from __future__ import annotations

from typing import Self

from ._enums import KeySharedMode


class BatchReceivePolicy:
    """When :meth:`~forebay.compat.pulsar.Consumer.batch_receive` returns.

    Args:
        max_num_message: largest number of messages; no limit from 0 down.
        max_num_bytes: largest size of their payloads; no limit from 0 down.
        timeout_ms: longest wait in milliseconds; no limit from 0 down.

    Raises:
        ValueError: none of them is a limit.
    """

    def __init__(
        self, max_num_message: int = -1, max_num_bytes: int = 10 * 1024 * 1024, timeout_ms: int = 100
    ) -> None:
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise ValueError("At least one of maxNumMessages, maxNumBytes and timeoutMs must be specified.")
        self._limits = max_num_message, max_num_bytes, timeout_ms

    def getMaxNumMessages(self) -> int:  # noqa: N802 - the official name
        """Largest number of messages."""
        return self._limits[0]

    def getMaxNumBytes(self) -> int:  # noqa: N802 - the official name
        """Largest size of the payloads in bytes."""
        return self._limits[1]

    def getTimeoutMs(self) -> int:  # noqa: N802 - the official name
        """Longest wait in milliseconds."""
        return self._limits[2]


class ConsumerBatchReceivePolicy:
    """When :meth:`~forebay.compat.pulsar.Consumer.batch_receive` returns: as soon as one limit is reached.

    Args:
        max_num_message, max_num_bytes, timeout_ms: as of :class:`BatchReceivePolicy`.
    """

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int) -> None:
        self._policy = BatchReceivePolicy(max_num_message, max_num_bytes, timeout_ms)

    def policy(self) -> BatchReceivePolicy:
        """The policy itself."""
        return self._policy


class KeySharedPolicy:
    """Assignment of keys to the consumers of a Key_Shared subscription."""

    def __init__(self) -> None:
        self._mode = KeySharedMode.AutoSplit
        self._out_of_order = False
        self._ranges: list[tuple[int, int]] = []

    def get_key_shared_mode(self) -> KeySharedMode:
        """Mode: whether the broker or the consumer chooses the ranges of hashes."""
        return self._mode

    def set_key_shared_mode(self, key_shared_mode: KeySharedMode) -> Self:
        """Sets the mode."""
        self._mode = key_shared_mode
        return self

    def is_allow_out_of_order_delivery(self) -> bool:
        """Whether keys may move to another consumer before their messages are acknowledged."""
        return self._out_of_order

    def set_allow_out_of_order_delivery(self, allow_out_of_order_delivery: bool) -> Self:
        """Sets whether keys may move to another consumer before their messages are acknowledged."""
        self._out_of_order = allow_out_of_order_delivery
        return self

    def get_sticky_ranges(self) -> list[tuple[int, int]]:
        """The ranges of hashes that this consumer takes."""
        return list(self._ranges)

    def set_sticky_ranges(self, sticky_ranges: list[tuple[int, int]]) -> Self:
        """Sets the ranges of hashes that this consumer takes.

        Raises:
            ValueError: no range, one beyond 0 to 65535, or two that overlap.
        """
        if not sticky_ranges:
            raise ValueError("Ranges for KeyShared policy must not be empty.")
        last = -1
        for first, end in sorted(sticky_ranges):
            if not 0 <= first <= end <= 65535:
                raise ValueError("KeySharedPolicy Exception: Ranges must be [0, 65535].")
            if first <= last:
                raise ValueError("Ranges for KeyShared policy with overlap.")
            last = end
        self._ranges = [(first, end) for first, end in sticky_ranges]
        return self


class ConsumerKeySharedPolicy:
    """Assignment of keys to the consumers of a Key_Shared subscription.

    Args:
        key_shared_mode: whether the broker or the consumer chooses the ranges of hashes.
        allow_out_of_order_delivery: whether keys may move to another consumer before their messages are
            acknowledged.
        sticky_ranges: the ranges of hashes that this consumer takes, of 0 to 65535, both ends included.

    Raises:
        ValueError: sticky ranges that are missing, beyond the limits, or overlap.
    """

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        if key_shared_mode == KeySharedMode.Sticky and sticky_ranges is None:
            raise ValueError(
                "When using key_shared_mode = KeySharedMode.Sticky you must also provide sticky_ranges"
            )
        self._policy = KeySharedPolicy()
        self._policy.set_key_shared_mode(key_shared_mode)
        self._policy.set_allow_out_of_order_delivery(allow_out_of_order_delivery)
        if sticky_ranges is not None:
            self._policy.set_sticky_ranges(sticky_ranges)

    @property
    def key_shared_mode(self) -> KeySharedMode:
        """Mode: whether the broker or the consumer chooses the ranges of hashes."""
        return self._policy.get_key_shared_mode()

    @property
    def allow_out_of_order_delivery(self) -> bool:
        """Whether keys may move to another consumer before their messages are acknowledged."""
        return self._policy.is_allow_out_of_order_delivery()

    @property
    def sticky_ranges(self) -> list[tuple[int, int]]:
        """The ranges of hashes that this consumer takes."""
        return self._policy.get_sticky_ranges()

    def policy(self) -> KeySharedPolicy:
        """The policy itself."""
        return self._policy


class DeadLetterPolicy:
    """Policy for messages that were delivered too often. Made by :class:`DeadLetterPolicyBuilder`."""

    def __init__(self, max_redeliver_count: int, dead_letter_topic: str, initial_subscription: str) -> None:
        self._values = max_redeliver_count, dead_letter_topic, initial_subscription

    def getMaxRedeliverCount(self) -> int:  # noqa: N802 - the official name
        """Largest number of redeliveries."""
        return self._values[0]

    def getDeadLetterTopic(self) -> str:  # noqa: N802 - the official name
        """The topic; empty for the default."""
        return self._values[1]

    def getInitialSubscriptionName(self) -> str:  # noqa: N802 - the official name
        """The subscription that is created with the topic; empty for none."""
        return self._values[2]


class DeadLetterPolicyBuilder:
    """Makes a :class:`DeadLetterPolicy`."""

    def __init__(self) -> None:
        self._count, self._topic, self._initial = 2**31 - 1, "", ""

    def maxRedeliverCount(self, max_redeliver_count: int) -> Self:  # noqa: N802 - the official name
        """Sets the largest number of redeliveries."""
        self._count = max_redeliver_count
        return self

    def deadLetterTopic(self, dead_letter_topic: str) -> Self:  # noqa: N802 - the official name
        """Sets the topic."""
        self._topic = dead_letter_topic
        return self

    def initialSubscriptionName(self, initial_subscription_name: str) -> Self:  # noqa: N802 - the official name
        """Sets the subscription that is created with the topic."""
        self._initial = initial_subscription_name
        return self

    def build(self) -> DeadLetterPolicy:
        """The policy."""
        return DeadLetterPolicy(self._count, self._topic, self._initial)


class ConsumerDeadLetterPolicy:
    """Policy for messages that were delivered too often.

    Args:
        max_redeliver_count: largest number of redeliveries, at least 1.
        dead_letter_topic: the topic; ``TOPIC-SUBSCRIPTION-DLQ`` by default.
        initial_subscription_name: subscription that is created with the topic.

    Raises:
        ValueError: ``max_redeliver_count`` is not at least 1.
    """

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
    ) -> None:
        if max_redeliver_count is None or max_redeliver_count < 1:  # pyright: ignore[reportUnnecessaryComparison]
            raise ValueError("max_redeliver_count must be greater than 0")
        self._policy = DeadLetterPolicy(
            max_redeliver_count, dead_letter_topic or "", initial_subscription_name or ""
        )

    @property
    def dead_letter_topic(self) -> str:
        """The topic; empty for the default."""
        return self._policy.getDeadLetterTopic()

    @property
    def max_redeliver_count(self) -> int:
        """Largest number of redeliveries."""
        return self._policy.getMaxRedeliverCount()

    @property
    def initial_subscription_name(self) -> str:
        """The subscription that is created with the topic; empty for none."""
        return self._policy.getInitialSubscriptionName()

    def policy(self) -> DeadLetterPolicy:
        """The policy itself."""
        return self._policy
