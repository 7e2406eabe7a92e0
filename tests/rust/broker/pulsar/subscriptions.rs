//! Subscriptions: acknowledgements, seeks, readers, and what is kept of them.

use super::*;

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
    // The position before the first entry is -1, which as unsigned is the largest: nothing is
    // acknowledged.
    bench.ack(peer, 1, 1, vec![id(u64::MAX)], None);
    let redeliver = pb::CommandRedeliverUnacknowledgedMessages { consumer_id: 1, ..Default::default() };
    bench.tell(peer, Command::RedeliverUnacknowledgedMessages(redeliver)).unwrap();
    assert_eq!(bench.entries(peer), [3, 4]);
}

#[test]
fn names_of_subscriptions_that_cannot_be_are_refused_for_good() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    let long = "s".repeat(1025);
    for (name, error) in [("", pb::ServerError::ProducerBusy), (&*long, pb::ServerError::NotAllowedError)] {
        let answer = bench.subscription(peer, 1, EXCLUSIVE, |s| s.subscription = name.into());
        assert_eq!(error_of(&answer[0]), error, "{} bytes", name.len());
    }
    let answer = bench.produce(peer, 1, |p| p.initial_subscription_name = Some(long.clone()));
    assert_eq!(error_of(&answer), pb::ServerError::NotAllowedError);
    let longest = bench.subscription(peer, 1, EXCLUSIVE, |s| s.subscription = "s".repeat(1024));
    assert!(matches!(longest.first(), Some(Command::Success(_))), "{longest:?}");
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

const OTHER: &str = "persistent://public/default/other";

fn kept(bench: &Bench, topic: &str) -> usize {
    bench.broker.topic_stats(topic).unwrap().entries as usize
}

#[test]
fn without_a_subscription_messages_stay_until_memory_is_short() {
    const MAX_STORE: u64 = 64 << 10;
    let mut bench = Bench::with(|settings| {
        settings.max_store = MAX_STORE;
        // A topic without a subscription has no share of it.
        settings.retention_bytes = 1 << 10;
    });
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.produce(peer, 2, |command| command.topic = OTHER.into());
    bench.fill(peer, 1, 0..100);
    bench.pass(Duration::from_secs(6010));
    assert_eq!(kept(&bench, TOPIC), 100, "whatever their age");
    for n in 0..2000 {
        // Each one is stored.
        bench.fill(peer, 2, n..n + 1);
        assert!(bench.broker.used_bytes() <= MAX_STORE);
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(kept(&bench, TOPIC), 0, "the oldest of all topics went first");
    assert!(bench.broker.used_bytes() >= MAX_STORE / 2, "no more than is needed went");
    let rest = kept(&bench, OTHER);
    bench.subscription(peer, 3, EXCLUSIVE, |command| command.topic = OTHER.into());
    bench.flow(peer, 3, 5000);
    assert_eq!(bench.entries(peer), (2000 - rest as u64..2000).collect::<Vec<_>>());
    // What a subscription needs stays, and the sender is refused.
    bench.fill(peer, 1, 100..101);
    for n in 2000..2500 {
        bench.send(peer, 2, n, |_| {});
    }
    assert!(bench.broker.used_bytes() <= MAX_STORE + 1000, "one message, which reached the limit");
    assert_eq!(kept(&bench, TOPIC), 0);
    let refused = |command: &Command| matches!(command, Command::CloseProducer(_) | Command::SendError(_));
    assert!(bench.commands(peer).iter().any(refused));
}

#[test]
fn without_a_subscription_messages_stay_until_the_store_is_short() {
    let mut bench = Bench::with(|settings| {
        settings.stored = true;
        settings.max_store = 16 << 10;
    });
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.produce(peer, 2, |command| command.topic = OTHER.into());
    bench.fill(peer, 2, 0..50);
    bench.pass(Duration::from_secs(6010));
    bench.fill(peer, 1, 0..50);
    bench.held = true;
    report(&mut bench, 12 << 10);
    bench.pass(Duration::from_secs(1));
    assert_eq!((kept(&bench, OTHER), kept(&bench, TOPIC)), (50, 50), "three quarters are no reason yet");
    report(&mut bench, 13 << 10);
    // It waits for what the removal of acknowledged ones brings.
    bench.pass(Duration::from_secs(1));
    assert_eq!(kept(&bench, OTHER), 50);
    bench.pass(Duration::from_secs(1));
    let rest = kept(&bench, OTHER);
    assert!((20..50).contains(&rest) && kept(&bench, TOPIC) == 50, "{rest} of the oldest");
    for _ in 0..10 {
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(kept(&bench, OTHER), rest, "the store has not said yet what it has gained");
    // It deletes large ranges piece by piece.
    report(&mut bench, 13 << 10);
    let cleaning = |bench: &mut Bench, outcome| {
        bench.broker.handle_report(bench.now, Report { jobs: 0, outcome });
        for _ in 0..10 {
            bench.pass(Duration::from_secs(1));
        }
    };
    cleaning(&mut bench, Outcome::CleaningUp(12 << 10));
    cleaning(&mut bench, Outcome::CleaningUp(11 << 10));
    assert_eq!((kept(&bench, OTHER), kept(&bench, TOPIC)), (rest, 50), "it is not done");
    cleaning(&mut bench, Outcome::CleanedUp);
    assert!(kept(&bench, OTHER) < rest, "not enough");
    let rest = kept(&bench, OTHER);
    report(&mut bench, 10 << 10);
    bench.pass(Duration::from_secs(1));
    report(&mut bench, 12 << 10);
    bench.pass(Duration::from_secs(1));
    assert_eq!((kept(&bench, OTHER), kept(&bench, TOPIC)), (rest, 50), "enough");
}

/// A store of 16 KiB with a topic of `Bench::producer` whose subscription has acknowledged nothing,
/// and OTHER with 50 messages and no subscription. The store reports when it is told to.
fn short_store(messages: u64) -> (Bench, u64) {
    let mut bench = Bench::with(|settings| {
        settings.stored = true;
        settings.max_store = 16 << 10;
    });
    let peer = bench.connect();
    bench.producer(peer, 1);
    bench.produce(peer, 2, |command| command.topic = OTHER.into());
    bench.subscribe(peer, 1, EXCLUSIVE);
    bench.fill(peer, 2, 0..50);
    bench.fill(peer, 1, 0..messages);
    bench.flow(peer, 1, 1000);
    assert_eq!(bench.entries(peer).len() as u64, messages);
    bench.held = true;
    (bench, peer)
}

fn report(bench: &mut Bench, used: u64) {
    let jobs = std::mem::take(&mut bench.ops);
    bench.broker.handle_report(bench.now, Report { jobs, outcome: Outcome::Written(used) });
    bench.settle();
}

#[test]
fn without_a_subscription_messages_stay_if_acknowledged_ones_are_enough() {
    let (mut bench, peer) = short_store(50);
    (0..50).for_each(|entry| bench.ack_entry(peer, 1, entry));
    report(&mut bench, 13 << 10);
    bench.pass(Duration::from_secs(2));
    assert_eq!(kept(&bench, TOPIC), 0, "acknowledged");
    // Not above three quarters any more.
    report(&mut bench, 12 << 10);
    for _ in 0..5 {
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(kept(&bench, OTHER), 50);
    report(&mut bench, 13 << 10);
    for _ in 0..3 {
        bench.pass(Duration::from_secs(1));
    }
    assert!(kept(&bench, OTHER) < 50, "short again");
}

#[test]
fn without_a_subscription_messages_stay_if_those_acknowledged_meanwhile_are_enough() {
    let (mut bench, peer) = short_store(100);
    report(&mut bench, 13 << 10);
    for _ in 0..3 {
        bench.pass(Duration::from_secs(1));
    }
    let rest = kept(&bench, OTHER);
    assert!((1..50).contains(&rest), "{rest} of the oldest went");
    // The store still has not enough room, and will have it without those acknowledged now.
    (0..100).for_each(|entry| bench.ack_entry(peer, 1, entry));
    report(&mut bench, (10 << 10) + 500);
    bench.pass(Duration::from_secs(1));
    assert_eq!((kept(&bench, TOPIC), kept(&bench, OTHER)), (0, rest));
    // It was not as much as estimated.
    report(&mut bench, (10 << 10) + 400);
    for _ in 0..3 {
        bench.pass(Duration::from_secs(1));
    }
    assert!(kept(&bench, OTHER) < rest);
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
    let full = forebay_base::error::Error::new(forebay_base::error::ErrorKind::Persistence, "no space left");
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

/// Counts the reads of the store.
struct Counting(Arc<std::sync::atomic::AtomicUsize>);

impl Source for Counting {
    fn read(&mut self, _: u64, from: u64, _: usize, _: usize) -> forebay_base::error::Result<Vec<Entry>> {
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
        terminated: false,
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
