"""End-to-end encryption: the classes that programs name. The engine does not encrypt yet."""

from __future__ import annotations

from typing import Any

from ._checks import check_type
from ._enums import CompressionType


class CryptoKeyReader:
    """Paths of the keys for end-to-end encryption.

    Args:
        public_key_path: path of the public key.
        private_key_path: path of the private key.
    """

    def __init__(self, public_key_path: str, private_key_path: str) -> None:
        check_type(str, public_key_path, "public_key_path")
        check_type(str, private_key_path, "private_key_path")
        self.public_key_path, self.private_key_path = public_key_path, private_key_path

    @property
    def cryptoKeyReader(self) -> CryptoKeyReader:  # noqa: N802 - the official name
        """The reader itself."""
        return self


class EncryptionKey:
    """A key with which a message was encrypted.

    Args:
        key: an object with the attributes ``key`` and ``metadata`` and the method ``value()``.
    """

    def __init__(self, key: Any) -> None:
        self._key = key

    @property
    def key(self) -> str:
        """Name of the key."""
        return self._key.key

    @property
    def value(self) -> bytes:
        """The encrypted data key."""
        return self._key.value()

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata that was stored with the key."""
        return self._key.metadata

    def __str__(self) -> str:
        return f"EncryptionKey(key={self.key}, value_len={len(self.value)}, metadata={self.metadata})"

    def __repr__(self) -> str:
        return str(self)


class EncryptionContext:
    """Encryption and compression of a message.

    Args:
        context: an object with the methods of this class.
    """

    def __init__(self, context: Any) -> None:
        self._context = context

    def keys(self) -> list[EncryptionKey]:
        """The keys with which the message was encrypted."""
        return list(map(EncryptionKey, self._context.keys()))

    def param(self) -> bytes:
        """The parameter of the encryption."""
        return self._context.param()

    def algorithm(self) -> str:
        """Name of the algorithm."""
        return self._context.algorithm()

    def compression_type(self) -> CompressionType:
        """Codec of the payload."""
        return self._context.compression_type()

    def uncompressed_message_size(self) -> int:
        """Size of the payload before compression; 0 if it is not compressed."""
        return self._context.uncompressed_message_size()

    def batch_size(self) -> int:
        """Number of messages in the batch; -1 if the entry is not a batch."""
        return self._context.batch_size()

    def is_decryption_failed(self) -> bool:
        """Whether the payload is still encrypted."""
        return self._context.is_decryption_failed()

    def __str__(self) -> str:
        keys = ", ".join(map(str, self.keys()))
        return (
            f"EncryptionContext(algorithm={self.algorithm()}, "
            f"compression_type={self.compression_type().name}, "
            f"uncompressed_message_size={self.uncompressed_message_size()}, "
            f"is_decryption_failed={self.is_decryption_failed()}, keys=[{keys}])"
        )

    def __repr__(self) -> str:
        return str(self)
