"""The fixtures that the package gives to pytest, as a stranger's tests use them."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

OF_ONE_TEST = ("broker", "url", "mqtt_url", "mqtt_ws_url", "tubemq_url", "broker_options")
ALL = [
    *(f"forebay_{scope}{name}" for scope in ("", "session_") for name in OF_ONE_TEST),
    *("forebay_start_broker", "forebay_make_token", "forebay_topic", "forebay_namespace"),
]
STRANGERS = ("-p", "no:asyncio", "-p", "no:timeout", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")


def outcomes(pytester: pytest.Pytester, text: str, *flags: str, **wanted: int) -> pytest.RunResult:
    """Runs a file of tests in a process of its own, without the plug-ins that this repository uses."""
    pytester.makepyfile(text)
    done = pytester.runpytest_subprocess(*STRANGERS, "-W", "error::ResourceWarning", *flags, timeout=120)
    done.assert_outcomes(**wanted)
    return done


def test_the_package_names_its_plug_in() -> None:
    found = [point for point in importlib.metadata.entry_points(group="pytest11") if point.name == "forebay"]
    assert [point.value for point in found] == ["forebay.pytest_plugin"], "`make build` installs it"


def test_a_run_that_uses_nothing_loads_nothing(pytester: pytest.Pytester) -> None:
    text = """
        import sys

        def test_nothing():
            loaded = sorted(name for name in sys.modules if name.startswith("forebay"))
            assert loaded == ["forebay", "forebay._core", "forebay.pytest_plugin"]
    """
    outcomes(pytester, text, passed=1)


def test_every_fixture_is_listed_with_a_text(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest_subprocess(*STRANGERS, "--fixtures", timeout=60)
    shown = done.stdout.str()
    for name in ALL:
        assert f"\n{name}" in shown, name
    assert "no docstring available" not in shown[shown.index("fixtures defined from forebay.") :]


def test_tests_with_the_same_names_do_not_see_each_other(pytester: pytest.Pytester) -> None:
    text = """
        import pytest
        from forebay import blocking

        @pytest.mark.parametrize("turn", ["first", "second"])
        def test_pulsar(forebay_url, turn):
            with blocking.connect(forebay_url) as client:
                with client.producer("orders") as producer:
                    producer.send(turn)
                with client.reader("orders", position="earliest") as reader:
                    assert [one.data for one in reader.receive_many(5, timeout=60)] == [turn.encode()]

        @pytest.mark.parametrize("turn", ["first", "second"])
        def test_mqtt(forebay_mqtt_url, turn):
            with blocking.connect(forebay_mqtt_url) as client:
                client.publish(f"lamp/{turn}", b"on", qos=1, retain=True)
                with client.subscribe("#") as messages:
                    assert messages.receive(timeout=60).topic == f"lamp/{turn}"
                    assert messages.receive_many(1, timeout=0.1) == []

        @pytest.mark.parametrize("turn", ["first", "second"])
        def test_tubemq(forebay_tubemq_url, turn):
            with blocking.connect(forebay_tubemq_url) as client:
                with client.producer("orders") as producer:
                    producer.send(turn)
                with client.consumer("orders", "till", position="first") as consumer:
                    message = consumer.receive(timeout=60)
                    consumer.ack(message)
                    assert message.data == turn.encode()

        def test_all_urls_are_those_of_one_broker(
            forebay_broker, forebay_url, forebay_mqtt_url, forebay_mqtt_ws_url, forebay_tubemq_url
        ):
            urls = {
                "pulsar": forebay_url,
                "mqtt": forebay_mqtt_url,
                "mqtt_ws": forebay_mqtt_ws_url,
                "tubemq": forebay_tubemq_url,
            }
            assert forebay_broker.urls == urls
    """
    outcomes(pytester, text.replace("producer.send(turn)", "producer.send(turn.encode())"), passed=7)


def test_the_clients_of_others(pytester: pytest.Pytester) -> None:
    text = """
        import threading
        from urllib.parse import urlsplit

        import paho.mqtt.client as mqtt
        import pulsar

        def test_pulsar_client(forebay_url):
            client = pulsar.Client(forebay_url)
            consumer = client.subscribe("orders", "till")
            client.create_producer("orders").send(b"a book")
            assert consumer.receive(60_000).data() == b"a book"
            client.close()

        def test_paho(forebay_mqtt_url):
            url, came = urlsplit(forebay_mqtt_url), threading.Event()
            client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
            client.on_subscribe = lambda client, *_: client.publish("lamp", "on", qos=1)
            client.on_message = lambda *_: came.set()
            client.connect(url.hostname, url.port)
            client.loop_start()
            client.subscribe("lamp", qos=1)
            assert came.wait(60)
            client.disconnect()
            client.loop_stop()
    """
    outcomes(pytester, text, passed=2)


def test_one_broker_for_the_run_and_names_for_each_test(pytester: pytest.Pytester) -> None:
    text = """
        import pytest
        from forebay import blocking

        URLS, NAMES = set(), set()

        @pytest.fixture(scope="session")
        def kept(forebay_session_url):
            with blocking.connect(forebay_session_url) as client, client.producer("kept") as producer:
                yield producer

        @pytest.mark.parametrize("turn", range(3))
        def test_each(
            turn, kept, forebay_session_broker, forebay_session_url, forebay_session_mqtt_url,
            forebay_session_mqtt_ws_url, forebay_session_tubemq_url, forebay_namespace, forebay_topic,
        ):
            kept.send(b"still there")
            assert forebay_session_broker.topics() == ["persistent://public/default/kept"]
            URLS.add((forebay_session_url, forebay_session_mqtt_url, forebay_session_mqtt_ws_url,
                      forebay_session_tubemq_url))
            NAMES.update((forebay_namespace, forebay_topic))
            with blocking.connect(forebay_session_url) as client:
                for topic in (f"persistent://{forebay_namespace}/a", forebay_topic, forebay_topic + "-b",
                              f"non-persistent://{forebay_namespace}/c"):
                    with client.producer(topic) as producer:
                        producer.send(b"x")
            with blocking.connect(forebay_session_tubemq_url) as client:
                with client.producer(forebay_topic) as producer:
                    producer.send(b"x")
            assert len(forebay_session_broker.topics()) >= 5

        def test_together(forebay_session_broker):
            assert forebay_session_broker.topics() == ["persistent://public/default/kept"]
            assert len(URLS) == 1 and len(NAMES) == 6
    """
    outcomes(pytester, text, passed=4)


def test_options_of_a_module_and_of_one_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def forebay_session_broker_options():
            return {"durability": "memory", "default_partitions": 2}
    """)
    text = """
        import pytest
        from forebay import blocking, errors

        @pytest.fixture
        def forebay_broker_options():
            return {"token_key": b"0123456789abcdef0123456789abcdef"}

        def test_tokens(forebay_url, forebay_make_token):
            with pytest.raises(errors.AuthenticationError):
                blocking.connect(forebay_url)
            with pytest.raises(errors.AuthenticationError):
                blocking.connect(forebay_url, token=forebay_make_token("till", exp=1))
            with blocking.connect(forebay_url, token=forebay_make_token("till")) as client:
                client.producer("orders").close()

        @pytest.mark.parametrize("forebay_broker_options", [{"auto_create": False}])
        def test_one(forebay_url):
            with blocking.connect(forebay_url) as client, pytest.raises(errors.TopicNotFound):
                client.producer("orders")

        def test_session(forebay_session_url):
            with blocking.connect(forebay_session_url) as client, client.producer("orders") as producer:
                assert client.partitions("orders") == 2

        def test_a_restart(forebay_start_broker, tmp_path):
            with blocking.connect(forebay_start_broker().url) as client:
                client.producer("other").close()
            first = forebay_start_broker(data=tmp_path)
            with blocking.connect(first.url) as client, client.producer("orders") as producer:
                producer.send(b"a book")
            first.stop()
            with blocking.connect(forebay_start_broker(data=tmp_path).url) as client:
                with client.reader("orders", position="earliest") as reader:
                    assert reader.receive(timeout=60).data == b"a book"
    """
    outcomes(pytester, text, passed=4)


def test_a_broker_that_cannot_start_says_why(pytester: pytest.Pytester) -> None:
    text = """
        import socket
        import pytest

        @pytest.fixture
        def forebay_broker_options():
            with socket.create_server(("127.0.0.1", 0)) as taken:
                yield {"port": taken.getsockname()[1]}

        @pytest.fixture(scope="session")
        def forebay_session_broker_options():
            return {"maxstore": 1}

        def test_port(forebay_url): ...
        def test_option(forebay_session_url): ...
        def test_no_key(forebay_start_broker, forebay_make_token): ...
    """
    done = outcomes(pytester, text, errors=3)
    shown = done.stdout.str()
    assert "the embedded broker of forebay cannot start: " in shown
    assert "in use" in shown
    assert "did you mean 'max_store'" in shown
    assert "forebay_broker_options has no token_key" in shown
    assert "Traceback" not in shown


def test_workers_of_xdist_have_a_broker_each(pytester: pytest.Pytester) -> None:
    text = """
        import os
        import pytest
        from forebay import blocking

        @pytest.mark.parametrize("number", range(8))
        def test_each(number, forebay_session_url, forebay_namespace, request):
            folder = request.config.rootpath / "seen"
            folder.mkdir(exist_ok=True)
            port = forebay_session_url.rpartition(":")[2]
            (folder / f"{os.environ['PYTEST_XDIST_WORKER']} {port}").touch()
            with blocking.connect(forebay_session_url) as client:
                with client.producer(f"persistent://{forebay_namespace}/t") as producer:
                    producer.send(b"x")
    """
    outcomes(pytester, text, "-n", "2", "--dist", "each", passed=16)
    seen = [path.name.split() for path in (pytester.path / "seen").iterdir()]
    assert (
        len(seen) == 2 and len({worker for worker, _ in seen}) == 2 and len({port for _, port in seen}) == 2
    )


def test_it_costs_a_run_that_does_not_use_it_a_few_milliseconds() -> None:
    timed = "t = time.perf_counter(); import forebay.pytest_plugin; print(time.perf_counter() - t)"
    words = [sys.executable, "-c", f"import pytest, time; {timed}"]
    spent = [float(subprocess.check_output(words, timeout=300)) for _ in range(5)]
    # About 1 ms on an idle machine.
    assert min(spent) < 0.1
