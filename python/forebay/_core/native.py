"""The native module, with the package's exceptions and durations plugged in. The package imports it from
here only."""
# pyright: reportPrivateUsage=false

from types import GenericAlias

from forebay import _engine
from forebay._engine import *  # noqa: F403
from forebay.errors import from_engine

from . import parse
from .unsupported import missing

_engine.set_error_factory(from_engine)
_engine.set_missing_factory(missing)
_engine.set_seconds_parser(parse.seconds)
# ``PulsarMessage[Order]`` is for type checkers.
_engine.PulsarMessage.__class_getitem__ = classmethod(GenericAlias)  # pyright: ignore[reportAttributeAccessIssue]
start_broker = _engine.Broker.start
check_store = _engine.check_store
backup_store = _engine.backup_store
restore_store = _engine.restore_store
compact_store = _engine.compact_store
is_secret = _engine.is_secret
is_signed_with = _engine.is_signed_with
hash_password = _engine.hash_password
