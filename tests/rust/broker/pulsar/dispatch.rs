//! What goes to which consumer, and when.

use super::*;

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
fn what_the_former_active_consumer_acknowledges_within_a_second_is_not_delivered_again() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    let before = |s: &mut pb::CommandSubscribe| s.priority_level = Some(0);
    let after = |s: &mut pb::CommandSubscribe| s.priority_level = Some(1);
    bench.producer(a, 1);
    bench.subscription(a, 1, FAILOVER, after);
    bench.flow(a, 1, 100);
    bench.fill(a, 1, 0..3);
    bench.hear(a);
    bench.subscription(b, 1, FAILOVER, before);
    bench.flow(b, 1, 100);
    bench.fill(a, 1, 3..4);
    assert_eq!((bench.entries(a), bench.entries(b)), (vec![], vec![]), "nobody gets more meanwhile");
    assert!(bench.broker.poll_timeout().unwrap() <= bench.now + Duration::from_secs(1));
    bench.pass(Duration::from_millis(900));
    (0..2).for_each(|entry| bench.ack_entry(a, 1, entry));
    bench.pass(Duration::from_millis(100));
    assert_eq!((bench.entries(a), bench.entries(b)), (vec![], vec![2, 3]));

    // One more that comes before replaces the new one, and does not prolong the second.
    let c = bench.connect();
    bench.subscription(a, 2, FAILOVER, before);
    bench.hear(a);
    bench.broker.disconnect(bench.now, b);
    let (b, at) = (bench.connect(), bench.now);
    bench.subscription(b, 1, FAILOVER, |s| s.priority_level = Some(-1));
    bench.pass(Duration::from_millis(600));
    bench.subscription(c, 1, FAILOVER, |s| s.priority_level = Some(-2));
    bench.flow(c, 1, 100);
    bench.pass(Duration::from_millis(400));
    assert_eq!((bench.now - at, bench.entries(c)), (Duration::from_secs(1), vec![2, 3]));
}

#[test]
fn a_former_active_consumer_that_leaves_is_not_waited_for_and_one_that_stays_alone_continues() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.producer(b, 1);
    let priority = |level| move |s: &mut pb::CommandSubscribe| s.priority_level = Some(level);
    bench.subscription(a, 1, FAILOVER, priority(1));
    bench.flow(a, 1, 100);
    bench.fill(b, 1, 0..2);
    assert_eq!(bench.entries(a), [0, 1]);
    // The new one is gone before its turn: the former one has its entries and gets the next.
    let short = bench.connect();
    bench.subscription(short, 1, FAILOVER, priority(0));
    bench.broker.disconnect(bench.now, short);
    bench.fill(b, 1, 2..3);
    assert_eq!(bench.entries(a), [2]);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.commands(a), [], "it was told nothing, and gets nothing twice");
    bench.subscription(b, 1, FAILOVER, priority(0));
    bench.flow(b, 1, 100);
    bench.hear(b);
    bench.broker.disconnect(bench.now, a);
    assert_eq!(bench.entries(b), [0, 1, 2], "at once");
}

#[test]
fn the_epoch_of_a_consumer_that_stands_by_counts_once_it_is_active() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.producer(a, 1);
    bench.subscribe(a, 1, FAILOVER);
    bench.subscription(b, 1, FAILOVER, |c| c.consumer_epoch = Some(3));
    bench.flow(b, 1, 100);
    for epoch in [Some(5), Some(4), None] {
        let redeliver = pb::CommandRedeliverUnacknowledgedMessages {
            consumer_id: 1,
            consumer_epoch: epoch,
            ..Default::default()
        };
        bench.tell(b, Command::RedeliverUnacknowledgedMessages(redeliver)).unwrap();
    }
    bench.fill(a, 1, 0..2);
    bench.broker.disconnect(bench.now, a);
    let epochs: Vec<_> = bench.deliveries(b).iter().map(|delivery| delivery.consumer_epoch).collect();
    assert_eq!(epochs, [Some(5); 2], "it drops what states an older one");
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
    // Nor do consumers join that would split a range, or choose one of a subscription that splits
    // them by itself.
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
fn the_one_that_stands_by_is_told_and_the_priority_decides() {
    let mut bench = Bench::new();
    let (a, b, c) = (bench.connect(), bench.connect(), bench.connect());
    let told = |commands: &[Command]| -> Vec<bool> {
        commands
            .iter()
            .filter_map(|command| match command {
                Command::ActiveConsumerChange(change) => change.is_active,
                _ => None,
            })
            .collect()
    };
    let heard = bench.subscription(a, 1, FAILOVER, |s| s.priority_level = Some(1));
    assert_eq!(told(&heard), [true]);
    let heard = bench.subscription(b, 1, FAILOVER, |s| s.priority_level = Some(2));
    assert_eq!((told(&heard), told(&bench.commands(a))), (vec![false], vec![]));
    let heard = bench.subscription(c, 1, FAILOVER, |s| s.priority_level = Some(0));
    bench.pass(Duration::from_millis(999));
    assert_eq!((told(&heard), told(&bench.commands(a))), (vec![], vec![]), "the former one is connected");
    bench.pass(Duration::from_millis(1));
    assert_eq!(
        (told(&bench.commands(c)), told(&bench.commands(a)), told(&bench.commands(b))),
        (vec![true], vec![false], vec![])
    );
    bench.broker.disconnect(bench.now, c);
    assert_eq!((told(&bench.commands(a)), told(&bench.commands(b))), (vec![true], vec![]));
}

#[test]
fn the_former_active_consumer_gets_again_what_it_asks_for_if_it_stays_active() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.producer(a, 1);
    bench.subscription(a, 1, FAILOVER, |s| s.priority_level = Some(1));
    bench.flow(a, 1, 100);
    bench.fill(a, 1, 0..3);
    bench.hear(a);
    bench.subscription(b, 1, FAILOVER, |s| s.priority_level = Some(0));
    bench.flow(b, 1, 100);
    let redeliver = pb::CommandRedeliverUnacknowledgedMessages { consumer_id: 1, ..Default::default() };
    bench.tell(a, Command::RedeliverUnacknowledgedMessages(redeliver.clone())).unwrap();
    // It has nothing yet.
    bench.tell(b, Command::RedeliverUnacknowledgedMessages(redeliver)).unwrap();
    assert_eq!((bench.entries(a), bench.entries(b)), (vec![], vec![]), "nobody gets more meanwhile");
    bench.broker.disconnect(bench.now, b);
    assert_eq!(bench.entries(a), [0, 1, 2]);
}

#[test]
fn out_of_order_a_key_moves_before_what_is_held_is_acknowledged() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    let policy = |out_of_order| pb::KeySharedMeta {
        allow_out_of_order_delivery: Some(out_of_order),
        ..Default::default()
    };
    bench.producer(a, 1);
    bench.subscription(a, 1, KEY_SHARED, |s| s.key_shared_meta = Some(policy(true)));
    bench.flow(a, 1, 1000);
    for sequence_id in 0..50 {
        bench.send(a, 1, sequence_id, |m| m.partition_key = Some(format!("k{sequence_id}")));
    }
    assert_eq!(bench.entries(a).len(), 50);
    let refused = bench.subscription(b, 1, KEY_SHARED, |s| s.key_shared_meta = Some(policy(false)));
    assert_eq!(error_of(&refused[0]), pb::ServerError::ConsumerBusy);
    bench.subscription(b, 1, KEY_SHARED, |s| s.key_shared_meta = Some(policy(true)));
    bench.flow(b, 1, 1000);
    for sequence_id in 50..100 {
        bench.send(a, 1, sequence_id, |m| m.partition_key = Some(format!("k{}", sequence_id - 50)));
    }
    let (to_a, to_b) = (bench.entries(a).len(), bench.entries(b).len());
    assert!(to_a > 0 && to_b > 0 && to_a + to_b == 50, "{to_a} and {to_b}");
}
