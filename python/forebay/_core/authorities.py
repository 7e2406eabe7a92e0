"""Certificate authorities for Python's ``ssl``."""

from __future__ import annotations

import re
import ssl

_BEGIN = re.compile(rb"^-----BEGIN ", re.MULTILINE)
_BLOCK = re.compile(rb"^-----BEGIN ([^\r\n]+?)-----.*?^-----END \1-----", re.MULTILINE | re.DOTALL)


def context(authorities: bytes | None) -> ssl.SSLContext:
    """TLS of a client that trusts the authorities in PEM, or those of the platform with ``None``.

    Bundles have comments in any encoding between their certificates, and ``ssl`` takes ASCII only.

    Raises:
        ValueError: the certificates cannot be read.
    """
    if authorities is None:
        return ssl.create_default_context()
    blocks = [found[0] for found in _BLOCK.finditer(authorities)]
    # Without text, ssl would trust the authorities of the platform.
    if not blocks or len(blocks) != len(_BEGIN.findall(authorities)):
        raise ValueError("the certificates cannot be read: PEM has lines -----BEGIN and -----END")
    try:
        return ssl.create_default_context(cadata=b"\n".join(blocks).decode("ascii"))
    except UnicodeDecodeError:
        raise ValueError("the certificates cannot be read: they are not base64") from None
    except ssl.SSLError as error:
        raise ValueError(f"the certificates cannot be read: {error}") from None
