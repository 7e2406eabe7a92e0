"""The master's web service: one script of calls on the real server and on the embedded broker."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from support.tubemq.harness import EmbeddedTubeMq, RealTubeMq, TubeMqService
from support.waiting import PATIENCE

pytestmark = [pytest.mark.timeout(300), pytest.mark.real_tubemq]

Call = tuple[str, str, dict[str, Any]]

ONE = {"topicName": "web_one", "brokerId": 1}
TWO = {"topicName": "web_two", "brokerId": 1}
GROUP = {"topicName": "web_one", "groupName": "web_group"}
MADE = {"createUser": "ann", "createDate": "20200102030405"}
CHANGED = {"modifyUser": "bob", "modifyDate": "20210102030405"}
#: What `tubectl topic` states unless it is told otherwise.
TUNING = {
    "unflushThreshold": 1000,
    "unflushInterval": 10000,
    "unflushDataHold": 0,
    "memCacheMsgCntInK": 10,
    "memCacheMsgSizeInMB": 2,
    "memCacheFlushIntvl": 20000,
    "numTopicStores": 1,
}
CREATED = {"maxMsgSizeInMB": 1, "acceptPublish": "true", "acceptSubscribe": "true"} | TUNING
BATCH = json.dumps([TWO | {"numPartitions": 2}, TWO | {"numPartitions": 3}])

SCRIPT: list[Call] = [
    # tubectl topic create, list, update and delete
    ("create", "admin_add_new_topic_record", ONE | MADE | CREATED | {"numPartitions": 3}),
    ("create again", "admin_add_new_topic_record", ONE | MADE | CREATED),
    ("list", "admin_query_topic_info", ONE | TUNING | {"topicStatusId": 0, "numPartitions": 3}),
    ("list without conditions", "admin_query_topic_info", {"topicName": "web_one"}),
    ("list by creator", "admin_query_topic_info", {"topicName": "web_one", "createUser": "bob"}),
    ("list by size", "admin_query_topic_info", {"topicName": "web_one", "numPartitions": 4}),
    ("list one that is missing", "admin_query_topic_info", {"topicName": "web_none"}),
    ("update", "admin_modify_topic_info", ONE | CHANGED | CREATED | {"numPartitions": 4}),
    ("reload", "admin_reload_broker_configure", {"brokerId": 1} | CHANGED),
    ("list what was updated", "admin_query_topic_info", {"topicName": "web_one"}),
    ("update nothing", "admin_modify_topic_info", ONE | CHANGED | {"numPartitions": 4}),
    ("shrink", "admin_modify_topic_info", ONE | CHANGED | {"numPartitions": 2}),
    ("update one that is missing", "admin_modify_topic_info", ONE | CHANGED | {"topicName": "web_none"}),
    ("update at another broker", "admin_modify_topic_info", ONE | CHANGED | {"brokerId": 2}),
    # tubectl group create, list and delete
    ("restrict", "admin_set_topic_authorize_control", {"topicName": "web_one", "isEnable": "true"} | MADE),
    ("allow", "admin_add_authorized_consumergroup_info", GROUP | MADE),
    ("allow again", "admin_add_authorized_consumergroup_info", GROUP | MADE),
    (
        "allow for a missing topic",
        "admin_add_authorized_consumergroup_info",
        GROUP | MADE | {"topicName": "no"},
    ),
    ("list allowed groups", "admin_query_allowed_consumer_group_info", GROUP),
    ("list restrictions", "admin_query_topic_authorize_control", {"topicName": "web_one"}),
    ("list a restricted topic", "admin_query_topic_info", {"topicName": "web_one"}),
    ("disallow", "admin_delete_allowed_consumer_group_info", GROUP | CHANGED),
    ("list allowed groups again", "admin_query_allowed_consumer_group_info", GROUP),
    ("list forbidden groups", "admin_query_black_consumer_group_info", GROUP),
    ("open", "admin_delete_topic_authorize_control", {"topicName": "web_one"} | CHANGED),
    ("forbid", "admin_add_black_consumergroup_info", GROUP | MADE | {"groupName": "web_other"}),
    ("allow what was forbidden", "admin_delete_black_consumergroup_info", GROUP | CHANGED),
    # tubectl topic delete, soft, redo and hard
    ("delete while it is in use", "admin_delete_topic_info", ONE | CHANGED),
    ("remove while it is in use", "admin_remove_topic_info", ONE | CHANGED),
    (
        "close",
        "admin_modify_topic_info",
        ONE | CHANGED | {"acceptPublish": "false", "acceptSubscribe": "false"},
    ),
    ("remove before it is deleted", "admin_remove_topic_info", ONE | CHANGED),
    ("delete", "admin_delete_topic_info", ONE | CHANGED),
    ("delete again", "admin_delete_topic_info", ONE | CHANGED),
    ("list what is deleted", "admin_query_topic_info", {"topicName": "web_one", "topicStatusId": 1}),
    ("update what is deleted", "admin_modify_topic_info", ONE | CHANGED | {"acceptPublish": "true"}),
    ("create what is deleted", "admin_add_new_topic_record", ONE | MADE),
    ("redo", "admin_redo_deleted_topic_info", ONE | CHANGED),
    ("list what was redone", "admin_query_topic_info", {"topicName": "web_one"}),
    ("delete what was redone", "admin_delete_topic_info", ONE | CHANGED),
    ("delete one that is missing", "admin_delete_topic_info", ONE | CHANGED | {"topicName": "web_none"}),
    ("remove", "admin_remove_topic_info", ONE | CHANGED),
    # batches
    ("create a batch", "admin_bath_add_new_topic_record", {"topicJsonSet": BATCH} | MADE),
    ("list the batch", "admin_query_topic_info", {"topicName": "web_two"}),
    ("a batch of nothing", "admin_bath_add_new_topic_record", {"topicJsonSet": "[]"} | MADE),
    (
        "a batch at another broker",
        "admin_bath_add_new_topic_record",
        {"topicJsonSet": json.dumps([TWO | {"brokerId": 2}])} | MADE,
    ),
    # groups and the broker
    ("groups", "admin_query_sub_info", {"groupName": "web_group"}),
    ("a group", "admin_query_consume_group_detail", {"consumeGroup": "web_group"}),
    ("no group", "admin_query_consume_group_detail", {}),
    ("broker", "admin_query_broker_run_status", {"brokerId": 1}),
    ("another broker", "admin_query_broker_run_status", {"brokerId": 2}),
    ("its settings", "admin_query_broker_configure", {"brokerId": 1}),
    ("reload another broker", "admin_reload_broker_configure", {"brokerId": 2} | CHANGED),
    ("masters", "admin_query_master_group_info", {}),
    # what is wrong with a call
    ("no user", "admin_add_new_topic_record", ONE),
    ("no topic", "admin_add_new_topic_record", {"brokerId": 1} | MADE),
    ("no broker", "admin_add_new_topic_record", {"topicName": "web_three"} | MADE),
    ("a wrong name", "admin_add_new_topic_record", ONE | MADE | {"topicName": "web-three"}),
    ("a long name", "admin_add_new_topic_record", ONE | MADE | {"topicName": "w" * 65}),
    ("a wrong number", "admin_add_new_topic_record", ONE | MADE | {"numPartitions": "two"}),
    ("a small number", "admin_add_new_topic_record", ONE | MADE | {"numPartitions": 0}),
    ("a large number", "admin_add_new_topic_record", ONE | MADE | {"memCacheMsgSizeInMB": 4096}),
    ("a wrong date", "admin_add_new_topic_record", ONE | MADE | {"createDate": "2020"}),
    ("a wrong policy", "admin_add_new_topic_record", ONE | MADE | {"deletePolicy": "compact,1h"}),
    ("a wrong status", "admin_query_topic_info", {"topicStatusId": 7}),
    ("a wrong group", "admin_query_sub_info", {"groupName": "1"}),
    ("no code", "admin_add_new_topic_record", ONE | MADE | {"confModAuthToken": ""}),
    ("an unknown method", "admin_make_coffee", {}),
]

#: Members of answers that tell of addresses, of what runs later, or of more than the embedded broker has.
APART = {
    "brokerIp",
    "brokerPort",
    "hostName",
    "port",
    "name",
    "modifyDate",
    "runInfo",
    "totalRunNumPartCount",
    "isSrvAcceptPublish",
    "isSrvAcceptSubscribe",
    "isConfChanged",
    "isConfLoaded",
    "subStatus",
}
#: Answers that differ, and why.
DIFFERENT = {
    "allow again": "the real server reports a failure with the code of success",
    "list restrictions": "the real server notes itself as the creator of each",
    "list what was redone": "the real server answers that it is done, and leaves the topic deleted",
    "a batch at another broker": "the real server fails without an answer",
    "its settings": "the real broker makes topics of one partition, as its script has it",
    "masters": "the group of masters has another name",
}


def simple(value: Any) -> Any:
    """An answer without what the two servers cannot share."""
    if isinstance(value, dict):
        return {name: simple(member) for name, member in value.items() if name not in APART}
    if isinstance(value, list):
        return [simple(item) for item in value]
    return value


def within(ours: Any, real: Any) -> bool:
    """Whether all that the embedded broker answers is what the real server answers, which may say more."""
    if isinstance(ours, dict) and isinstance(real, dict):
        return all(name in real and within(member, real[name]) for name, member in ours.items())
    if isinstance(ours, list) and isinstance(real, list):
        return len(ours) == len(real) and all(map(within, ours, real))
    return ours == real


def answer(service: TubeMqService, method: str, words: dict[str, Any]) -> Any:
    try:
        return service.administer(method, **words)
    except json.JSONDecodeError as error:
        return error.doc


def play(service: TubeMqService) -> dict[str, Any]:
    answers = {name: answer(service, method, words) for name, method, words in SCRIPT}
    # The real broker removes what it has of the topic before the master forgets it.
    deadline = time.monotonic() + PATIENCE
    while service.administer("admin_query_topic_info", topicName="web_one")["count"]:
        assert time.monotonic() < deadline, "the topic is not removed"
        time.sleep(0.1)
    return {name: simple(found) for name, found in answers.items()}


def test_the_embedded_broker_answers_as_the_real_server_does(
    embedded_tubemq: EmbeddedTubeMq, real_tubemq: RealTubeMq
) -> None:
    ours, real = play(embedded_tubemq), play(real_tubemq)
    differ = {name: (found, real[name]) for name, found in ours.items() if not within(found, real[name])}
    unexpected = {name: both for name, both in differ.items() if name not in DIFFERENT}
    assert not unexpected, json.dumps(unexpected, indent=1)
    assert set(differ) == set(DIFFERENT), "what is named here is the same by now"
