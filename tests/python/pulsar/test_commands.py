"""``penstock`` with Pulsar URLs: each command as a user runs it, on the embedded broker."""

import json
import signal
import subprocess
import sys

import pytest


def start(*arguments, **rest):
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **rest,
    )


def run(*arguments, stdin=b"", status=0):
    process = start(*arguments, stdin=subprocess.PIPE)
    out, err = process.communicate(stdin, timeout=300)
    assert process.returncode == status, (process.returncode, out, err)
    return out.decode()


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
    assert out == "a=1\nb=2\n=no key\n"


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
    assert run("sub", "-u", url, "-t", "nothing-here", "-o", "earliest", "-e") == ""


def test_a_subscription_remembers(url):
    sub = ("sub", "-u", url, "-t", "durable", "-s", "till", "-o", "earliest", "-W", "50")
    run("pub", "-u", url, "-t", "durable", "-q", "-l", stdin=b"1\n2\n3\n")
    assert run(*sub, "-C", "2") == "1\n2\n"
    assert run(*sub, "-C", "1") == "3\n"


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
    assert "persistent://public/default/t" in run("topic", "ls", *data)
    assert json.loads(run("topic", "stats", "t", "--json", *data))
    run("topic", "grow", "t", "-p", "2", *data, status=1)
    assert json.loads(run("topic", "grow", "t", "-p", "3", "--json", *data))["partitions"] == 3
    assert json.loads(run("topic", "stats", "t", "--json", *data))["partitions"] == 3
    run("topic", "terminate", "t", *data)
    run("topic", "rm", "t", *data)
    assert run("topic", "ls", *data).strip() == ""


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


def topics_of(url):
    return json.loads(run("topic", "ls", "-u", url, "--json"))


def test_doctor_leaves_one_topic_where_it_cannot_delete(url):
    def said():
        return json.loads(run("doctor", url, "--json"))

    assert said()["findings"][-1]["detail"].startswith("penstock-doctor stays")
    before = topics_of(url)
    assert said()["ok"]
    assert topics_of(url) == before


def test_doctor_names_the_step_that_fails():
    out = run("doctor", "pulsar://127.0.0.1:1", status=1)
    assert "FAILED address" in out


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
