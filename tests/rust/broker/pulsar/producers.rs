//! Producers: receipts, deduplication, exclusive access and the quota.

use forebay_pulsar::producer::MAX_SEQUENCE_ID;

use super::*;

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
    let error = forebay_base::error::Error::new(forebay_base::error::ErrorKind::Persistence, "too big");
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
fn a_name_that_the_broker_gives_does_not_come_again_with_the_same_time() {
    let mut names: Vec<_> = (0..10)
        .map(|_| {
            // A restart after the clock was set back: the same time, and the first producer.
            let mut bench = Bench::new();
            let peer = bench.connect();
            let Command::ProducerSuccess(made) = bench.produce(peer, 1, |_| {}) else { panic!("refused") };
            made.producer_name
        })
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 10);
}

#[test]
fn a_sequence_id_that_leaves_no_room_is_refused_and_the_name_goes_on() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    bench.produce(peer, 1, |p| p.producer_name = Some("till".into()));
    for last in [MAX_SEQUENCE_ID + 1, i64::MAX as u64, u64::MAX] {
        bench.send(peer, 1, last, |_| {});
        let Command::SendError(refused) = bench.one(peer) else { panic!("{last}") };
        assert_eq!((refused.sequence_id, refused.error()), (last, pb::ServerError::NotAllowedError));
    }
    bench.send(peer, 1, 0, |_| {});
    assert_eq!(receipt_of(&bench.one(peer)), (0, 7, 0), "it is stored");
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
fn a_producer_that_waits_hears_that_another_one_has_fenced_the_topic() {
    let mut bench = Bench::new();
    let (a, b, c) = (bench.connect(), bench.connect(), bench.connect());
    let mode = |mode: i32| move |p: &mut pb::CommandProducer| p.producer_access_mode = Some(mode);
    assert!(matches!(bench.produce(a, 1, mode(1)), Command::ProducerSuccess(_)));
    let Command::ProducerSuccess(waiting) = bench.produce(b, 1, mode(2)) else { panic!() };
    assert_eq!(waiting.producer_ready, Some(false));
    assert!(matches!(bench.produce(c, 1, mode(3)), Command::ProducerSuccess(_)));
    assert!(matches!(bench.one(a), Command::CloseProducer(_)));
    let refusal = bench.one(b);
    assert_eq!(error_of(&refusal), pb::ServerError::ProducerFenced);
    assert!(matches!(refusal, Command::Error(e) if e.request_id == waiting.request_id));
    bench.broker.disconnect(bench.now, c);
    bench.settle();
    assert_eq!(bench.commands(b), [], "it waits no more");
}

#[test]
fn a_producer_that_waits_hears_that_its_topic_was_deleted() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    let mode = |mode: i32| move |p: &mut pb::CommandProducer| p.producer_access_mode = Some(mode);
    assert!(matches!(bench.produce(a, 1, mode(1)), Command::ProducerSuccess(_)));
    assert!(matches!(bench.produce(b, 1, mode(2)), Command::ProducerSuccess(_)));
    bench.broker.delete_topic(TOPIC).unwrap();
    assert!(matches!(bench.one(a), Command::CloseProducer(_)));
    assert_eq!(error_of(&bench.one(b)), pb::ServerError::TopicNotFound);
}

#[test]
fn a_full_store_refuses_producers_by_name() {
    let mut bench = Bench::with(|settings| settings.max_store = 0);
    let peer = bench.connect();
    let answer = bench.produce(peer, 1, |_| {});
    assert_eq!(error_of(&answer), pb::ServerError::ProducerBlockedQuotaExceededException);
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
