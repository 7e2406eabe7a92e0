"""Time limits of the clients of these tests, and tests for which one broker is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.limits import patient_clients

patient = patient_clients("CONNECT", "OPERATION", "SEND")

FOLDER = Path(__file__).parent
CLIENT_ALONE = {
    "test_blocking": "there_and_back seek_and_unsubscribe refused_and_wanted_again",
    "test_frame_columns": "objects_are_read_as_a_column_of_structs",
    "test_frame_schemas": """
        rows_are_read_as_objects_of_the_schema the_columns_define_the_schema_that_the_topic_gets
        rows_do_not_get_to_a_topic_with_a_schema_without_one_by_accident
        a_schema_of_arrow_stands_for_dictionaries
    """,
    "test_frames": "a_column_of_bytes_there_and_back",
    "test_frames_at_once": """
        a_topic_is_a_table partitions_follow_each_other several_topics_and_a_pattern from_one_id_to_another
        ids_of_partitions from_one_time_to_another messages_in_chunks large_and_compressed_messages
        a_topic_that_does_not_exist_is_not_created what_is_sent_meanwhile_is_not_read rows_with_a_schema
        messages_that_were_deleted_are_an_error lost_connections_lose_no_rows a_table_there_and_back
        a_part_of_a_message_is_no_message_at_a_time
    """,
    "test_frames_decoded": """
        records_are_structs all_versions_are_values_of_the_newest_schema
        pairs_are_structs_of_a_key_and_a_value
    """,
    "test_interceptors": """
        a_chain_changes_messages_and_learns_their_ids a_consumer_tells_what_becomes_of_messages
        a_failed_send_is_told an_interceptor_that_raises_loses_no_message
    """,
    "test_listener": """
        each_message_is_handled_and_acknowledged messages_of_a_key_are_in_order_and_keys_side_by_side
        a_message_whose_callback_raises_comes_again_and_the_consumer_lives partitions_that_are_added_are_heard
        stopping_waits_for_callbacks_and_hands_the_rest_back threads_handle_and_acknowledge
        what_is_handed_back_comes_before_what_was_fetched_behind_it a_listener_of_a_reader
        a_callback_that_does_not_end_is_cancelled_and_its_message_handed_back
        with_manual_acknowledgement_the_callback_decides receipts_of_acknowledgements_are_waited_for
    """,
    "test_revocation": """
        what_is_revoked_comes_once what_is_dead_comes_as_a_dead_letter_only
        a_topic_that_grows_loses_and_repeats_nothing
    """,
    "test_pydantic_schemas": """
        models_are_read_as_they_were_written a_model_that_does_not_fit_is_refused_and_nothing_is_lost
    """,
}
"""Files about what the client does whatever the broker is, with their tests that run with a real Pulsar."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    told = [item for item in items if is_told_already(item)]
    if told:
        config.hook.pytest_deselected(items=told)
        items[:] = [item for item in items if not is_told_already(item)]


def is_told_already(item: pytest.Item) -> bool:
    """Whether the embedded broker tells the same."""
    broker = getattr(getattr(item, "callspec", None), "params", {}).get("service")
    names = CLIENT_ALONE.get(item.path.stem) if item.path.parent == FOLDER else None
    if broker != "real_pulsar" or names is None:
        return False
    return item.name.partition("[")[0].removeprefix("test_") not in names.split()
