"""``forebay`` with Pulsar URLs: each command as a user runs it, on the embedded broker."""

import json
import re
import signal

import pytest

from forebay import errors
from forebay._core import protocols
from forebay.commands._shared.options import scopes
from forebay.pulsar._renamed import RENAMED

from support.commands import refused, run, start


@pytest.fixture(scope="module")
def url():
    words = ("--port", "0", "--json", "--topic", "parts=3", "--log-level", "error")
    process = start("broker", *words)
    said = json.loads(process.stdout.readline())
    yield said["url"]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_the_broker_command_tells_its_address_and_ends_by_ctrl_c():
    process = start("broker", "--port", "0")
    line = process.stdout.readline().decode()
    assert "pulsar://127.0.0.1:" in line
    assert "memory" in line
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 0


def test_lines_in_lines_out(url):
    run("pub", "-u", url, "-t", "lines", "-q", "-l", "-K", ":", stdin=b"a:1\nb:2\nno key\n")
    out = run("sub", "-u", url, "-t", "lines", "-o", "beginning", "-C", "3", "-W", "50", "-F", "%k=%s\\n")
    assert out == b"a=1\nb=2\n=no key\n"


def test_messages_with_key_properties_and_compression(url):
    run("pub", "-u", url, "-t", "m", "-m", "hello", "-k", "7", "-p", "a=b", "-z", "zstd", "-r", "2")
    out = run("sub", "-u", url, "-t", "m", "-o", "earliest", "-e", "--json")
    first, second = [json.loads(line) for line in out.splitlines()]
    assert first["payload"] == second["payload"] == "hello"
    assert (first["key"], first["properties"]) == ("7", {"a": "b"})


def test_ids_as_json(url):
    out = run("pub", "-u", url, "-t", "ids", "-m", "x", "-m", "y", "--json")
    ids = [json.loads(line)["id"] for line in out.splitlines()]
    assert len(set(ids)) == 2


def test_a_timeout_has_its_own_status(url):
    run("sub", "-u", url, "-t", "empty", "-C", "1", "-W", "0.2", status=27)
    run("sub", "-u", url, "-t", "empty", "-W", "0.2")


def test_the_end_of_an_empty_topic_is_reached_at_once(url):
    assert run("sub", "-u", url, "-t", "nothing-here", "-o", "earliest", "-e") == b""


def test_a_subscription_remembers(url):
    sub = ("sub", "-u", url, "-t", "durable", "-s", "till", "-o", "earliest", "-W", "50")
    run("pub", "-u", url, "-t", "durable", "-q", "-l", stdin=b"1\n2\n3\n")
    assert run(*sub, "-C", "2") == b"1\n2\n"
    assert run(*sub, "-C", "1") == b"3\n"


def test_topics(url):
    names = json.loads(run("topic", "ls", "-u", url, "--json"))
    assert any("parts" in name for name in names)
    stats = json.loads(run("topic", "stats", "parts", "-u", url, "--json"))
    assert stats["partitions"] == 3
    for words in [("create", "x"), ("rm", "x"), ("grow", "parts", "-p", "4"), ("terminate", "x")]:
        run("topic", *words, "-u", url, status=1)


def test_topics_of_a_store(tmp_path):
    data = ("--data", str(tmp_path / "store"))
    run("topic", "create", "t", "-p", "2", *data)
    assert b"persistent://public/default/t" in run("topic", "ls", *data)
    assert json.loads(run("topic", "stats", "t", "--json", *data))
    run("topic", "grow", "t", "-p", "2", *data, status=1)
    assert json.loads(run("topic", "grow", "t", "-p", "3", "--json", *data))["partitions"] == 3
    assert json.loads(run("topic", "stats", "t", "--json", *data))["partitions"] == 3
    run("topic", "terminate", "t", *data)
    run("topic", "rm", "t", *data)
    assert run("topic", "ls", *data).strip() == b""


def test_doctor_finds_nothing_wrong(url):
    said = json.loads(run("doctor", url, "--json"))
    assert said["ok"]
    assert [finding["step"] for finding in said["findings"]] == [
        "installed",
        "address",
        "connect",
        "topic",
        "round trip",
        "clean up",
    ]


def stored_topics_of(url):
    names = json.loads(run("topic", "ls", "-u", url, "--json"))
    return [name for name in names if name.startswith("persistent://")]


def test_doctor_stores_nothing_where_it_cannot_delete(url):
    before = stored_topics_of(url)
    said = json.loads(run("doctor", url, "--json"))
    assert said["ok"]
    assert stored_topics_of(url) == before
    cleaned = said["findings"][-1]["detail"]
    assert "non-persistent://public/default/forebay-doctor could not be removed" in cleaned


def test_the_url_may_stand_before_the_topics(url):
    run("pub", url, "places", "-m", "one")
    assert b"one" in run("peek", url, "places")
    assert b"one" in run("peek", "-n", "1", url, "places")
    assert b"one" in run("peek", "places", "-u", url)
    run("replay", url, "places", "places-again", "-q")
    assert json.loads(run("peek", url, "places-again", "--json"))["payload"] == "one"


@pytest.mark.parametrize(
    "words", [("peek",), ("peek", "a", "b"), ("replay", "a"), ("replay", "a", "b", "c"), ("replay",)]
)
def test_each_topic_is_needed_once(url, words):
    command, *topics = words
    assert "needed, with a URL before, or -u URL" in refused(command, url, *topics)


def test_topics_are_read_by_a_pattern(url):
    for name in ("pattern-1", "pattern-2", "other-1"):
        run("pub", url, name, "-m", name)
    for words in ((), ("-s", "by-pattern")):
        out = run("sub", url, "--pattern", "pattern-.*", *words, "-o", "earliest", "-C", "2", "-W", "50")
        assert sorted(out.split()) == [b"pattern-1", b"pattern-2"]


def test_a_pattern_that_is_given_as_a_name_is_refused_with_the_flag():
    said = refused("sub", "pulsar://127.0.0.1:1", "shop/.*")
    assert "--pattern 'shop/.*' reads all topics" in said
    assert "re.compile" not in said
    assert "give one of them" in refused("sub", "pulsar://127.0.0.1:1", "t", "--pattern", "t.*")
    assert "unterminated" in refused("sub", "pulsar://127.0.0.1:1", "--pattern", "[")


@pytest.mark.parametrize("position", ["nonsense", "12", "12:x", "2h"])
def test_a_position_is_checked_before_connecting(position):
    said = refused("sub", "pulsar://127.0.0.1:1", "t", "-s", "s", "-o", position)
    assert f"{position!r} is not a message id" in said


@pytest.mark.parametrize("position", ["nonsense", "12:x", "-5", "2026-11-21T12:00:00"])
def test_a_time_is_checked_before_connecting(position):
    said = refused("sub", "pulsar://127.0.0.1:1", "t", f"-o={position}")
    assert "-o takes a time with its zone, such as" in said


@pytest.mark.parametrize("position", ["1h", "2020-01-01T00:00:00Z", "0"])
def test_a_reading_begins_at_a_time(url, position):
    run("pub", url, "from-a-time", "-m", "x", "-q")
    assert run("sub", url, "from-a-time", f"-o{position}", "-C", "1", "-W", "50") == b"x\n"


def test_a_subscription_begins_at_a_message_id(url):
    run("pub", url, "from-an-id", "-l", "-q", stdin=b"1\n2\n3\n")
    second = [json.loads(line)["id"] for line in run("peek", url, "from-an-id", "--json").splitlines()][1]
    assert run("sub", url, "from-an-id", "-o", second, "-C", "1", "-W", "50") == b"3\n"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("send_timeout_millis=30000", "use -X send_timeout=30, in seconds"),
        ("tls_validate_hostname=1", "use -X tls_skip_hostname_check=false, which is the opposite"),
        ("producer_name=till", "use -X producer.name=till"),
        ("compression_type=LZ4", "use -X compression=LZ4"),
        ("subscription_name=a", "use -s NAME of `forebay sub`"),
        ("message_router=f", "it is for programs"),
    ],
)
def test_options_of_another_client_are_answered_with_what_to_type(option, said):
    assert said in refused("pub", "pulsar://127.0.0.1:1", "t", "-m", "x", "-X", option)


@pytest.mark.parametrize("server", ["pulsar://127.0.0.1:1", "tubemq://127.0.0.1:1"])
def test_a_property_that_is_given_twice_is_refused(server):
    words = ("pub", server, "t", "-m", "x", "-p", "a=1", "-p", "b=2", "-p", "a=3")
    assert "properties have unique names, and 'a' is given twice" in refused(*words)


SAMPLES = ("1", "true", "30000", "RoundRobinDistribution", "LZ4", "soon")


@pytest.mark.parametrize(
    ("scope", "name"), [(scope, name) for scope, names in RENAMED.items() for name in names]
)
def test_what_the_hints_say_can_be_typed(scope, name):
    for value in SAMPLES:
        with pytest.raises(errors.InvalidArgument) as caught:
            scopes([f"{name}={value}"], "pulsar")
        said = str(caught.value)
        assert not re.search(r"\w=[\s,]|\w=$|\(\)|re\.compile|forebay\.pulsar", said), said
        for typed in re.findall(r"-X ([\w.]+=\S+?)(?=[\s,]|$)", said):
            shown = typed.partition("=")[2]
            found = scopes([typed], "pulsar")
            ((where, chosen),) = [(where, values) for where, values in found.items() if values]
            if shown not in ("VALUE", "NAME", "FILE", "file:PATH", "env:NAME"):
                protocols.resolve(f"pulsar.{where}", chosen)


def test_credentials_in_a_url_are_answered_with_flags():
    said = refused("sub", "pulsar://ann:canary-93@127.0.0.1", "t")
    assert "-X token=VALUE" in said and "token=," not in said and "canary-93" not in said


def test_doctor_names_the_step_that_fails():
    out = run("doctor", "pulsar://127.0.0.1:1", status=1)
    assert b"FAILED address" in out


def test_bench_measures(url):
    said = json.loads(run("bench", "-u", url, "-n", "2000", "--json"))
    assert all(case["rate"] > 0 for case in said["cases"].values())
    assert len(said["cases"]) == 4


def test_whoever_reads_may_go_away(url):
    run("pub", "-u", url, "-t", "pipe", "-q", "-l", stdin=b"x\n" * 20000)
    process = start("sub", "-u", url, "-t", "pipe", "-o", "earliest", "-e")
    assert process.stdout.readline() == b"x\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
    process.stderr.close()
