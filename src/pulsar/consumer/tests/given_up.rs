//! Incomplete chunked messages that are given up.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limited(kind: SubType, chunked: ChunkLimits) -> Consumer {
    consumer(Options { kind, chunked, ..Options::default() })
}

fn deliver(c: &mut Consumer, now: Instant, entry: u64, payload: Payload) {
    c.handle_message(now, delivery(entry, &[]), payload).unwrap();
}

fn counted(c: &Consumer) -> (u64, u64, u64) {
    let counts = c.counts();
    (counts.dropped_chunked_messages, counts.expired_chunked_messages, counts.orphaned_chunks)
}

#[test]
fn more_messages_than_allowed_make_room_and_stay_unacknowledged() {
    let now = Instant::now();
    let mut c = limited(SubType::Exclusive, ChunkLimits { messages: 2, ..ChunkLimits::default() });
    for (entry, uuid) in ["a", "b", "c"].into_iter().enumerate() {
        deliver(&mut c, now, entry as u64, chunk(uuid, 0, 2));
    }
    let given_up = c.take_given_up().unwrap();
    assert_eq!((given_up.first, given_up.chunks), (MessageId::new(1, 0).in_partition(-1), 1));
    assert_eq!((given_up.reason, given_up.acknowledged), (Reason::Room, false));
    assert_eq!(c.take_given_up(), None);
    for (entry, uuid) in [(3, "a"), (4, "b"), (5, "c")] {
        deliver(&mut c, now, entry, chunk(uuid, 1, 2));
    }
    assert_eq!(take(&mut c).len(), 2, "those that had room");
    assert_eq!(acked(&mut c, now + 61 * SECOND), NONE);
    assert_eq!(counted(&c), (1, 0, 0));
}

#[test]
fn what_makes_room_is_acknowledged_if_asked_for_and_so_is_what_comes_later() {
    for kind in [SubType::Exclusive, SubType::Shared] {
        let now = Instant::now();
        let mut c = limited(kind, ChunkLimits { messages: 1, ack: true, ..ChunkLimits::default() });
        deliver(&mut c, now, 0, chunk("a", 0, 3));
        deliver(&mut c, now, 1, chunk("a", 1, 3));
        deliver(&mut c, now, 2, chunk("b", 0, 2));
        assert_eq!(acked(&mut c, now), [0, 1]);
        assert!(c.take_given_up().unwrap().acknowledged);
        deliver(&mut c, now, 3, chunk("a", 2, 3));
        assert_eq!(acked(&mut c, now), [3]);
        deliver(&mut c, now, 4, chunk("b", 1, 2));
        assert_eq!((take(&mut c).len(), counted(&c)), (1, (1, 0, 1)));
        // The producer begins again.
        for (entry, id) in [(5, 0), (6, 1), (7, 2)] {
            deliver(&mut c, now, entry, chunk("a", id, 3));
        }
        assert_eq!(take(&mut c).len(), 1);
    }
}

#[test]
fn zero_is_no_limit_on_their_number() {
    let now = Instant::now();
    let mut c = limited(SubType::Exclusive, ChunkLimits { messages: 0, ..ChunkLimits::default() });
    for entry in 0..100 {
        deliver(&mut c, now, entry, chunk(&entry.to_string(), 0, 2));
    }
    for entry in 0..100 {
        deliver(&mut c, now, 100 + entry, chunk(&entry.to_string(), 1, 2));
    }
    assert_eq!((take(&mut c).len(), counted(&c)), (100, (0, 0, 0)));
}

#[test]
fn a_message_that_waits_too_long_is_acknowledged_if_asked_for() {
    let now = Instant::now();
    let mut c = limited(SubType::Exclusive, ChunkLimits { ack: true, ..ChunkLimits::default() });
    deliver(&mut c, now, 0, chunk("a", 0, 3));
    deliver(&mut c, now + 30 * SECOND, 1, chunk("a", 1, 3));
    assert_eq!(c.poll_timeout(), Some(now + 90 * SECOND), "each chunk has it wait again");
    assert_eq!(acked(&mut c, now + 89 * SECOND), NONE);
    assert_eq!(acked(&mut c, now + 90 * SECOND), [0, 1]);
    assert_eq!(c.poll_timeout(), None);
    let given_up = c.take_given_up().unwrap();
    assert_eq!((given_up.reason, given_up.chunks, given_up.acknowledged), (Reason::Time, 2, true));
    deliver(&mut c, now + 91 * SECOND, 2, chunk("a", 2, 3));
    assert_eq!((acked(&mut c, now + 91 * SECOND), counted(&c)), (vec![2], (0, 1, 1)));
}

#[test]
fn a_message_that_has_expired_is_delivered_if_its_producer_goes_on_after_all() {
    for kind in [SubType::Exclusive, SubType::Shared] {
        let now = Instant::now();
        let late = now + 60 * SECOND;
        let mut c = limited(kind, ChunkLimits::default());
        deliver(&mut c, now, 0, chunk("a", 0, 2));
        assert_eq!(acked(&mut c, late), NONE, "it was not asked for");
        assert_eq!((counted(&c), c.take_given_up().unwrap().acknowledged), ((0, 1, 0), false));
        deliver(&mut c, late, 1, chunk("a", 1, 2));
        let expected = if kind == SubType::Shared { vec![0, 1] } else { vec![] };
        assert_eq!(again(&mut c, late), Some(expected));
        let epoch = c.epoch();
        for (entry, id) in [(0, 0), (1, 1)] {
            let delivery = hot::Delivery { consumer_epoch: epoch, ..delivery(entry, &[]) };
            c.handle_message(late, delivery, chunk("a", id, 2)).unwrap();
        }
        let taken = take(&mut c);
        assert_eq!(taken.len(), 1);
        c.ack(late, &taken[0].id);
        assert_eq!(acked(&mut c, late), [0, 1]);
    }
}

#[test]
fn zero_is_no_limit_on_their_age() {
    let now = Instant::now();
    let limits = ChunkLimits { timeout: Duration::ZERO, ack: true, ..ChunkLimits::default() };
    let mut c = limited(SubType::Exclusive, limits);
    deliver(&mut c, now, 0, single("before"));
    deliver(&mut c, now, 1, chunk("a", 0, 2));
    deliver(&mut c, now, 2, single("behind"));
    let taken = take(&mut c);
    c.ack_cumulative(now, &taken[1].id).unwrap();
    let late = now + 100_000 * SECOND;
    c.handle_timeout(late);
    assert_eq!(acks(&mut c, late), [(1, vec![0])], "it is waited for");
    deliver(&mut c, late, 3, chunk("a", 1, 2));
    assert_eq!((take(&mut c).len(), counted(&c)), (1, (0, 0, 0)));
}

#[test]
fn time_in_which_the_broker_has_no_permits_does_not_count() {
    let now = Instant::now();
    let mut c = limited(SubType::Exclusive, ChunkLimits { ack: true, ..ChunkLimits::default() });
    written(&mut c);
    deliver(&mut c, now, 0, chunk("a", 0, 2));
    // The permit of the chunk is given back, and all ten are used up now.
    for entry in 1..=10 {
        deliver(&mut c, now + 10 * SECOND, entry, single("x"));
    }
    assert_eq!(c.outstanding_permits(), -1);
    assert_eq!(c.poll_timeout(), None);
    let late = now + 1000 * SECOND;
    assert_eq!(acked(&mut c, late), NONE, "its other chunk could not come");
    take(&mut c);
    c.handle_timeout(late);
    assert!(granted(&mut c) > 0);
    assert_eq!(c.poll_timeout(), Some(late + 50 * SECOND));
    deliver(&mut c, late + 49 * SECOND, 11, chunk("a", 1, 2));
    assert_eq!((take(&mut c).len(), counted(&c)), (1, (0, 0, 0)));
}

#[test]
fn nothing_is_acknowledged_beside_an_entry_that_could_not_be_read() {
    let now = Instant::now();
    let mut c = limited(SubType::Exclusive, ChunkLimits { ack: true, messages: 1, ..ChunkLimits::default() });
    deliver(&mut c, now, 0, chunk("a", 0, 2));
    let encrypted =
        pb::MessageMetadata { encryption_keys: vec![pb::EncryptionKeys::default()], ..Default::default() };
    c.handle_message(now, delivery(1, &[]), payload(&encrypted, b"x")).unwrap_err();
    let late = now + 60 * SECOND;
    assert_eq!(acked(&mut c, late), NONE, "that entry may be the other chunk");
    assert!(!c.take_given_up().unwrap().acknowledged);
    deliver(&mut c, late, 2, chunk("a", 1, 2));
    assert_eq!((acked(&mut c, late), counted(&c)), (vec![], (0, 1, 0)));
}

#[test]
fn a_message_of_which_a_chunk_came_too_early_is_not_acknowledged_when_it_expires() {
    let now = Instant::now();
    let mut c = limited(SubType::Shared, ChunkLimits { ack: true, ..ChunkLimits::default() });
    deliver(&mut c, now, 1, chunk("a", 1, 2));
    deliver(&mut c, now, 0, chunk("a", 0, 2));
    assert_eq!(acked(&mut c, now + 60 * SECOND), NONE, "the other comes again with the next connection");
    assert_eq!(counted(&c), (0, 1, 0));
}

#[test]
fn a_message_with_a_gap_is_counted_and_stays() {
    let now = Instant::now();
    let mut c = limited(SubType::Exclusive, ChunkLimits { ack: true, ..ChunkLimits::default() });
    deliver(&mut c, now, 0, chunk("a", 0, 3));
    deliver(&mut c, now, 1, chunk("a", 2, 3));
    assert_eq!(c.take_given_up().unwrap().reason, Reason::Gap);
    assert_eq!((acked(&mut c, now + 61 * SECOND), counted(&c)), (vec![], (1, 0, 0)));
}

#[test]
fn what_was_on_its_way_at_the_end_of_a_connection_does_not_expire() {
    let now = Instant::now();
    let mut c = limited(SubType::Exclusive, ChunkLimits { ack: true, ..ChunkLimits::default() });
    deliver(&mut c, now, 0, chunk("a", 0, 2));
    c.detach();
    c.attach();
    assert_eq!((acked(&mut c, now + 61 * SECOND), counted(&c)), (vec![], (0, 0, 0)));
}
