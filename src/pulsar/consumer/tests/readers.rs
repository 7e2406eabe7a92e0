//! The position at which a reader goes on after a lost connection: the broker does not keep it.

use super::*;

fn reader() -> Consumer {
    consumer(Options { durable: false, ..Options::default() })
}

/// Loses the connection and subscribes again: what the log holds from there on is delivered.
fn reconnect(c: &mut Consumer, log: &[Payload]) {
    c.detach();
    let from = c.resume_position().map_or(0, |id| id.entry);
    c.attach();
    give_from(c, log, from);
}

fn give_from(c: &mut Consumer, log: &[Payload], from: u64) {
    for (entry, payload) in log.iter().enumerate().skip(from as usize) {
        give(c, entry as u64, payload.clone()).unwrap();
    }
}

/// The entries of the messages that are taken.
fn entries(c: &mut Consumer) -> Vec<u64> {
    take(c).iter().map(|message| message.id.entry).collect()
}

#[test]
fn a_reader_goes_on_behind_what_was_taken() {
    let mut c = consumer(Options { durable: false, ..Options::default() });
    give(&mut c, 0, batch(3)).unwrap();
    let mut out: Vec<Message> = Vec::new();
    c.take(2, &mut out);
    assert_eq!(c.resume_position(), Some(out[1].id));
    c.detach();
    c.attach();
    give(&mut c, 0, batch(3)).unwrap();
    assert_eq!(take(&mut c).iter().map(|m| m.id.batch_index).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_reader_goes_on_before_the_first_chunk_of_an_incomplete_message() {
    let mut c = reader();
    let mut log = vec![single("x"), chunk("a", 0, 2), chunk("b", 0, 2), chunk("b", 1, 2)];
    give_from(&mut c, &log, 0);
    assert_eq!(entries(&mut c), [0, 3]);
    assert_eq!(c.resume_position(), Some(MessageId::new(1, 1)));
    log.extend([chunk("a", 1, 2), single("y")]);
    reconnect(&mut c, &log);
    assert_eq!(entries(&mut c), [4, 5], "each once");
    reconnect(&mut c, &log);
    assert_eq!(entries(&mut c), [0; 0]);
}

#[test]
fn a_reader_goes_on_before_the_first_chunk_of_a_message_that_was_not_taken() {
    let mut c = reader();
    let log = [chunk("a", 0, 2), single("x"), chunk("a", 1, 2), single("y")];
    give_from(&mut c, &log, 0);
    let mut out: Vec<Message> = Vec::new();
    c.take(1, &mut out);
    assert_eq!(out[0].id.entry, 1);
    reconnect(&mut c, &log);
    assert_eq!(entries(&mut c), [2, 3]);
}

#[test]
fn a_reader_at_the_end_goes_on_where_the_end_was() {
    let mut c = reader();
    assert!(c.begins_at_end(MessageId::LATEST));
    assert!(!c.begins_at_end(MessageId::EARLIEST));
    c.place_behind(MessageId::new(1, 4));
    assert!(!c.begins_at_end(MessageId::LATEST));
    assert_eq!(c.resume_position(), Some(MessageId::new(1, 4)));
    // Brokers begin with that entry itself.
    give(&mut c, 4, single("before")).unwrap();
    give(&mut c, 5, single("x")).unwrap();
    assert_eq!(entries(&mut c), [5]);
    c.forget_place();
    assert_eq!(c.resume_position(), Some(MessageId::new(1, 5)));
    // Before the first entry of a ledger, and in a topic that never had one.
    let mut c = reader();
    c.place_behind(MessageId::new(1, u64::MAX));
    assert_eq!(c.resume_position(), Some(MessageId::new(1, 0)));
    give(&mut c, 0, single("x")).unwrap();
    assert_eq!(entries(&mut c), [0]);
    let mut c = reader();
    c.place_behind(MessageId::EARLIEST);
    assert_eq!(c.resume_position(), Some(MessageId::EARLIEST));
    give(&mut c, 0, single("x")).unwrap();
    c.forget_place();
    assert_eq!((c.resume_position(), entries(&mut c)), (None, vec![0]));
}

#[test]
fn a_reader_goes_on_with_the_first_message_that_it_did_not_take() {
    // Also if no one knows where the end was, and with all chunks of that message.
    for log in [vec![single("x"), single("y")], vec![chunk("a", 0, 2), chunk("a", 1, 2), single("y")]] {
        let mut c = reader();
        give_from(&mut c, &log, 0);
        c.detach();
        assert_eq!(c.resume_position(), Some(MessageId::new(1, 0)));
        c.attach();
        give_from(&mut c, &log, 0);
        assert_eq!(take(&mut c).len(), 2);
    }
}

#[test]
fn a_reader_that_has_sought_the_end_is_at_the_end() {
    let mut c = reader();
    give(&mut c, 0, single("x")).unwrap();
    assert_eq!(entries(&mut c), [0]);
    c.begin_seek();
    c.end_seek(Some(MessageId::LATEST), false);
    assert!(c.begins_at_end(MessageId::EARLIEST));
    c.begin_seek();
    c.end_seek_to_time(5);
    assert!(!c.begins_at_end(MessageId::LATEST));
    let durable = consumer(Options::default());
    assert!(!durable.begins_at_end(MessageId::LATEST));
}

#[test]
fn a_reader_tells_how_far_it_has_come_where_no_message_does() {
    let mut c = reader();
    assert_eq!(c.drained_to(), None);
    give(&mut c, 0, single("x")).unwrap();
    assert_eq!(c.drained_to(), None, "one waits to be taken");
    take(&mut c);
    assert_eq!(c.drained_to(), Some(MessageId::new(1, 0)));
    give(&mut c, 1, chunk("without a beginning", 1, 2)).unwrap();
    assert_eq!((c.drained_to(), c.incomplete().count()), (Some(MessageId::new(1, 1)), 0));
    give(&mut c, 2, chunk("a", 0, 2)).unwrap();
    assert_eq!(c.incomplete().map(|(first, _)| first).collect::<Vec<_>>(), [MessageId::new(1, 2)]);
    c.detach();
    assert_eq!((c.drained_to(), c.incomplete().count()), (None, 0), "what had arrived comes again");
}

#[test]
fn a_reader_does_not_go_back_to_a_message_that_was_never_completed() {
    let mut c = reader();
    let now = Instant::now();
    c.handle_message(now, delivery(0, &[]), chunk("abandoned", 0, 2)).unwrap();
    c.handle_message(now, delivery(1, &[]), single("x")).unwrap();
    assert_eq!(entries(&mut c), [1]);
    assert_eq!(c.resume_position(), Some(MessageId::new(1, 0)));
    c.handle_timeout(now + CHUNK_TIME);
    assert_eq!(c.resume_position().map(|id| id.entry), Some(1), "it has expired");
    assert_eq!((c.incomplete().count(), c.lost().count()), (0, 0));
}

#[test]
fn a_reader_tells_which_messages_it_has_given_up() {
    let mut c = reader();
    give(&mut c, 0, chunk("gap", 0, 3)).unwrap();
    give(&mut c, 1, chunk("gap", 2, 3)).unwrap();
    assert_eq!(c.lost().collect::<Vec<_>>(), [MessageId::new(1, 0)]);
}
