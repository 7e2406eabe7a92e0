//! Entries that cannot be read.

use super::*;

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
        terminated: false,
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
