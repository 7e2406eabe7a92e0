"""Errors: one hierarchy, one class per code of the engine, pickling."""

import pickle
import re
from pathlib import Path

import pytest

from forebay import errors

SOURCE = Path(__file__).parents[3] / "src" / "base" / "error.rs"


@pytest.mark.skipif(not SOURCE.exists(), reason="runs in the source tree only")
def test_each_code_of_the_engine_has_its_class():
    kinds = re.findall(r'^    \w+ = "(\w+)", \w+, (true|false);', SOURCE.read_text(), re.MULTILINE)
    assert len(kinds) > 30
    assert {code for code, _ in kinds} == set(errors.BY_CODE)
    for code, retriable in kinds:
        kind = errors.BY_CODE[code]
        assert kind("x").retriable is (retriable == "true"), code
        assert kind.__doc__
        assert kind.__name__ in errors.__all__


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_an_error_survives_a_pickle(code):
    error = errors.from_engine(code, "message", "topic", True, "words")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error) == "message (topic topic): the broker says 'words'"
    assert (again.code, again.topic, again.retriable, again.broker_text) == (code, "topic", True, "words")


def test_an_unknown_code_is_kept():
    error = errors.from_engine("from_the_future", "m", None, False, None)
    assert type(error) is errors.UnknownError
    assert error.code == "from_the_future"
    assert pickle.loads(pickle.dumps(error)).code == "from_the_future"


def test_errors_are_what_python_calls_them():
    assert issubclass(errors.Timeout, TimeoutError)
    assert issubclass(errors.Disconnected, ConnectionError)
    assert issubclass(errors.ConnectFailed, ConnectionError)
    assert issubclass(errors.InvalidArgument, ValueError)
    assert issubclass(errors.AuthenticationError, PermissionError)
    for kind in errors.BY_CODE.values():
        assert issubclass(kind, errors.Error)
