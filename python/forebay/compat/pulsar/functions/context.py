"""Interface between a function and its runtime."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any


class Context:
    """The surroundings of a function while it processes a message."""

    @abstractmethod
    def get_message_id(self) -> Any:
        """Id of the message."""

    @abstractmethod
    def get_message_key(self) -> Any:
        """Key of the message."""

    @abstractmethod
    def get_message_eventtime(self) -> Any:
        """Event time of the message."""

    @abstractmethod
    def get_message_properties(self) -> Any:
        """Properties of the message."""

    @abstractmethod
    def get_current_message_topic_name(self) -> Any:
        """Topic of the message."""

    @abstractmethod
    def get_function_tenant(self) -> Any:
        """Tenant of the function."""

    @abstractmethod
    def get_function_namespace(self) -> Any:
        """Namespace of the function."""

    @abstractmethod
    def get_function_name(self) -> Any:
        """Name of the function."""

    @abstractmethod
    def get_function_id(self) -> Any:
        """Id of the function."""

    @abstractmethod
    def get_instance_id(self) -> Any:
        """Id of the instance."""

    @abstractmethod
    def get_function_version(self) -> Any:
        """Version of the function."""

    @abstractmethod
    def get_logger(self) -> Any:
        """The logger."""

    @abstractmethod
    def get_user_config_value(self, key: str) -> Any:
        """A value of the configuration; ``None`` if there is none."""

    @abstractmethod
    def get_user_config_map(self) -> Any:
        """The configuration."""

    @abstractmethod
    def get_secret(self, secret_name: str) -> Any:
        """A secret; ``None`` if there is none."""

    @abstractmethod
    def get_partition_key(self) -> Any:
        """Key of the message."""

    @abstractmethod
    def get_ordering_key(self) -> Any:
        """Ordering key of the message."""

    @abstractmethod
    def record_metric(self, metric_name: str, metric_value: float) -> Any:
        """Records a value of a metric."""

    @abstractmethod
    def publish(
        self,
        topic_name: str,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: Mapping[str, str] | None = None,
        compression_type: Any = None,
        callback: Callable[..., Any] | None = None,
        message_conf: Mapping[str, Any] | None = None,
    ) -> Any:
        """Sends a message to another topic."""

    @abstractmethod
    def get_input_topics(self) -> Any:
        """The topics of the input."""

    @abstractmethod
    def get_output_topic(self) -> Any:
        """The topic of the output."""

    @abstractmethod
    def get_output_serde_class_name(self) -> Any:
        """The class that converts the output."""

    @abstractmethod
    def ack(self, msgid: Any, topic: str) -> Any:
        """Acknowledges a message."""

    @abstractmethod
    def incr_counter(self, key: str, amount: int) -> Any:
        """Adds to a counter."""

    @abstractmethod
    def get_counter(self, key: str) -> Any:
        """Value of a counter."""

    @abstractmethod
    def del_counter(self, key: str) -> Any:
        """Deletes a counter."""

    @abstractmethod
    def put_state(self, key: str, value: Any) -> Any:
        """Stores a value."""

    @abstractmethod
    def get_state(self, key: str) -> Any:
        """A stored value."""
