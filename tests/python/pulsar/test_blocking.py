"""The blocking API, on top of the engine."""

import gc
import subprocess
import sys
import threading
import warnings

import pytest

import forebay
from forebay import blocking, errors

from support.waiting import PATIENCE


@pytest.fixture
def client():
    with blocking.connect("embedded:") as client:
        yield client


def test_it_needs_no_asyncio():
    code = (
        "import sys, forebay\n"
        "with forebay.blocking.connect('embedded:') as c, c.producer('t') as p: p.send(b'x')\n"
        "print('asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def test_receive_and_receive_many_share_one_order(client):
    with client.consumer("t", "s") as consumer, client.producer("t") as producer:
        producer.send_many([b"%d" % number for number in range(1000)])
        got = [consumer.receive(timeout=PATIENCE).data for _ in range(3)]
        while len(got) < 900:
            got += [message.data for message in consumer.receive_many(50, timeout=PATIENCE)]
        for message in consumer:
            got.append(message.data)
            if len(got) == 1000:
                break
        assert got == [b"%d" % number for number in range(1000)]


def test_frames_go_on_where_receive_stopped(client):
    with client.consumer("t", "s") as consumer, client.producer("t") as producer:
        producer.send_many([b"1", b"2"])
        assert consumer.receive(timeout=PATIENCE).data == b"1"
        assert consumer.read_frame(1, timeout=PATIENCE)["value"].to_pylist() == [b"2"]
        producer.send(b"3")
        assert consumer.read_frame(1, timeout=PATIENCE)["value"].to_pylist() == [b"3"]
        assert consumer.read_frame(10, timeout=0.1).num_rows == 0


def test_seek_forgets_what_was_taken_ahead(client):
    with client.consumer("t", "s") as consumer, client.producer("t") as producer:
        producer.send_many([b"%d" % number for number in range(10)])
        assert consumer.receive(timeout=PATIENCE).data == b"0"
        consumer.seek("earliest")
        assert consumer.receive(timeout=PATIENCE).data == b"0"


def test_submitted_lots_are_waited_for_later(client):
    with client.reader("t", position="earliest") as reader, client.producer("t") as producer:
        lots = [producer.submit_many([b"%d" % number] * 10) for number in range(5)]
        ids = [message_id for lot in lots for message_id in lot.wait(PATIENCE)]
        assert len(ids) == 50
        assert ids == sorted(ids)
        got = []
        while len(got) < 50:
            got += reader.receive_many(50, timeout=PATIENCE)


def test_waiting_lets_other_threads_run(client):
    ran = threading.Event()
    with client.consumer("t", "s") as consumer:
        thread = threading.Thread(target=ran.set)
        thread.start()
        with pytest.raises(forebay.Timeout):
            consumer.receive(timeout=0.2)
        assert ran.is_set()
        thread.join()


def test_use_after_close(client):
    producer, consumer = client.producer("t"), client.consumer("t", "s")
    client.close()
    assert producer.closed
    assert consumer.closed
    for use in (
        lambda: producer.send(b"x"),
        lambda: producer.send_nowait(b"x"),
        producer.flush,
        consumer.receive,
        consumer.last_message_ids,
        lambda: client.producer("t"),
    ):
        with pytest.raises(errors.Closed):
            use()
    client.close()


def test_a_forgotten_client_warns_and_lets_go():
    client = blocking.connect("embedded:")
    broker = client.broker
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()
    assert any(issubclass(w.category, ResourceWarning) for w in caught)
    assert not broker.running
