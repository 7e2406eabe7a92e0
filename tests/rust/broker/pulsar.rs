//! The embedded Pulsar broker as commands and answers. No socket, no disk, no clock: its state machine is driven by hand.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use penstock::broker::auth::TokenKey;
use penstock::broker::log::{Entry, Source, unreadable};
use penstock::broker::protocol::Protocol as _;
use penstock::broker::pulsar::Broker;
use penstock::broker::store::{Found, StoredTopic};
use penstock::pulsar::command::Command;
use penstock::pulsar::frame::{Decoder, Frame, Payload};
use penstock::pulsar::{hot, pb};
use penstock::sqlite::{Outcome, Report};
use penstock::transmit::Transmit;

use crate::support::pulsar::*;

#[test]
fn anything_before_connect_ends_the_connection() {
    let mut bench = Bench::new();
    let peer = bench.broker.connect(bench.now, "x");
    assert!(bench.tell(peer, Command::Ping).is_err());
    let peer = bench.connect();
    assert!(bench.tell(peer, Command::Connect(connect())).is_err(), "a second CONNECT");
    let peer = bench.connect();
    assert!(bench.tell(peer, Command::Unknown(99)).is_err());
    let peer = bench.connect();
    assert!(bench.tell(peer, Command::Flow(hot::Flow { consumer_id: 1, permits: 0 })).is_err());
    let peer = bench.broker.connect(bench.now, "x");
    let mut huge = BytesMut::from(&(100_u32 << 10).to_be_bytes()[..]);
    assert!(bench.broker.handle_input(bench.now, peer, &mut huge).is_err(), "strangers get 64 KiB");
}

#[test]
fn a_silent_peer_is_asked_once_and_then_left() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    assert_eq!(bench.ask(peer, Command::Ping), Command::Pong);
    let mut pings = 0;
    let ended = (0..5).any(|_| {
        bench.now = bench.broker.session_timeout(peer).unwrap();
        let ended = bench.broker.handle_session_timeout(bench.now, peer).is_err();
        pings += bench.commands(peer).iter().filter(|c| **c == Command::Ping).count();
        ended
    });
    assert!(ended && pings == 1, "{pings}");
    let stranger = bench.broker.connect(bench.now, "x");
    bench.now += Duration::from_secs(10);
    assert!(bench.broker.handle_session_timeout(bench.now, stranger).is_err(), "no CONNECT within 10 s");
}

#[test]
fn a_receipt_comes_after_the_commit_and_so_does_the_message() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.flow(peer, 1, 10);
    bench.held = true;
    bench.send(peer, 1, 0, |_| {});
    assert_eq!(bench.commands(peer), []);
    bench.held = false;
    bench.settle();
    let heard = bench.commands(peer);
    assert_eq!(receipt_of(&heard[0]), (0, 7, 0));
    assert!(matches!(&heard[1], Command::Message(m) if m.message_id.entry_id == 0));
}

#[test]
fn a_store_that_fails_answers_nothing_with_success_any_more() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.flow(peer, 1, 10);
    bench.held = true;
    bench.send(peer, 1, 0, |_| {});
    bench.settle();
    bench.fail();
    assert_eq!(
        error_of(&bench.one(peer)),
        pb::ServerError::PersistenceError,
        "and the message is not given out"
    );
    bench.send(peer, 1, 1, |_| {});
    assert_eq!(error_of(&bench.one(peer)), pb::ServerError::PersistenceError);
    let answer = bench.produce(peer, 2, |_| {});
    assert_eq!(error_of(&answer), pb::ServerError::PersistenceError);
    assert!(bench.broker.stats().failure.is_some());
}

#[test]
fn a_wrong_checksum_is_refused_and_the_same_sequence_id_may_come_again() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    let mut metadata = BytesMut::new();
    hot::encode_metadata(
        &pb::MessageMetadata { producer_name: "p".into(), ..Default::default() },
        &mut metadata,
    );
    let good = Payload::build(&metadata, b"x");
    let bad = Payload { checksum: good.checksum.map(|c| c ^ 1), ..good.clone() };
    let send = Command::Send(hot::Send { producer_id: 1, sequence_id: 0, ..Default::default() });
    bench.frame(peer, &Frame { command: send.clone(), payload: Some(bad) }).unwrap();
    assert_eq!(error_of(&bench.one(peer)), pb::ServerError::ChecksumError);
    bench.frame(peer, &Frame { command: send, payload: Some(good.clone()) }).unwrap();
    assert_eq!(receipt_of(&bench.one(peer)), (0, 7, 0));
    // Messages are delivered unchanged, bit by bit.
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.flow(peer, 1, 1);
    let frames = bench.hear(peer);
    assert_eq!(frames.last().unwrap().payload, Some(good));
}

#[test]
fn a_batch_may_not_claim_more_messages_than_can_be_kept_apart() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.send(peer, 1, 0, |m| m.num_messages_in_batch = Some(i32::MAX));
    assert_eq!(error_of(&bench.one(peer)), pb::ServerError::NotAllowedError);
    bench.send(peer, 1, 1, |m| m.num_messages_in_batch = Some(1 << 20));
    assert_eq!(receipt_of(&bench.one(peer)), (1, 7, 0), "the next one is the first entry");
}

#[test]
fn a_change_that_the_store_refuses_is_an_error_for_its_client_only() {
    let mut bench = Bench::new();
    let (peer, other) = (bench.connect(), bench.connect());
    bench.producer(peer, 1);
    bench.fill(peer, 1, 0..2);
    bench.subscribe(peer, 1, SHARED);
    bench.held = true;
    bench.ack(peer, 1, 0, vec![id(0)], Some(55));
    bench.settle();
    let error = penstock::error::Error::new(penstock::error::ErrorKind::Persistence, "too big");
    let jobs = std::mem::take(&mut bench.ops);
    bench.broker.handle_report(bench.now, Report { jobs, outcome: Outcome::Rejected(error) });
    bench.held = false;
    assert_eq!(error_of(&bench.one(peer)), pb::ServerError::PersistenceError);
    let answer = bench.produce(other, 1, |_| {});
    assert!(matches!(answer, Command::ProducerSuccess(_)), "{answer:?}");
    bench.fill(other, 1, 0..1);
    assert!(bench.broker.stats().failure.is_none());
}

#[test]
fn a_sequence_id_that_was_there_gets_a_receipt_without_position() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.produce(peer, 1, |p| p.producer_name = Some("till".into()));
    bench.send(peer, 1, 5, |_| {});
    bench.send(peer, 1, 5, |_| {});
    bench.send(peer, 1, 4, |_| {});
    bench.send(peer, 1, 6, |_| {});
    let receipts: Vec<_> = bench.commands(peer).iter().map(receipt_of).collect();
    assert_eq!(receipts, [(5, 7, 0), (5, u64::MAX, u64::MAX), (4, u64::MAX, u64::MAX), (6, 7, 1)]);
    bench.broker.disconnect(bench.now, peer);
    let peer = bench.connect();
    let answer = bench.produce(peer, 1, |p| p.producer_name = Some("till".into()));
    assert!(matches!(answer, Command::ProducerSuccess(s) if s.last_sequence_id == Some(6)));
}

#[test]
fn a_step_of_the_clock_forgets_no_sequence_id_and_a_long_silence_does() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.produce(peer, 1, |p| p.producer_name = Some("till".into()));
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.send(peer, 1, 5, |_| {});
    bench.ack(peer, 1, 1, vec![id(0)], None);
    bench.commands(peer);
    for wall_ms in [WALL_MS + 8 * 24 * 3_600_000, 0] {
        let clock = bench.settings.clock.set(bench.now, wall_ms);
        bench.broker.set_clock(clock);
        bench.pass(Duration::from_secs(1));
        bench.commands(peer);
        bench.send(peer, 1, 5, |_| {});
        assert_eq!(receipt_of(&bench.one(peer)), (5, u64::MAX, u64::MAX), "it is known");
        assert_eq!(bench.broker.topic_stats(TOPIC).unwrap().entries, 1, "and a consumer may seek back");
    }
    bench.pass(Duration::from_secs(7 * 3600));
    bench.commands(peer);
    bench.send(peer, 1, 5, |_| {});
    assert_eq!(receipt_of(&bench.one(peer)), (5, 7, 1));
}

#[test]
fn chunks_of_one_message_share_a_sequence_id_and_are_no_duplicates() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    for again in 0..2 {
        for chunk in 0..3 {
            bench.send(peer, 1, 9, |m| {
                m.num_chunks_from_msg = Some(3);
                m.chunk_id = Some(chunk);
            });
        }
        let stored = bench.commands(peer).iter().filter(|c| receipt_of(c).2 != u64::MAX).count();
        assert_eq!(stored, if again == 0 { 3 } else { 0 });
    }
}

#[test]
fn permits_are_charged_by_message_and_may_end_below_zero() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    for sequence_id in [0, 10, 20] {
        bench.send(peer, 1, sequence_id, |m| m.num_messages_in_batch = Some(10));
    }
    bench.hear(peer);
    let mut deliver = |permits| {
        bench.flow(peer, 1, permits);
        bench.entries(peer)
    };
    assert_eq!(deliver(1), [0]);
    assert!(deliver(1).is_empty());
    assert!(deliver(8).is_empty());
    assert_eq!(deliver(1), [1], "the sum is above zero again");
}

#[test]
fn messages_acknowledged_before_are_masked_and_not_charged() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, SHARED);
    for sequence_id in [0, 10] {
        bench.send(peer, 1, sequence_id, |m| m.num_messages_in_batch = Some(10));
    }
    bench.flow(peer, 1, 1);
    bench.hear(peer);
    let half = pb::MessageIdData { ack_set: vec![0b11_1110_0000], ..id(0) };
    bench.ack(peer, 1, 0, vec![half], Some(77));
    assert!(
        matches!(bench.one(peer), Command::AckResponse(r) if r.request_id == Some(77) && r.error.is_none())
    );
    bench
        .tell(
            peer,
            Command::CloseConsumer(pb::CommandCloseConsumer {
                consumer_id: 1,
                request_id: 1,
                ..Default::default()
            }),
        )
        .unwrap();
    bench.hear(peer);
    bench.subscribe(peer, 2, SHARED);
    bench.flow(peer, 2, 5);
    let first = bench.deliveries(peer);
    assert_eq!(
        (first.len(), &first[0].ack_set),
        (1, &vec![0b11_1110_0000]),
        "five were left and five were permitted"
    );
    bench.flow(peer, 2, 1);
    assert_eq!(bench.entries(peer), [1]);
}

#[test]
fn a_second_exclusive_consumer_is_refused_and_types_do_not_mix() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.subscribe(peer, 1, EXCLUSIVE);
    for kind in [EXCLUSIVE, SHARED] {
        let answer = bench.subscription(peer, 2, kind, |_| {});
        assert_eq!(error_of(&answer[0]), pb::ServerError::ConsumerBusy);
    }
    let close = pb::CommandCloseConsumer { consumer_id: 1, request_id: 1, ..Default::default() };
    bench.ask(peer, Command::CloseConsumer(close));
    bench.subscribe(peer, 2, SHARED);
}

#[test]
fn a_cumulative_acknowledgement_takes_all_before_it() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.fill(peer, 1, 0..5);
    bench.flow(peer, 1, 100);
    assert_eq!(bench.entries(peer), [0, 1, 2, 3, 4]);
    bench.ack(peer, 1, 1, vec![id(2)], None);
    // The position before the first entry is -1, which as unsigned is the largest: nothing is acknowledged.
    bench.ack(peer, 1, 1, vec![id(u64::MAX)], None);
    let redeliver = pb::CommandRedeliverUnacknowledgedMessages { consumer_id: 1, ..Default::default() };
    bench.tell(peer, Command::RedeliverUnacknowledgedMessages(redeliver)).unwrap();
    assert_eq!(bench.entries(peer), [3, 4]);
}

#[test]
fn shared_consumers_take_turns_and_what_one_held_is_for_the_others() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.producer(a, 1);
    bench.subscribe(a, 1, SHARED);
    bench.subscribe(b, 1, SHARED);
    bench.flow(a, 1, 100);
    bench.flow(b, 1, 100);
    for sequence_id in 0..6 {
        bench.send(a, 1, sequence_id, |_| {});
    }
    assert_eq!(bench.entries(a), [0, 2, 4]);
    assert_eq!(bench.entries(b), [1, 3, 5]);
    bench.ack_entry(a, 1, 2);
    bench.broker.disconnect(bench.now, a);
    assert_eq!(bench.entries(b), [0, 4]);
}

#[test]
fn the_chunks_of_a_message_go_to_one_consumer_of_a_shared_subscription() {
    let mut bench = Bench::new();
    let sender = bench.connect();
    bench.producer(sender, 1);
    let (one, two) = (bench.connect(), bench.connect());
    bench.subscribe(one, 1, SHARED);
    bench.subscribe(two, 1, SHARED);
    // Messages a and b, of four chunks each, alternate; whole ones come between.
    for chunk in 0..4 {
        for (offset, uuid) in ["a", "b"].into_iter().enumerate() {
            bench.send(sender, 1, 2 * chunk + offset as u64, |m| {
                m.uuid = Some(uuid.into());
                m.num_chunks_from_msg = Some(4);
                m.chunk_id = Some(chunk as i32);
            });
        }
    }
    bench.commands(sender);
    bench.flow(one, 1, 2);
    assert_eq!(bench.entries(one), [0, 1], "the first chunks of both");
    bench.flow(two, 1, 10);
    assert_eq!(bench.entries(two), [] as [u64; 0], "the rest waits for permits of the first consumer");
    bench.send(sender, 1, 100, |_| {});
    assert_eq!(bench.entries(two), [8], "others do not wait");
    bench.flow(one, 1, 3);
    assert_eq!(bench.entries(one), [2, 3, 4], "in order");
    // What a consumer held and what waited for it goes to another one, complete and in order.
    bench.broker.disconnect(bench.now, one);
    assert_eq!(bench.entries(two), [0, 1, 2, 3, 4, 5, 6, 7]);
    let three = bench.connect();
    bench.subscribe(three, 1, SHARED);
    bench.flow(three, 1, 10);
    bench
        .tell(
            two,
            Command::RedeliverUnacknowledgedMessages(pb::CommandRedeliverUnacknowledgedMessages {
                consumer_id: 1,
                message_ids: [0, 2, 4, 6].map(id).to_vec(),
                ..Default::default()
            }),
        )
        .unwrap();
    let (again, also) = (bench.entries(three), bench.entries(two));
    assert!(again == [0, 2, 4, 6] && also.is_empty() || also == [0, 2, 4, 6] && again.is_empty());
}

#[test]
fn a_nacked_entry_comes_again_with_its_count() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, SHARED);
    bench.fill(peer, 1, 0..3);
    bench.flow(peer, 1, 100);
    bench.hear(peer);
    for expected in 1..3 {
        let redeliver = pb::CommandRedeliverUnacknowledgedMessages {
            consumer_id: 1,
            message_ids: vec![id(1)],
            ..Default::default()
        };
        bench.tell(peer, Command::RedeliverUnacknowledgedMessages(redeliver)).unwrap();
        let again = bench.deliveries(peer);
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].message_id.entry_id, again[0].redelivery_count), (1, Some(expected)));
    }
}

#[test]
fn a_delayed_entry_waits_for_its_time_and_lets_others_pass() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, SHARED);
    bench.flow(peer, 1, 100);
    let at = bench.wall_ms() as i64 + 5_000;
    bench.send(peer, 1, 0, |m| m.deliver_at_time = Some(at));
    bench.send(peer, 1, 1, |_| {});
    assert_eq!(bench.entries(peer), [1]);
    bench.pass(Duration::from_millis(4_999));
    assert!(bench.entries(peer).is_empty());
    assert!(bench.broker.poll_timeout().unwrap() <= bench.now + Duration::from_millis(1));
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.entries(peer), [0]);
}

#[test]
fn failover_tells_who_is_active_and_moves_what_was_not_acknowledged() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.producer(a, 1);
    let heard = bench.subscription(a, 1, FAILOVER, |_| {});
    assert!(
        matches!(&heard[..], [Command::Success(_), Command::ActiveConsumerChange(c)] if c.is_active == Some(true))
    );
    bench.subscribe(b, 1, FAILOVER);
    bench.flow(a, 1, 100);
    bench.flow(b, 1, 100);
    bench.fill(a, 1, 0..0);
    for sequence_id in 0..3 {
        bench.send(a, 1, sequence_id, |_| {});
    }
    assert_eq!((bench.entries(a), bench.entries(b)), (vec![0, 1, 2], vec![]));
    bench.ack_entry(a, 1, 0);
    bench.broker.disconnect(bench.now, a);
    let heard = bench.commands(b);
    assert!(matches!(&heard[0], Command::ActiveConsumerChange(c) if c.is_active == Some(true)), "{heard:?}");
    assert_eq!(heard.len(), 3);
}

#[test]
fn a_key_stays_with_its_consumer_until_what_it_holds_is_acknowledged() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.producer(a, 1);
    bench.subscribe(a, 1, KEY_SHARED);
    bench.flow(a, 1, 1000);
    let mut sequence_id = 0;
    let mut send = |bench: &mut Bench, key: u32| {
        bench.send(a, 1, sequence_id, |m| m.partition_key = Some(key.to_string()));
        sequence_id += 1;
    };
    for key in 0..20 {
        send(&mut bench, key);
    }
    assert_eq!(bench.entries(a).len(), 20);
    bench.subscribe(b, 1, KEY_SHARED);
    bench.flow(b, 1, 1000);
    for key in 0..20 {
        send(&mut bench, key);
    }
    let kept = bench.entries(a);
    assert!(bench.entries(b).is_empty(), "the keys that moved have something unacknowledged before them");
    assert!(!kept.is_empty() && kept.len() < 20);
    for entry in 0..20 {
        bench.ack_entry(a, 1, entry);
    }
    let moved = bench.entries(b);
    assert_eq!(kept.len() + moved.len(), 20);
    assert!(moved.is_sorted());
}

#[test]
fn sticky_ranges_must_not_overlap() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let range = |start, end| {
        move |s: &mut pb::CommandSubscribe| {
            s.key_shared_meta = Some(pb::KeySharedMeta {
                key_shared_mode: pb::KeySharedMode::Sticky as i32,
                hash_ranges: vec![pb::IntRange { start, end }],
                ..Default::default()
            });
        }
    };
    assert!(matches!(bench.subscription(peer, 1, KEY_SHARED, range(0, 100))[0], Command::Success(_)));
    let answer = bench.subscription(peer, 2, KEY_SHARED, range(100, 200));
    assert_eq!(error_of(&answer[0]), pb::ServerError::ConsumerAssignError);
    assert!(matches!(bench.subscription(peer, 3, KEY_SHARED, range(101, 200))[0], Command::Success(_)));
    // Nor do consumers join that would split a range, or choose one of a subscription that splits them by itself.
    let answer = bench.subscription(peer, 4, KEY_SHARED, |_| {});
    assert_eq!(error_of(&answer[0]), pb::ServerError::ConsumerBusy);
    let auto = |s: &mut pb::CommandSubscribe| s.subscription = "auto".into();
    assert!(matches!(bench.subscription(peer, 5, KEY_SHARED, auto)[0], Command::Success(_)));
    let answer = bench.subscription(peer, 6, KEY_SHARED, |s| {
        range(0, 100)(s);
        s.subscription = "auto".into();
    });
    assert_eq!(error_of(&answer[0]), pb::ServerError::ConsumerBusy);
}

#[test]
fn a_seek_sends_the_consumers_away_and_then_answers() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.fill(peer, 1, 0..5);
    bench.flow(peer, 1, 100);
    bench.hear(peer);
    bench.ack(peer, 1, 1, vec![id(4)], None);
    let time = bench.wall_ms();
    bench.pass(Duration::from_secs(1));
    bench.fill(peer, 1, 5..6);
    bench.hear(peer);
    for (target, time, expected) in [
        (Some(id(3)), None, vec![3, 4, 5]),
        (
            Some(pb::MessageIdData { ledger_id: u64::MAX, entry_id: u64::MAX, ..id(0) }),
            None,
            vec![0, 1, 2, 3, 4, 5],
        ),
        (
            Some(pb::MessageIdData { ledger_id: i64::MAX as u64, entry_id: i64::MAX as u64, ..id(0) }),
            None,
            vec![],
        ),
        (None, Some(time + 1), vec![5]),
        (None, Some(time), vec![0, 1, 2, 3, 4, 5]),
    ] {
        let heard = bench.seek(peer, 1, target, time);
        assert!(
            matches!(&heard[..], [Command::CloseConsumer(c), Command::Success(_)] if c.request_id == u64::MAX),
            "{heard:?}"
        );
        bench.subscribe(peer, 1, EXCLUSIVE);
        bench.flow(peer, 1, 100);
        assert_eq!(bench.entries(peer), expected);
    }
    let answer = bench.seek(peer, 1, None, None);
    assert_eq!(error_of(&answer[0]), pb::ServerError::MetadataError);
}

#[test]
fn a_reader_leaves_nothing_behind_but_survives_its_seek() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.fill(peer, 1, 0..4);
    let reader = |s: &mut pb::CommandSubscribe| {
        s.durable = Some(false);
        s.start_message_id = Some(id(2));
    };
    bench.subscription(peer, 1, EXCLUSIVE, reader);
    bench.flow(peer, 1, 100);
    assert_eq!(bench.entries(peer), [2, 3], "the entry itself is given; the client drops it");
    bench.seek(peer, 1, Some(id(1)), None);
    bench.subscription(peer, 1, EXCLUSIVE, reader);
    bench.flow(peer, 1, 100);
    assert_eq!(bench.entries(peer), [1, 2, 3]);
    bench.broker.disconnect(bench.now, peer);
    assert_eq!(bench.broker.topic_stats(TOPIC).unwrap().subscriptions, []);
}

#[test]
fn unsubscribing_deletes_the_subscription_unless_others_hold_it() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.subscribe(peer, 1, SHARED);
    bench.subscribe(peer, 2, SHARED);
    let unsubscribe = |consumer_id| {
        Command::Unsubscribe(pb::CommandUnsubscribe { consumer_id, request_id: 1, force: None })
    };
    assert_eq!(error_of(&bench.ask(peer, unsubscribe(1))), pb::ServerError::MetadataError);
    bench.ask(
        peer,
        Command::CloseConsumer(pb::CommandCloseConsumer {
            consumer_id: 2,
            request_id: 1,
            ..Default::default()
        }),
    );
    assert!(matches!(bench.ask(peer, unsubscribe(1)), Command::Success(_)));
    assert_eq!(bench.broker.topic_stats(TOPIC).unwrap().subscriptions, []);
    assert_eq!(error_of(&bench.ask(peer, unsubscribe(1))), pb::ServerError::MetadataError);
}

#[test]
fn the_last_message_id_counts_into_the_batch() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    let ask = |bench: &mut Bench| {
        let get = pb::CommandGetLastMessageId { consumer_id: 1, request_id: 9 };
        let Command::GetLastMessageIdResponse(response) = bench.ask(peer, Command::GetLastMessageId(get))
        else {
            panic!()
        };
        let last = response.last_message_id;
        (last.ledger_id as i64, last.entry_id as i64, last.batch_index())
    };
    assert_eq!(ask(&mut bench), (-1, -1, -1));
    bench.fill(peer, 1, 0..1);
    assert_eq!(ask(&mut bench), (7, 0, -1));
    bench.send(peer, 1, 1, |m| m.num_messages_in_batch = Some(10));
    bench.hear(peer);
    assert_eq!(ask(&mut bench), (7, 1, 9));
}

#[test]
fn an_exclusive_producer_is_alone_and_who_waits_hears_twice() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    let mode = |mode: i32| move |p: &mut pb::CommandProducer| p.producer_access_mode = Some(mode);
    let first = bench.produce(a, 1, mode(1));
    assert!(
        matches!(first, Command::ProducerSuccess(s) if s.topic_epoch == Some(1) && s.producer_ready == Some(true))
    );
    let answer = bench.produce(b, 1, mode(0));
    assert_eq!(error_of(&answer), pb::ServerError::ProducerBusy);
    let answer = bench.produce(b, 1, mode(1));
    assert_eq!(error_of(&answer), pb::ServerError::ProducerFenced);
    let Command::ProducerSuccess(waiting) = bench.produce(b, 1, mode(2)) else { panic!() };
    assert_eq!(waiting.producer_ready, Some(false));
    bench.ask(
        a,
        Command::CloseProducer(pb::CommandCloseProducer {
            producer_id: 1,
            request_id: 1,
            ..Default::default()
        }),
    );
    let Command::ProducerSuccess(ready) = bench.one(b) else { panic!() };
    assert_eq!(
        (ready.request_id, ready.producer_ready, ready.topic_epoch),
        (waiting.request_id, Some(true), Some(2))
    );
    // Fencing closes it, and messages that it sent meanwhile are ignored.
    assert!(matches!(bench.produce(a, 2, mode(3)), Command::ProducerSuccess(_)));
    assert!(matches!(bench.one(b), Command::CloseProducer(c) if c.request_id == u64::MAX));
    bench.send(b, 1, 0, |_| {});
    assert_eq!(bench.commands(b), []);
    let unknown = Command::Send(hot::Send { producer_id: 99, ..Default::default() });
    assert!(bench.frame(b, &Frame { command: unknown, payload: Some(Payload::build(b"", b"")) }).is_err());
}

#[test]
fn a_full_store_refuses_producers_by_name() {
    let mut bench = Bench::with(|settings| settings.max_store = 0);
    let peer = bench.connect();
    let answer = bench.produce(peer, 1, |_| {});
    assert_eq!(error_of(&answer), pb::ServerError::ProducerBlockedQuotaExceededException);
}

#[test]
fn partitions_are_kept_and_listed() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.broker.create_topic("orders", 3).unwrap();
    bench.settle();
    assert!(bench.broker.create_topic("orders", 3).is_err());
    let ask = |bench: &mut Bench, topic: &str, create| {
        let command = pb::CommandPartitionedTopicMetadata {
            topic: topic.into(),
            request_id: 1,
            metadata_auto_creation_enabled: Some(create),
            ..Default::default()
        };
        let Command::PartitionedMetadataResponse(r) = bench.ask(peer, Command::PartitionedMetadata(command))
        else {
            panic!()
        };
        (r.partitions, r.error.map(|e| pb::ServerError::try_from(e).unwrap()))
    };
    assert_eq!(ask(&mut bench, TOPIC, true), (Some(3), None));
    assert_eq!(ask(&mut bench, "persistent://public/default/new", true), (Some(0), None));
    assert_eq!(
        ask(&mut bench, "persistent://public/default/x", false),
        (None, Some(pb::ServerError::TopicNotFound))
    );
    assert_eq!(ask(&mut bench, "bad://a/b/c", true), (None, Some(pb::ServerError::InvalidTopicName)));
    assert_eq!(
        ask(&mut bench, "persistent://a/b/x", true),
        (None, Some(pb::ServerError::TopicNotFound)),
        "a namespace that does not exist"
    );
    bench.broker.create_topic("a/b/y", 0).unwrap();
    bench.settle();
    assert_eq!(ask(&mut bench, "persistent://a/b/x", true), (Some(0), None));
    bench.broker.delete_topic("a/b/y").unwrap();
    bench.settle();
    let answer = bench.produce(peer, 1, |_| {});
    assert_eq!(error_of(&answer), pb::ServerError::NotAllowedError, "the parent itself takes nothing");
    let list = pb::CommandGetTopicsOfNamespace {
        request_id: 1,
        namespace: "public/default".into(),
        ..Default::default()
    };
    let Command::GetTopicsOfNamespaceResponse(listed) =
        bench.ask(peer, Command::GetTopicsOfNamespace(Box::new(list.clone())))
    else {
        panic!()
    };
    assert_eq!(listed.topics.len(), 3);
    let same = pb::CommandGetTopicsOfNamespace { topics_hash: listed.topics_hash, ..list };
    let Command::GetTopicsOfNamespaceResponse(again) =
        bench.ask(peer, Command::GetTopicsOfNamespace(Box::new(same)))
    else {
        panic!()
    };
    assert_eq!((again.changed, again.topics.len()), (Some(false), 0));
    assert_eq!(bench.broker.topics(), [(TOPIC.to_owned(), 3)]);
}

#[test]
fn a_deleted_topic_sends_its_users_away_and_its_ids_are_not_used_again() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.fill(peer, 1, 0..1);
    bench.broker.delete_topic("orders").unwrap();
    bench.settle();
    let heard = bench.commands(peer);
    assert!(matches!(&heard[..], [Command::CloseProducer(_), Command::CloseConsumer(_)]), "{heard:?}");
    bench.producer(peer, 2);
    bench.send(peer, 2, 0, |_| {});
    assert_eq!(receipt_of(&bench.one(peer)), (0, 8, 0));
    assert!(bench.broker.delete_topic("nothing").is_err());
}

#[test]
fn what_the_embedded_broker_does_not_do_is_said_clearly() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let txn = Command::TcClientConnectRequest(pb::CommandTcClientConnectRequest {
        tc_id: 0,
        request_id: 5,
        ..Default::default()
    });
    assert_eq!(error_of(&bench.ask(peer, txn)), pb::ServerError::NotAllowedError);
    let answer = bench.produce(peer, 1, |p| p.topic = "non-persistent://public/default/x".into());
    assert_eq!(error_of(&answer), pb::ServerError::NotAllowedError);
}

#[test]
fn a_schema_has_one_version_and_another_type_is_refused() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let schema = |kind, data: &str| pb::Schema {
        name: "s".into(),
        schema_data: Bytes::copy_from_slice(data.as_bytes()),
        r#type: kind,
        ..Default::default()
    };
    let version = |bench: &mut Bench, id, s: pb::Schema| match bench.produce(peer, id, |p| p.schema = Some(s))
    {
        Command::ProducerSuccess(success) => Ok(success.schema_version.unwrap()),
        other => Err(error_of(&other)),
    };
    let avro = pb::schema::Type::Avro as i32;
    assert_eq!(version(&mut bench, 1, schema(avro, "a")).unwrap()[..], [0; 8]);
    assert_eq!(version(&mut bench, 2, schema(avro, "a")).unwrap()[..], [0; 8]);
    assert_eq!(version(&mut bench, 3, schema(avro, "b")).unwrap()[..], 1_u64.to_be_bytes());
    assert_eq!(version(&mut bench, 4, schema(2, "c")), Err(pb::ServerError::IncompatibleSchema));
    let get = pb::CommandGetSchema {
        request_id: 1,
        topic: TOPIC.into(),
        schema_version: Some(Bytes::from_static(&[0; 8])),
    };
    let Command::GetSchemaResponse(found) = bench.ask(peer, Command::GetSchema(get)) else { panic!() };
    assert_eq!(found.schema.unwrap().schema_data, "a");
}

#[test]
fn a_token_is_asked_for_checked_and_renewed_before_its_session_ends() {
    let key = TokenKey::new(KEY).unwrap();
    let mut bench = Bench::with(|settings| settings.session.tokens = Some(Arc::new(key.clone())));
    let enter = |bench: &mut Bench, token: &str| {
        let peer = bench.broker.connect(bench.now, "x");
        let connect = pb::CommandConnect {
            auth_method_name: Some("token".into()),
            auth_data: Some(Bytes::copy_from_slice(token.as_bytes())),
            feature_flags: Some(pb::FeatureFlags { supports_auth_refresh: Some(true), ..Default::default() }),
            ..connect()
        };
        let result = bench.tell(peer, Command::Connect(connect));
        (peer, result, bench.one(peer))
    };
    let (_, result, answer) = enter(&mut bench, "not.a.token");
    assert!(result.is_err() && error_of(&answer) == pb::ServerError::AuthenticationError);
    let stranger = bench.broker.connect(bench.now, "x");
    assert!(bench.tell(stranger, Command::Connect(connect())).is_err());

    let (peer, result, _) = enter(&mut bench, &key.sign("till", Some(WALL_MS + 20_000)));
    result.unwrap();
    let renew = |token: String| {
        let data = pb::AuthData { auth_method_name: Some("token".into()), auth_data: Some(token.into()) };
        Command::AuthResponse(pb::CommandAuthResponse { response: Some(data), ..Default::default() })
    };
    bench.now = bench.start + Duration::from_secs(20);
    bench.broker.handle_session_timeout(bench.now, peer).unwrap();
    let Command::AuthChallenge(challenge) = bench.one(peer) else { panic!() };
    assert_eq!(challenge.challenge.unwrap().auth_data.unwrap(), "PulsarAuthRefresh");
    bench.tell(peer, renew(key.sign("till", Some(WALL_MS + 60_000)))).unwrap();
    bench.now = bench.start + Duration::from_secs(60);
    bench.broker.handle_session_timeout(bench.now, peer).unwrap();
    assert!(bench.commands(peer).iter().any(|c| matches!(c, Command::AuthChallenge(_))));
    assert!(bench.tell(peer, renew(key.sign("another", None))).is_err(), "the principal must not change");
    bench.now += Duration::from_secs(10);
    assert!(bench.broker.handle_session_timeout(bench.now, peer).is_err(), "the challenge was not answered");
}

#[test]
fn acknowledged_entries_go_after_their_time_or_when_memory_is_short() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.fill(peer, 1, 0..10);
    bench.ack(peer, 1, 1, vec![id(4)], None);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.broker.topic_stats(TOPIC).unwrap().entries, 10, "a consumer may seek back");
    bench.pass(Duration::from_secs(601));
    assert_eq!(bench.broker.topic_stats(TOPIC).unwrap().entries, 5);
    bench.pass(Duration::from_secs(6010));
    assert_eq!(bench.broker.topic_stats(TOPIC).unwrap().entries, 5, "what is not acknowledged stays");
}

#[test]
fn a_peer_that_does_not_read_is_not_sent_more_than_fits() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    let big = "x".repeat(100 << 10);
    for sequence_id in 0..50 {
        bench.send(peer, 1, sequence_id, |m| m.uuid = Some(big.clone()));
    }
    bench.hear(peer);
    bench.flow(peer, 1, 1000);
    let mut output = Transmit::default();
    bench.broker.take_output(bench.now, peer, &mut output);
    assert!(output.len() < 2 << 20, "{}", output.len());
    let (mut frames, mut input) = (0, output.take());
    while Decoder::new(6 << 20).next(&mut input).unwrap().is_some() {
        frames += 1;
    }
    assert_eq!(frames + bench.entries(peer).len(), 50, "and the rest follows when it has read");
}

#[test]
fn queries_that_come_all_at_once_are_answered_as_fast_as_their_answers_are_taken() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let schema = pb::Schema {
        name: "s".into(),
        schema_data: Bytes::from(vec![b'x'; 1_000_000]),
        r#type: pb::schema::Type::Avro as i32,
        ..Default::default()
    };
    bench.produce(peer, 1, |p| p.schema = Some(schema));
    for number in 0..90 {
        bench.produce(peer, 2 + number, |p| {
            p.topic = format!("persistent://public/default/{number:03}{}", "n".repeat(900));
        });
    }
    let get = |request_id| {
        Command::GetSchema(pb::CommandGetSchema { request_id, topic: TOPIC.into(), schema_version: None })
    };
    let list = |request_id| {
        Command::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
            request_id,
            namespace: "public/default".into(),
            ..Default::default()
        }))
    };
    for (query, queries) in [(&get as &dyn Fn(u64) -> Command, 400), (&list, 2000)] {
        let mut input = BytesMut::new();
        (0..queries).for_each(|id| input.extend_from_slice(&Frame::simple(query(id)).to_bytes()));
        let (mut answered, mut turns) = (0, 0);
        while answered < queries {
            bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
            assert_eq!(bench.broker.may_read(peer), input.is_empty(), "no more of them is read meanwhile");
            let mut output = Transmit::default();
            bench.broker.take_output(bench.now, peer, &mut output);
            assert!(output.len() < 10 << 20, "{} bytes wait", output.len());
            let mut bytes = output.take();
            while let Some(frame) = Decoder::new(6 << 20).next(&mut bytes).unwrap() {
                assert_eq!(frame.command.request_id(), Some(answered), "in order");
                answered += 1;
            }
            turns += 1;
        }
        assert!(turns >= 20 && input.is_empty(), "{turns}");
    }
}

/// Creates topics whose list is 80 kB long.
fn ninety_long_names(bench: &mut Bench, peer: u64) {
    for number in 0..90 {
        bench.produce(peer, 2 + number, |p| {
            p.topic = format!("persistent://public/default/{number:03}{}", "n".repeat(900));
        });
    }
}

/// The query for the topics of the namespace, from a client that knows the list with this hash.
fn topic_list(topics_hash: Option<String>) -> Command {
    Command::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
        request_id: 1,
        namespace: "public/default".into(),
        topics_hash,
        ..Default::default()
    }))
}

#[test]
fn a_connection_is_read_again_although_its_last_query_reached_the_limit() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    ninety_long_names(&mut bench, peer);
    let answer = bench.ask(peer, topic_list(None));
    let Command::GetTopicsOfNamespaceResponse(found) = answer else { panic!("{answer:?}") };
    // The output reaches the limit, or the work for short answers does.
    for query in [topic_list(None), topic_list(found.topics_hash)] {
        let frame = Frame::simple(query).to_bytes();
        let mut input = BytesMut::from(&frame.repeat(1000)[..]);
        bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
        let at_once = 1000 - input.len() / frame.len();
        assert!((10..1000).contains(&at_once), "{at_once}");
        while !input.is_empty() {
            bench.hear(peer);
            bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
        }
        bench.hear(peer);
        let mut input = BytesMut::from(&frame.repeat(at_once)[..]);
        bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
        assert!(input.is_empty());
        assert_eq!(bench.hear(peer).len(), at_once);
        assert!(bench.broker.may_read(peer));
    }
}

#[test]
fn a_list_that_the_client_knows_already_takes_its_turns_too() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    ninety_long_names(&mut bench, peer);
    let Command::GetTopicsOfNamespaceResponse(found) = bench.ask(peer, topic_list(None)) else { panic!() };
    let frame = Frame::simple(topic_list(found.topics_hash)).to_bytes();
    let mut input = BytesMut::new();
    (0..1000).for_each(|_| input.extend_from_slice(&frame));
    while bench.broker.poll_wake().is_some() {}
    let mut turns = 0;
    while !input.is_empty() {
        bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
        turns += 1;
        assert!(input.is_empty() || bench.broker.poll_wake() == Some(peer), "it is woken for the rest");
        bench.hear(peer);
        while bench.broker.poll_wake().is_some() {}
    }
    assert!(turns > 5, "{turns}");
}

#[test]
fn schemas_are_for_topics_that_exist_and_within_the_quota() {
    let mut bench = Bench::with(|settings| settings.max_store = 40 << 20);
    let peer = bench.connect();
    let create = |topic: &str, fill: u8, size: usize| {
        Command::GetOrCreateSchema(Box::new(pb::CommandGetOrCreateSchema {
            request_id: 1,
            topic: topic.into(),
            producer_name: None,
            schema: pb::Schema {
                name: "s".into(),
                schema_data: Bytes::from(vec![fill; size]),
                r#type: pb::schema::Type::Avro as i32,
                ..Default::default()
            },
        }))
    };
    let error = |answer| match answer {
        Command::GetOrCreateSchemaResponse(response) => response.error_code,
        other => panic!("{other:?}"),
    };
    let unknown = error(bench.ask(peer, create(TOPIC, 0, 10)));
    assert_eq!(unknown, Some(pb::ServerError::TopicNotFound as i32));
    bench.producer(peer, 1);
    let mut stored = 0;
    let refused = loop {
        match error(bench.ask(peer, create(TOPIC, stored, 1 << 20))) {
            None => stored += 1,
            Some(code) => break code,
        }
    };
    assert_eq!((stored, refused), (15, pb::ServerError::TooManyRequests as i32), "16 MiB for one topic");
    let refused = (0..10_u8).find_map(|number| {
        let topic = format!("persistent://public/default/t{number}");
        bench.produce(peer, 2 + u64::from(number), |p| p.topic = topic.clone());
        (0..4).find_map(|fill| {
            bench.pass(Duration::from_secs(1));
            bench.hear(peer);
            error(bench.ask(peer, create(&topic, fill, 2 << 20)))
        })
    });
    assert_eq!(refused, Some(pb::ServerError::ProducerBlockedQuotaExceededException as i32));
}

/// A store whose entry 5 cannot be read.
struct Damaged;

impl Source for Damaged {
    fn read(&mut self, _: u64, from: u64, limit: usize, _: usize) -> penstock::error::Result<Vec<Entry>> {
        if from == 5 {
            return Err(unreadable(5, "the page is damaged"));
        }
        let entry = |sequence| Entry {
            sequence,
            last_index: sequence,
            stored_ms: WALL_MS,
            run_ms: 0,
            publish_ms: WALL_MS,
            deliver_ms: 0,
            count: 1,
            flags: 0,
            hash: 0,
            checksum: None,
            body: Bytes::from_static(b"x"),
        };
        let end = if from < 5 { 5 } else { 10 };
        Ok((from..end).take(limit).map(entry).collect())
    }
}

/// A broker with a topic of ten such entries.
fn with_damage() -> Bench {
    let mut bench = Bench::with(|settings| settings.stored = true);
    let found = StoredTopic {
        id: 7,
        name: TOPIC.into(),
        partitions: 0,
        epoch: 0,
        first: 0,
        next: 10,
        next_index: 10,
        last: None,
        cursors: Vec::new(),
        producers: Vec::new(),
    };
    let found = Found { topics: vec![found], next_topic: 8, ..Found::default() };
    bench.broker = Broker::new(bench.settings.clone(), found, Some(Box::new(Damaged)), bench.now);
    bench
}

#[test]
fn consumers_have_their_time_for_what_comes_before_a_damaged_entry() {
    for (kind, acknowledges) in
        [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED].map(|kind| [(kind, true), (kind, false)]).concat()
    {
        let mut bench = with_damage();
        let peer = bench.connect();
        bench.subscribe(peer, 1, kind);
        bench.flow(peer, 1, 100);
        assert_eq!(bench.entries(peer), [0, 1, 2, 3, 4]);
        (0..4).for_each(|entry| bench.ack_entry(peer, 1, entry));
        (0..30).for_each(|_| bench.pass(Duration::from_secs(1)));
        let is_close = |command: &Command| matches!(command, Command::CloseConsumer(_));
        assert!(!bench.commands(peer).iter().any(is_close), "it still has one in hand");
        if acknowledges {
            bench.ack_entry(peer, 1, 4);
        } else {
            (0..31).for_each(|_| bench.pass(Duration::from_secs(1)));
        }
        assert!(bench.commands(peer).iter().any(is_close), "{kind} {acknowledges}");
        let answer = bench.subscription(peer, 1, kind, |_| {});
        assert!(matches!(&answer[0], Command::Error(e) if e.message.contains("entry 5")), "{answer:?}");
        assert!(bench.broker.stats().damage.unwrap().contains("entry 5"));
    }
}

#[test]
fn a_consumer_that_no_longer_needs_a_damaged_entry_goes_on_behind_it() {
    for (kind, seeks) in [EXCLUSIVE, SHARED, FAILOVER].map(|kind| [(kind, true), (kind, false)]).concat() {
        let mut bench = with_damage();
        let peer = bench.connect();
        bench.subscribe(peer, 1, kind);
        bench.flow(peer, 1, 100);
        assert_eq!(bench.entries(peer), [0, 1, 2, 3, 4]);
        if seeks {
            bench.seek(peer, 1, Some(id(6)), None);
            bench.commands(peer);
            bench.subscribe(peer, 1, kind);
            bench.flow(peer, 1, 100);
        } else {
            (0..6).rev().for_each(|entry| bench.ack_entry(peer, 1, entry));
        }
        bench.pass(Duration::from_secs(2));
        let heard = bench.commands(peer);
        let entries = heard.iter().filter_map(|command| match command {
            Command::Message(message) => Some(message.message_id.entry_id),
            _ => None,
        });
        assert_eq!(entries.collect::<Vec<_>>(), [6, 7, 8, 9], "{kind} {seeks}");
        assert!(!heard.iter().any(|command| matches!(command, Command::CloseConsumer(_))), "{kind} {seeks}");
    }
}

#[test]
fn cursors_do_not_pile_up_while_the_store_cannot_write() {
    let mut bench = Bench::with(|settings| settings.stored = true);
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.fill(peer, 1, 0..20);
    bench.flow(peer, 1, 100);
    assert_eq!(bench.entries(peer).len(), 20);
    let full = penstock::error::Error::new(penstock::error::ErrorKind::Persistence, "no space left");
    bench.broker.handle_report(bench.now, Report { jobs: 0, outcome: Outcome::Waiting(full) });
    let before = bench.broker.issued();
    for entry in 0..20 {
        bench.ack_entry(peer, 1, entry);
        bench.pass(Duration::from_millis(200));
    }
    assert_eq!(bench.broker.issued(), before);
    bench.broker.handle_report(bench.now, Report { jobs: 0, outcome: Outcome::Written(0) });
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.broker.issued(), before + 1, "the last state");
}

#[test]
fn random_bytes_and_random_commands_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bench = Bench::new();
    for _ in 0..300 {
        let peer = bench.connect();
        for _ in 0..20 {
            let mut bytes = BytesMut::new();
            // A frame with a plausible head: [total][size][08 type][field, length, random bytes].
            let number = 2 + random() % 40;
            let body: Vec<u8> = (0..random() % 40).map(|_| (random() % 24) as u8).collect();
            penstock::wire::put_varint_field(&mut bytes, 1, number);
            penstock::wire::put_bytes_field(&mut bytes, number as u32, &body);
            let mut frame = BytesMut::new();
            frame.extend_from_slice(&(bytes.len() as u32 + 4).to_be_bytes());
            frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            frame.extend_from_slice(&bytes);
            let ended = bench.broker.handle_input(bench.now, peer, &mut frame).is_err();
            bench.settle();
            if ended {
                break;
            }
        }
        bench.broker.disconnect(bench.now, peer);
    }
    assert_eq!(bench.broker.stats().connections, 0);
}

/// Counts the reads of the store.
struct Counting(Arc<std::sync::atomic::AtomicUsize>);

impl Source for Counting {
    fn read(&mut self, _: u64, from: u64, _: usize, _: usize) -> penstock::error::Result<Vec<Entry>> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut entry = Damaged.read(7, 0, 1, 1)?.remove(0);
        (entry.sequence, entry.count) = (from, 100);
        Ok(vec![entry])
    }
}

#[test]
fn acknowledgements_of_parts_of_stored_batches_read_no_more_than_a_share_of_the_store_at_once() {
    let mut bench = Bench::with(|settings| settings.stored = true);
    let (kept, reads) = (100_000, Arc::<std::sync::atomic::AtomicUsize>::default());
    let found = StoredTopic {
        id: 7,
        name: TOPIC.into(),
        partitions: 0,
        epoch: 0,
        first: 0,
        next: kept,
        next_index: kept,
        last: None,
        cursors: Vec::new(),
        producers: Vec::new(),
    };
    let found = Found { topics: vec![found], next_topic: 8, ..Found::default() };
    let source = Counting(reads.clone());
    bench.broker = Broker::new(bench.settings.clone(), found, Some(Box::new(source)), bench.now);
    let peer = bench.connect();
    bench.subscribe(peer, 1, SHARED);
    let read_by = |bench: &mut Bench, entries: std::ops::Range<u64>| {
        let before = reads.load(std::sync::atomic::Ordering::Relaxed);
        let part = |entry| pb::MessageIdData { ack_set: vec![0b10], ..id(entry) };
        let message_ids = entries.map(part).collect();
        bench
            .tell(peer, Command::Ack(hot::Ack { consumer_id: 1, message_ids, ..hot::Ack::default() }))
            .unwrap();
        reads.load(std::sync::atomic::Ordering::Relaxed) - before
    };
    assert_eq!(read_by(&mut bench, 0..100), 100);
    assert_eq!(read_by(&mut bench, 0..100), 0, "their size is known");
    let reads = read_by(&mut bench, 0..kept);
    assert!((1..2000).contains(&reads), "{reads} reads in one turn");
}

#[test]
fn in_memory_what_comes_between_two_counts_of_the_space_counts() {
    let mut bench = Bench::with(|settings| settings.max_store = 100_000);
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.subscribe(peer, 1, EXCLUSIVE);
    let mut metadata = BytesMut::new();
    hot::encode_metadata(
        &pb::MessageMetadata { producer_name: "p".into(), ..Default::default() },
        &mut metadata,
    );
    for sequence_id in 0..20 {
        let send = hot::Send { producer_id: 1, sequence_id, ..Default::default() };
        let payload = Payload::build(&metadata, &[7; 10_000]);
        let _ = bench.frame(peer, &Frame { command: Command::Send(send), payload: Some(payload) });
    }
    let stored = bench.broker.topic_stats(TOPIC).unwrap().entries;
    assert!((8..=10).contains(&stored), "{stored} messages of 10,000 bytes");
}

#[test]
fn the_properties_of_a_subscription_are_those_it_was_made_with() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let pair = |key: &str, value: &str| pb::KeyValue { key: key.into(), value: value.into() };
    let subscribe = |bench: &mut Bench, id: u64, properties: Vec<pb::KeyValue>| {
        let answers =
            bench.subscription(peer, id, SHARED, |command| command.subscription_properties = properties);
        let listed = bench.broker.topic_stats(TOPIC).unwrap().subscriptions;
        (answers, listed.first().map(|subscription| subscription.properties.clone()).unwrap_or_default())
    };
    let (answers, listed) = subscribe(&mut bench, 1, vec![pair("k", &"x".repeat(20_000))]);
    assert_eq!(error_of(&answers[0]), pb::ServerError::MetadataError, "more than is kept");
    assert_eq!(listed, []);
    assert_eq!(subscribe(&mut bench, 2, vec![]).1, []);
    let owner = vec![("owner".to_owned(), "billing".to_owned())];
    assert_eq!(subscribe(&mut bench, 3, vec![pair("owner", "billing")]).1, owner, "it had none");
    assert_eq!(subscribe(&mut bench, 4, vec![pair("owner", "other")]).1, owner, "they stay");
}
