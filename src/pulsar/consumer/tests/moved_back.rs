//! Entries from before the position of a seek: they are late, or another client has moved the
//! subscription back.

use super::*;

/// A consumer that has sought, on a subscription that is open again.
fn sought(kind: SubType, id: MessageId) -> Consumer {
    let mut c = consumer(Options { kind, ..Options::default() });
    c.begin_seek();
    c.closed_by_broker();
    c.end_seek(Some(id), false);
    c.attach();
    written(&mut c);
    c
}

/// Delivers an entry with the epoch that the consumer has reached.
fn deliver(c: &mut Consumer, now: Instant, entry: u64, payload: Payload) {
    let delivery = hot::Delivery { consumer_epoch: c.epoch(), ..delivery(entry, &[]) };
    c.handle_message(now, delivery, payload).unwrap();
}

fn entries(c: &mut Consumer) -> Vec<u64> {
    take(c).iter().map(|message| message.id.entry).collect()
}

#[test]
fn what_was_dropped_is_requested_again_and_then_delivered() {
    for kind in [SubType::Shared, SubType::KeyShared] {
        let now = Instant::now();
        let mut c = sought(kind, MessageId::new(1, 4));
        for entry in [2, 3, 5] {
            deliver(&mut c, now, entry, single("x"));
        }
        assert_eq!(again(&mut c, now), None, "it is too early");
        let due = c.poll_timeout().expect("there is something to request");
        assert_eq!(again(&mut c, due), Some(vec![2, 3]));
        for entry in [2, 3] {
            deliver(&mut c, due, entry, single("moved back"));
        }
        assert_eq!(entries(&mut c), [5, 2, 3]);
        assert_eq!(again(&mut c, due + Duration::from_secs(10)), None, "once");
        assert_eq!(c.poll_timeout(), None);
    }
}

#[test]
fn where_entries_come_in_order_all_are_requested_again_before_one_is_handed_out() {
    for kind in [SubType::Exclusive, SubType::Failover] {
        let now = Instant::now();
        let mut c = sought(kind, MessageId::new(1, 4));
        for entry in [2, 3, 5] {
            deliver(&mut c, now, entry, single("x"));
        }
        assert_eq!(c.available(), 0);
        assert_eq!(again(&mut c, now), Some(vec![]));
        for entry in 2..6 {
            deliver(&mut c, now, entry, single("moved back"));
        }
        assert_eq!(entries(&mut c), [2, 3, 4, 5]);
    }
}

/// It could not tell what was on its way from what comes again.
#[test]
fn a_broker_that_states_no_epoch_is_asked_for_nothing() {
    let mut c = sought(SubType::Exclusive, MessageId::new(1, 4));
    for entry in [2, 3, 5] {
        give(&mut c, entry, single("x")).unwrap();
    }
    assert_eq!(entries(&mut c), [5]);
    assert_eq!((again(&mut c, Instant::now()), c.poll_timeout()), (None, None));
}

#[test]
fn nothing_is_requested_that_the_broker_sends_by_itself() {
    let now = Instant::now();
    let mut c = sought(SubType::Shared, MessageId::new(1, 4));
    deliver(&mut c, now, 2, single("x"));
    c.detach();
    c.attach();
    assert_eq!(c.poll_timeout(), None);
    deliver(&mut c, now, 2, single("x"));
    assert_eq!(c.available(), 0);
    c.begin_seek();
    c.end_seek(Some(MessageId::new(1, 3)), false);
    c.attach();
    assert_eq!(again(&mut c, now + Duration::from_secs(10)), None, "of another seek");
    deliver(&mut c, now, 2, single("x"));
    c.redeliver_unacknowledged();
    assert_eq!(again(&mut c, now), Some(vec![]));
    deliver(&mut c, now, 2, single("moved back"));
    assert_eq!(c.available(), 1);
    assert_eq!(again(&mut c, now + Duration::from_secs(10)), None, "all were requested");
}

#[test]
fn neither_many_entries_nor_slow_ones_wait_for_the_last() {
    for kind in [SubType::Exclusive, SubType::Shared] {
        let now = Instant::now();
        let mut c = sought(kind, MessageId::new(1, 100_000));
        let first = (0..5000).find(|entry| {
            deliver(&mut c, now, *entry, single("x"));
            again(&mut c, now).is_some()
        });
        assert_eq!(first, Some(999));
        deliver(&mut c, now, 0, single("moved back"));
        assert_eq!(c.available(), 1);
        let mut c = sought(kind, MessageId::new(1, 100_000));
        let first = (0..100).find(|entry| {
            let now = now + Duration::from_millis(900) * *entry as u32;
            deliver(&mut c, now, *entry, single("x"));
            again(&mut c, now).is_some()
        });
        assert_eq!(first, Some(6), "5 s after the first");
    }
}

#[test]
fn what_does_not_come_again_was_late_and_the_seek_stands() {
    for kind in [SubType::Exclusive, SubType::Shared] {
        let now = Instant::now();
        let mut c = sought(kind, MessageId::new(1, 4));
        deliver(&mut c, now, 2, single("late"));
        deliver(&mut c, now, 4, single("sought"));
        assert_eq!(acked(&mut c, now), NONE, "it may have to be delivered");
        // Where entries come in order, they are requested at once.
        let due = if kind == SubType::Shared { c.poll_timeout().unwrap() } else { now };
        again(&mut c, due);
        let settled = c.poll_timeout().unwrap();
        deliver(&mut c, due, 4, single("sought"));
        deliver(&mut c, due, 5, single("behind"));
        assert_eq!(acked(&mut c, due), NONE);
        assert_eq!(acked(&mut c, settled), [4]);
        assert_eq!(entries(&mut c), [5]);
        assert_eq!(c.poll_timeout(), None);
    }
}

#[test]
fn the_entry_of_the_position_comes_again_with_earlier_ones() {
    let now = Instant::now();
    let mut c = sought(SubType::Shared, MessageId::new(1, 4));
    deliver(&mut c, now, 2, single("x"));
    let due = c.poll_timeout().unwrap();
    assert_eq!(again(&mut c, due), Some(vec![2]));
    deliver(&mut c, due, 4, single("x"));
    deliver(&mut c, due, 2, single("moved back"));
    assert_eq!(again(&mut c, due), Some(vec![4]));
    deliver(&mut c, due, 4, single("moved back"));
    assert_eq!(entries(&mut c), [2, 4]);
    assert_eq!(acked(&mut c, due + Duration::from_secs(10)), NONE);
}

#[test]
fn the_rest_of_a_batch_is_not_repeated() {
    let now = Instant::now();
    let mut c = sought(SubType::Shared, MessageId::new(1, 4).in_batch(0, 3));
    deliver(&mut c, now, 2, single("late"));
    deliver(&mut c, now, 4, batch(3));
    let rest = take(&mut c);
    assert_eq!(rest.iter().map(|message| message.id.batch_index).collect::<Vec<_>>(), [1, 2]);
    rest.iter().for_each(|message| c.ack(now, &message.id));
    let due = now + Duration::from_secs(1);
    assert_eq!(again(&mut c, due), Some(vec![2]));
    assert_eq!(acked(&mut c, due + Duration::from_secs(1)), [4], "with its first message");
}

#[test]
fn what_was_taken_before_a_seek_is_revoked() {
    let mut c = consumer(Options::default());
    give(&mut c, 0, single("x")).unwrap();
    let taken = take(&mut c);
    assert!(!c.is_revoked(&taken[0]));
    c.begin_seek();
    assert!(c.take_revoked() && c.is_revoked(&taken[0]));
}

#[test]
fn a_seek_after_which_the_broker_closes_nothing_goes_on() {
    let mut c = consumer(Options::default());
    c.begin_seek();
    c.end_seek(None, true);
    give(&mut c, 0, single("of before")).unwrap();
    c.stay();
    give(&mut c, 1, single("behind")).unwrap();
    assert_eq!(entries(&mut c), [1]);
}
