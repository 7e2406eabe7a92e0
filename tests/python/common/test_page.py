"""The broker's page for operators, in Chromium, with traffic of all three protocols."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

import forebay
from forebay import blocking, cli
from forebay.pulsar import Schema

from support.browser import chromium, opened
from support.scripts import free_port
from support.waiting import PATIENCE, eventually


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def broker() -> Iterator[forebay.Broker]:
    with forebay.Broker(http_port=0, mqtt_port=0, tubemq_port=0) as broker:
        yield broker


@pytest.fixture(scope="module")
def clients(broker: forebay.Broker) -> Iterator[None]:
    """A client of each protocol, and what they leave to be seen."""
    broker.create_topic("tubemq:trades", 2)
    with (
        blocking.connect(broker.url) as pulsar,
        blocking.connect(broker.mqtt_url, client_id="kitchen") as mqtt,
        blocking.connect(broker.tubemq_url) as tubemq,
        pulsar.consumer("orders", "billing"),
        pulsar.producer("orders") as orders,
        mqtt.consumer("home/+/temperature", qos=1),
        mqtt.producer("home/kitchen/temperature", qos=1, retain=True) as temperature,
        tubemq.consumer("trades", "desk"),
        tubemq.producer("trades") as trades,
    ):
        orders.send(b'{"n": 1, "text": "gr\xc3\xbcn"}', key="k", properties={"colour": "green"})
        orders.send(b"plain text")
        orders.send(b"\x00\xff\x10")
        temperature.send(b'{"c": 21.5}')
        trades.send(b"x")
        yield


@pytest.fixture
def page(browser: Browser, broker: forebay.Broker, clients: None) -> Iterator[Page]:
    with opened(browser, str(broker.http_url)) as page:
        expect(page.get_by_text("Ready", exact=True)).to_be_visible()
        yield page


def row(page: Page, table: str, text: str) -> Locator:
    return page.locator(f"#{table} tbody tr", has_text=text)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def confirm(page: Page, button: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


def said(page: Page, text: str) -> None:
    expect(page.get_by_role("alert")).to_contain_text(text)


def test_all_protocols_are_on_one_screen(page: Page) -> None:
    for protocol in ("Pulsar", "MQTT", "TubeMQ"):
        expect(page.get_by_role("heading", name=protocol, exact=True)).to_be_visible()
    expect(row(page, "topics", "orders")).to_contain_text("billing")
    expect(row(page, "topics", "trades")).to_contain_text("desk")
    expect(row(page, "sessions", "kitchen")).to_contain_text("home/+/temperature")
    expect(row(page, "retained", "home/kitchen/temperature")).to_contain_text('{"c": 21.5}')
    expect(row(page, "clients", "kitchen")).to_contain_text("127.0.0.1:")
    for protocol in ("pulsar", "mqtt", "tubemq"):
        expect(row(page, "clients", protocol).first).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("durability memory")


def test_rates_and_charts_are_live(page: Page, broker: forebay.Broker) -> None:
    end = threading.Event()

    def send() -> None:
        with blocking.connect(broker.url) as client, client.producer("busy") as producer:
            while not end.wait(0.01):
                producer.send(b"x")

    thread = threading.Thread(target=send)
    thread.start()
    try:
        card = page.locator('[data-protocol="pulsar"]')
        expect(card.locator(".key.in")).to_contain_text(re.compile(r"^[1-9][\d,.]* in/s"))
        expect(row(page, "topics", "busy").locator("td").nth(2)).to_have_text(re.compile(r"^[1-9]"))
        # A line with more than one point.
        expect(card.locator("svg path.in")).to_have_attribute("d", re.compile(r"^M.*L.*L"))
    finally:
        end.set()
        thread.join()
    press(page, "Pause")
    before = page.locator("#facts").inner_text()
    time.sleep(3)
    assert page.locator("#facts").inner_text() == before
    press(page, "Resume")
    expect(page.locator("#facts")).not_to_have_text(before)


def test_messages_are_looked_into(page: Page) -> None:
    press(page, "Look into billing of orders")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_count(3)
    first = dialog.locator("#dialog-body > div").nth(0)
    assert first.locator("pre").inner_text() == json.dumps(
        {"n": 1, "text": "grün"}, indent=2, ensure_ascii=False
    )
    expect(first).to_contain_text("Property colour")
    expect(first).to_contain_text("green")
    first.get_by_label("Shown as").select_option("Hex")
    expect(first.locator("pre")).to_contain_text("7b 22 6e 22")
    first.get_by_label("Shown as").select_option("Text")
    assert first.locator("pre").inner_text() == '{"n": 1, "text": "grün"}'
    assert dialog.locator("pre").nth(1).inner_text() == "plain text"
    expect(dialog.locator("pre").nth(2)).to_contain_text("00 ff 10")
    # Nothing was consumed.
    confirm(page, "Close")
    expect(row(page, "topics", "orders").locator("td").nth(4)).to_have_text("3")


def test_messages_in_a_batch_are_told_apart(page: Page, broker: forebay.Broker) -> None:
    with (
        blocking.connect(broker.url) as client,
        client.consumer("batched", "later"),
        client.producer("batched", batching_delay=1.0) as producer,
    ):
        producer.send_many([b"one", b"two", b"three"])
    press(page, "Look into later of batched")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text(["one", "two", "three"])
    expect(dialog).to_contain_text("3 of 3")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_subscription_is_skipped_and_reset_and_only_when_confirmed(
    page: Page, broker: forebay.Broker
) -> None:
    with (
        blocking.connect(broker.url) as client,
        client.consumer("cursor", "slow"),
        client.producer("cursor") as producer,
    ):
        for _ in range(7):
            producer.send(b"x")
        backlog = row(page, "topics", "cursor").locator("td").nth(4)
        expect(backlog).to_have_text("7")
        press(page, "Skip all messages of slow of cursor")
        confirm(page, "Cancel")
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert backlog.inner_text() == "7"
        press(page, "Skip all messages of slow of cursor")
        confirm(page, "Skip all")
        said(page, "The backlog of slow has been skipped.")
        expect(backlog).to_have_text("0")
        press(page, "Reset slow of cursor")
        page.get_by_label("Minutes back").fill("soon")
        confirm(page, "Reset")
        said(page, "soon is not a number of minutes")
        press(page, "Reset slow of cursor")
        # Enter confirms nothing that cannot be undone.
        page.get_by_label("Minutes back").press("Enter")
        page.get_by_label("Minutes back").fill("5")
        confirm(page, "Reset")
        said(page, "slow has been reset.")
        expect(backlog).to_have_text("7")


MESSAGE, OFFSET, PARTITION = "Message id, as Peek", "Offset, as Peek", "Partition, empty"


def reset(page: Page, of: str, to: str, fields: dict[str, str] | None = None) -> None:
    """Resets a subscription; ``fields`` are those of the dialog by the beginnings of their labels."""
    press(page, f"Reset {of}")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reset to").select_option(to)
    for label, value in (fields or {}).items():
        dialog.get_by_label(label).fill(value)
    confirm(page, "Reset")


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_subscription_is_reset_to_its_ends_and_to_a_message(
    page: Page, broker: forebay.Broker, partitions: int
) -> None:
    topic = f"places-{partitions}"
    broker.create_topic(topic, partitions)
    with (
        blocking.connect(broker.url) as client,
        client.consumer(topic, "s"),
        client.producer(topic, batching=False) as producer,
    ):
        ids = [producer.send(b"x", key="k") for _ in range(4)]
        backlog = row(page, "topics", topic).locator("td").nth(4)
        expect(backlog).to_have_text("4")
        reset(page, f"s of {topic}", "behind the latest message")
        said(page, "s has been reset.")
        expect(backlog).to_have_text("0")
        reset(page, f"s of {topic}", "the earliest message")
        expect(backlog).to_have_text("4")
        reset(page, f"s of {topic}", "a message", {MESSAGE: f"{ids[2].ledger}:{ids[2].entry}"})
        expect(backlog).to_have_text("2")
        for wrong, reason in [("", "nothing is not a message id"), ("999999:0", "has no message 999999:0")]:
            reset(page, f"s of {topic}", "a message", {MESSAGE: wrong})
            said(page, reason)
        assert backlog.inner_text() == "2"


def test_a_topic_without_a_subscription_is_looked_into_from_either_end(
    page: Page, broker: forebay.Broker
) -> None:
    broker.create_topic("unread", 2)
    broker.create_topic("tubemq:unread_too", 1)
    with (
        blocking.connect(broker.url) as pulsar,
        blocking.connect(broker.tubemq_url) as tubemq,
        pulsar.producer("unread", batching=False) as orders,
        tubemq.producer("unread_too") as trades,
    ):
        press(page, "Look into unread")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("The topic has no messages.")
        confirm(page, "Close")
        for number in range(12):
            orders.send(b"%d" % number, key="k")
            trades.send(b"%d" % number)
    for topic, most in [("unread", 5), ("tubemq:unread_too", 10)]:
        press(page, f"Look into {topic}")
        place = dialog.get_by_role("combobox", name="Show", exact=True)
        expect(place).to_be_focused()
        latest = [str(number) for number in range(11, 11 - most, -1)]
        expect(dialog.locator("pre")).to_have_text(latest)
        place.select_option("the earliest messages")
        expect(dialog.locator("pre")).to_have_text([str(number) for number in range(most)])
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


def test_a_group_is_looked_into_and_reset(page: Page, broker: forebay.Broker) -> None:
    broker.create_topic("tubemq:ledger", 2)
    of = "auditors of tubemq:ledger"
    with (
        blocking.connect(broker.tubemq_url) as client,
        client.consumer("ledger", "auditors") as consumer,
        client.producer("ledger") as producer,
    ):
        sent = [f'{{"n": {number}}}' for number in range(6)]
        green = {"colour": "green"}
        places = [
            producer.send(text.encode(), key=text, message_type="entry", properties=green) for text in sent
        ]
        first = sum(place.partition == 0 for place in places)
        for _ in sent:
            consumer.ack(consumer.receive(timeout=PATIENCE))
    # The consumer has left: what it had stays acknowledged.
    backlog = row(page, "topics", "tubemq:ledger").locator("td").nth(4)
    expect(backlog).to_have_text("0")
    expect(row(page, "topics", "tubemq:ledger").locator("td").nth(7)).to_have_text("0")
    dialog = page.get_by_role("dialog")
    press(page, f"Look into {of}")
    expect(dialog).to_contain_text("No message waits for the subscription.")
    confirm(page, "Close")
    reset(page, of, "the earliest message")
    said(page, "auditors has been reset.")
    expect(backlog).to_have_text("6")
    press(page, f"Look into {of}")
    expect(dialog.locator("pre")).to_have_count(6)
    message = dialog.locator("#dialog-body > div").nth(0)
    for fact in ("Offset", "Partition", "Stored", "Key", "Message type", "entry", "Property colour", "green"):
        expect(message).to_contain_text(fact)
    message.get_by_label("Shown as").select_option("Text")
    assert message.locator("pre").inner_text() in sent
    message.get_by_label("Shown as").select_option("Hex")
    expect(message.locator("pre")).to_contain_text("7b 22 6e 22")
    confirm(page, "Close")
    # Nothing was consumed.
    expect(backlog).to_have_text("6")
    reset(page, of, "behind the latest message", {PARTITION: "1"})
    expect(backlog).to_have_text(str(first))
    reset(page, of, "an offset", {OFFSET: "28", PARTITION: "0"})
    expect(backlog).to_have_text(str(first - 1))
    for given, reason in [
        ({OFFSET: "soon", PARTITION: "0"}, "soon is not an offset"),
        ({OFFSET: "0"}, "nothing is not the number of a partition"),
        ({OFFSET: "0", PARTITION: "7"}, "partition 7 of topic ledger does not exist"),
    ]:
        reset(page, of, "an offset", given)
        said(page, reason)
    assert backlog.inner_text() == str(first - 1)


def test_the_dialog_of_a_reset_is_accessible_and_used_by_the_keyboard(page: Page) -> None:
    button = page.get_by_role("button", name="Reset desk of tubemq:trades")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Reset to")).to_be_focused()
    # The field of a choice is there with it only.
    expect(dialog.get_by_label(OFFSET)).to_be_hidden()
    page.keyboard.press("End")
    expect(dialog.get_by_label(OFFSET)).to_be_visible()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.keyboard.press("Tab")
    expect(dialog.get_by_label(OFFSET)).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def publish(page: Page, protocol: str, topic: str, payload: str, **fields: str) -> None:
    press(page, "Publish…")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Protocol").select_option(protocol)
    dialog.get_by_label("Topic").fill(topic)
    dialog.get_by_label("Payload").fill(payload)
    for label, value in fields.items():
        if label == "Retain":
            dialog.get_by_label(label).check()
        elif label == "QoS":
            dialog.get_by_label(label).select_option(value)
        else:
            dialog.get_by_label(label).fill(value)
    confirm(page, "Publish")


def test_a_message_is_published_by_each_protocol(page: Page, broker: forebay.Broker) -> None:
    broker.create_topic("by-hand", 3)
    with (
        blocking.connect(broker.url) as pulsar,
        blocking.connect(broker.mqtt_url) as mqtt,
        blocking.connect(broker.tubemq_url) as tubemq,
        pulsar.consumer("by-hand", "s") as orders,
        mqtt.consumer("by/hand", qos=2) as lamps,
        tubemq.consumer("trades", "other", position="latest") as trades,
    ):
        publish(page, "pulsar", "by-hand", "grün", Key="k")
        said(page, "Published to by-hand: ")
        message = orders.receive(timeout=PATIENCE)
        assert (message.data.decode(), message.key) == ("grün", "k")
        publish(page, "mqtt", "by/hand", "on", QoS="2", Retain="")
        said(page, "Published to by/hand.")
        packet = lamps.receive(timeout=PATIENCE)
        assert (packet.data, packet.qos) == (b"on", 2)
        publish(page, "mqtt", "by/nothing", "on")
        said(page, "Published to by/nothing; it has no subscriber.")
        publish(page, "tubemq", "trades", "sold", Key="k")
        said(page, "Published to trades.")
        trade = trades.receive(timeout=PATIENCE)
        assert (trade.data, trade.key) == (b"sold", "k")
    for protocol, topic, payload, reason in [
        ("pulsar", "a://b", "x", "Topic name is not valid"),
        ("mqtt", "a/#", "x", "filters"),
        ("tubemq", "trades", "", "the payload is empty"),
        ("tubemq", "no topic", "x", "does not exist"),
    ]:
        publish(page, protocol, topic, payload)
        said(page, reason)


def test_a_topic_with_a_schema_gets_only_what_its_consumers_can_read(
    page: Page, broker: forebay.Broker
) -> None:
    with blocking.connect(broker.url) as client:
        record = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
        for kind in ("json", "avro"):
            with client.producer(f"with-{kind}", schema=getattr(Schema, kind)(record)):
                pass
        publish(page, "pulsar", "with-avro", '{"n": 1}')
        said(page, "schema of type AVRO")
        publish(page, "pulsar", "with-json", "n")
        said(page, "the payload is not JSON")
        with client.consumer("with-json", "s", schema=Schema.json(record)) as consumer:
            publish(page, "pulsar", "with-json", '{"n": 7}')
            said(page, "Published to with-json: ")
            assert consumer.receive(timeout=PATIENCE).value == {"n": 7}


def test_retained_messages_and_sessions_are_deleted(page: Page, broker: forebay.Broker) -> None:
    with blocking.connect(broker.mqtt_url, client_id="leaves", session_expiry=600) as client:
        client.consumer("x/#", qos=1)
        with client.producer("left/behind", qos=1, retain=True) as producer:
            producer.send(b"\xff\xfe")
    with blocking.connect(broker.mqtt_url) as client, client.producer("x/1", qos=1) as producer:
        producer.send(b"waits")
    session = row(page, "sessions", "leaves")
    expect(session).to_contain_text("disconnected, ends in 10 min")
    expect(session.locator("td").nth(4)).to_have_text("1")
    press(page, "Delete the session leaves")
    confirm(page, "Delete")
    said(page, "The session leaves has been deleted.")
    expect(session).to_have_count(0)
    page.get_by_label("Topic filter").fill("left/#")
    expect(page.locator("#retained tbody tr")).to_have_count(1)
    press(page, "Delete the retained message of left/behind")
    confirm(page, "Delete")
    expect(page.locator("#retained")).to_contain_text("No retained message matches the filter.")
    # A filter that is wrong is told beside its list, and the broker is still ready.
    page.get_by_label("Topic filter").fill("left/#/x")
    expect(page.locator("#retained-count")).to_contain_text("#")
    looked = page.evaluate("state.looks")
    eventually(lambda: page.evaluate("state.looks") > looked + 3)
    expect(page.get_by_text("Ready", exact=True)).to_be_visible()


def test_a_connection_is_ended_and_its_client_comes_back(page: Page, broker: forebay.Broker) -> None:
    with (
        blocking.connect(broker.mqtt_url, client_id="comes-back") as client,
        client.consumer("y", qos=1) as consumer,
    ):
        connected = row(page, "clients", "comes-back")
        expect(connected).to_have_count(1)
        before = connected.get_attribute("data-key")
        press(page, "End the connection of comes-back")
        confirm(page, "End")
        said(page, "The connection of comes-back has ended.")
        expect(page.locator(f"#clients tr[data-key='{before}']")).to_have_count(0)
        expect(connected).to_have_count(1)
        with client.producer("y", qos=1) as producer:
            producer.send(b"still here")
        assert consumer.receive(timeout=PATIENCE).data == b"still here"


HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def test_names_of_clients_are_text(page: Page, broker: forebay.Broker) -> None:
    with (
        blocking.connect(broker.mqtt_url, client_id=HOSTILE) as client,
        client.producer(HOSTILE, retain=True) as producer,
    ):
        producer.send(HOSTILE.encode())
        expect(row(page, "clients", HOSTILE)).to_have_count(1)
        expect(row(page, "sessions", HOSTILE)).to_have_count(1)
        press(page, f"View {HOSTILE}")
        expect(page.get_by_role("dialog").locator("pre")).to_have_text(HOSTILE)
        confirm(page, "Close")
    assert page.locator("img").count() == 0
    assert page.title() == "Forebay broker"


def test_lists_are_filtered(page: Page) -> None:
    page.locator("#topics-filter").fill("DESK")
    expect(page.locator("#topics tbody tr")).to_have_count(1)
    page.locator("#topics-filter").fill("nothing has this name")
    expect(page.locator("#topics")).to_contain_text("No topic or subscription matches.")
    page.locator("#clients-filter").fill("kitchen")
    expect(page.locator("#clients tbody tr")).to_have_count(1)


def test_it_is_used_by_the_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the figures")).to_be_focused()
    button = page.get_by_role("button", name="Skip all messages of billing of orders")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    # What cannot be undone is not a key press away.
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    # Rows that are renewed meanwhile do not take the focus away.
    looked = page.evaluate("state.looks")
    eventually(lambda: page.evaluate("state.looks") > looked + 3)
    expect(button).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(browser: Browser, broker: forebay.Broker, clients: None, scheme: str) -> None:
    """By the rules of axe, contrast among them, with a dialog and without one."""
    with opened(browser, str(broker.http_url), color_scheme=scheme) as page:
        expect(row(page, "clients", "kitchen")).to_be_visible()
        for shown in (None, "Publish…"):
            if shown:
                press(page, shown)
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("width", [320, 768])
def test_narrow_screens_scroll_tables_and_not_the_page(
    browser: Browser, broker: forebay.Broker, clients: None, width: int
) -> None:
    with opened(browser, str(broker.http_url), viewport={"width": width, "height": 700}) as page:
        expect(row(page, "clients", "kitchen")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        press(page, "Look into billing of orders")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def refused(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def token(key: Path, user: str, folder: Path) -> str:
    path = folder / f"{user}.token"
    words = ("token", "create", "--subject", user, "--key", f"file:{key}", "--output", str(path))
    assert cli.main(words) == 0
    return path.read_text().strip()


def test_with_tokens_and_permissions_it_is_for_operators(browser: Browser, tmp_path: Path) -> None:
    key, rules = tmp_path / "key", tmp_path / "acl"
    key.write_bytes(b"0123456789abcdef0123456789abcdef")
    key.chmod(0o600)
    rules.write_text("user ops\nsuperuser\nuser till\ntopic readwrite persistent://public/default/+\n")
    with forebay.Broker(http_port=0, mqtt_port=0, token_key=key.read_bytes(), acl_file=str(rules)) as broker:
        url = str(broker.http_url)
        assert refused(f"{url}/forebay/v1/clients") == 401
        till = token(key, "till", tmp_path)
        for path in ("clients", "tubemq/peek?topic=t", "tubemq/groups/reset"):
            assert refused(f"{url}/forebay/v1/{path}", Authorization=f"Bearer {till}") == 403
        with opened(browser, url) as page:
            field = page.get_by_label("Token, as forebay token create prints it")
            expect(field).to_be_visible()
            field.fill("wrong")
            field.press("Enter")
            expect(page.get_by_role("dialog")).to_contain_text("The token was refused")
            field.fill(till)
            confirm(page, "Use it")
            expect(page.get_by_role("status")).to_contain_text("Not allowed")
            press(page, "Token…")
            field.fill(token(key, "ops", tmp_path))
            confirm(page, "Use it")
            expect(page.get_by_text("Ready", exact=True)).to_be_visible()
            with blocking.connect(broker.url, token=till) as client, client.producer("t") as producer:
                producer.send(b"x")
                expect(row(page, "clients", "till")).to_contain_text("pulsar")
            # It is known until the tab is closed, and written nowhere.
            page.reload()
            expect(page.get_by_text("Ready", exact=True)).to_be_visible()
            assert page.evaluate("localStorage.length") == 0
            assert page.context.cookies() == []


def test_a_broker_that_is_gone_is_told_and_its_return_too(browser: Browser) -> None:
    port = free_port()
    with contextlib.ExitStack() as first:
        broker = first.enter_context(forebay.Broker(http_port=port))
        window = browser.new_context()
        page = window.new_page()
        page.goto(str(broker.http_url))
        expect(page.get_by_text("Ready", exact=True)).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("No answer since")
    with forebay.Broker(http_port=port):
        expect(page.get_by_text("Ready", exact=True)).to_be_visible()
        window.close()
