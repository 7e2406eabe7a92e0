//! Consumers at the broker: packs, commits, offsets and what they outlive.

use super::*;

#[test]
fn a_pack_comes_again_until_it_is_said_to_be_consumed() {
    let (mut bench, seat) = Bench::demo();
    for body in ["a", "b"] {
        bench.produce(seat, "demo", 0, body.as_bytes());
    }
    let taken = bench.take(seat, "c", 0, |_| {});
    assert_eq!((taken.curr_offset, taken.max_offset), (Some(0), Some(56)));
    let pack = bench.get(seat, "c", 0, false, false);
    assert_eq!(
        (bodies(&pack), pack.curr_offset, pack.max_offset),
        (vec!["a".into(), "b".into()], Some(0), Some(56))
    );
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, false)), ["a", "b"]);
    bench.produce(seat, "demo", 0, b"c");
    assert_eq!(bodies(&bench.get(seat, "c", 0, true, false)), ["c"], "the last was consumed, says the get");
    let committed = bench.commit(seat, "c", 0, true);
    assert_eq!((committed.success, committed.curr_offset), (true, Some(84)));
    let end = bench.get(seat, "c", 0, false, false);
    assert_eq!((end.err_code, end.err_msg.as_deref()), (404, Some("The request offset reached maxOffset!")));
    assert_eq!(bench.commit(seat, "c", 0, true).curr_offset, Some(84), "twice is no harm");
}

/// The confirmation was of the pack before, and its connection was given up.
#[test]
fn a_call_of_a_connection_that_was_given_up_confirms_nothing() {
    let (mut bench, old) = Bench::demo();
    let new = bench.connect();
    bench.produce(old, "demo", 0, b"a");
    bench.take(old, "c", 0, |_| {});
    assert_eq!(bodies(&bench.get(old, "c", 0, false, false)), ["a"]);
    // The connection is lost, and with it for a while a get that confirms the pack.
    assert_eq!(bodies(&bench.get(new, "c", 0, false, false)), ["a"]);
    bench.produce(new, "demo", 0, b"b");
    assert_eq!(bodies(&bench.get(new, "c", 0, true, false)), ["b"]);
    bench.produce(new, "demo", 0, b"c");
    assert_eq!(bench.get(old, "c", 0, true, false).err_code, 411, "it arrives late");
    assert_eq!(bench.commit(old, "c", 0, true).err_code, 401);
    assert_eq!(bench.take(old, "c", 0, |request| request.read_status = 2).err_code, 410, "so does a seek");
    assert_eq!(bench.take(old, "c", 0, |request| request.op_type = 32).err_code, 411);
    assert!(bench.beat_partitions(old, "c", &[0]).is_empty());
    assert_eq!(bodies(&bench.get(new, "c", 0, false, false)), ["b", "c"]);
    assert_eq!(bench.commit(new, "c", 0, true).curr_offset, Some(84));
}

#[test]
fn with_manual_commits_gets_go_on_and_a_commit_is_of_all() {
    let (mut bench, seat) = Bench::demo();
    bench.take(seat, "c", 0, |_| {});
    bench.produce(seat, "demo", 0, b"a");
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, true)), ["a"]);
    bench.produce(seat, "demo", 0, b"b");
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, true)), ["b"]);
    assert_eq!(bench.commit(seat, "c", 0, false).curr_offset, Some(0), "given back");
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, true)), ["a", "b"]);
    assert_eq!(bench.commit(seat, "c", 0, true).curr_offset, Some(56));
}

#[test]
fn only_who_holds_a_partition_reads_it() {
    let (mut bench, seat) = Bench::demo();
    bench.produce(seat, "demo", 0, b"a");
    assert_eq!(bench.get(seat, "c", 0, false, false).err_code, 411);
    assert_eq!(bench.commit(seat, "c", 0, true).err_code, 401);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
    assert_eq!(bench.take(seat, "d", 0, |_| {}).err_code, 410);
    assert_eq!(bench.beat_partitions(seat, "d", &[0]), ["412:1:127.0.0.1:8123#demo:0"]);
    assert_eq!(bench.beat_partitions(seat, "d", &[1]), ["411:1:127.0.0.1:8123#demo:1"]);
    bench.pass(Duration::from_secs(20));
    assert!(bench.beat_partitions(seat, "c", &[0]).is_empty());
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.take(seat, "d", 0, |_| {}).err_code, 410, "a heartbeat keeps it");
    bench.pass(Duration::from_secs(11));
    assert_eq!(bench.take(seat, "d", 0, |_| {}).err_code, 200, "it was silent for too long");
    assert_eq!(bench.get(seat, "c", 0, false, false).err_code, 412);
    assert_eq!(bench.commit(seat, "c", 0, true).err_code, 401);
    assert_eq!(bodies(&bench.get(seat, "d", 0, false, false)), ["a"]);
}

#[test]
fn leaving_says_whether_the_last_pack_was_consumed() {
    let (mut bench, seat) = Bench::demo();
    bench.produce(seat, "demo", 0, b"a");
    let leave = |bench: &mut Bench, client: &str, status| {
        bench.take(seat, client, 0, |request| {
            request.op_type = 32;
            request.read_status = status;
        })
    };
    assert_eq!(leave(&mut bench, "c", 0).err_code, 411, "it has no holder");
    bench.take(seat, "c", 0, |_| {});
    assert_eq!(leave(&mut bench, "d", 0).err_code, 412);
    bench.get(seat, "c", 0, false, false);
    assert_eq!(leave(&mut bench, "c", 1).curr_offset, Some(-1));
    assert_eq!(bench.take(seat, "c", 0, |_| {}).curr_offset, Some(0));
    bench.get(seat, "c", 0, false, false);
    assert_eq!(leave(&mut bench, "c", 0).err_code, 200);
    assert_eq!(bench.take(seat, "d", 0, |_| {}).curr_offset, Some(28));
    assert_eq!(bench.take(seat, "d", 0, |request| request.op_type = 33).err_code, 400);
}

#[test]
fn a_group_begins_where_its_first_member_says() {
    for (status, offset, begins) in [
        (0, None, 0),
        (1, None, 84),
        (2, None, 84),
        (0, Some(28), 28),
        (0, Some(29), 28),
        (1, Some(0), 0),
        (0, Some(9999), 84),
        (0, Some(-2), 0),
    ] {
        let (mut bench, seat) = Bench::demo();
        (0..3).for_each(|_| assert!(bench.produce(seat, "demo", 0, b"x").success));
        let begin = |request: &mut pb::RegisterRequestC2b| {
            request.read_status = status;
            request.curr_offset = offset;
        };
        assert_eq!(bench.take(seat, "c", 0, begin).curr_offset, Some(begins), "{status} {offset:?}");
    }
    let (mut bench, seat) = Bench::demo();
    bench.take(seat, "c", 0, |_| {});
    bench.produce(seat, "demo", 0, b"x");
    assert_eq!(bench.take(seat, "c", 0, |r| r.read_status = 1).curr_offset, Some(0), "it is known already");
    assert_eq!(bench.take(seat, "c", 0, |r| r.read_status = 2).curr_offset, Some(28), "always the end");
    assert_eq!(bench.take(seat, "c", 0, |r| r.curr_offset = Some(0)).curr_offset, Some(0), "back again");
}

/// The session key says so. It is that of readers of ranges.
#[test]
fn an_offset_that_is_for_one_client_only_ends_with_its_lease() {
    let passing = |request: &mut pb::RegisterRequestC2b| {
        (request.curr_offset, request.session_key) = (Some(28), Some("forebay: no offset".into()));
    };
    let groups = |bench: &Bench| bench.broker.topic_stats("demo").unwrap().subscriptions.len();
    let (mut bench, seat) = Bench::demo();
    (0..3).for_each(|_| assert!(bench.produce(seat, "demo", 0, b"x").success));
    assert_eq!(bench.take(seat, "c", 0, passing).curr_offset, Some(28));
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, false)).len(), 2);
    assert_eq!(bench.commit(seat, "c", 0, true).curr_offset, Some(84));
    assert_eq!(groups(&bench), 1);
    bench.take(seat, "c", 0, |request| request.op_type = 32);
    assert_eq!(groups(&bench), 0, "the partition was given back");
    bench.take(seat, "c", 0, passing);
    bench.pass(Duration::from_secs(31));
    assert_eq!(groups(&bench), 0, "the client was silent for too long");
    bench.take(seat, "c", 0, passing);
    bench.pass(Duration::from_millis(29_990));
    assert_eq!(bench.take(seat, "d", 0, |_| {}).err_code, 410);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).curr_offset, Some(28), "from now on it is one that counts");
    bench.take(seat, "c", 0, |request| request.op_type = 32);
    assert_eq!(bench.take(seat, "c", 0, passing).curr_offset, Some(28));
    bench.take(seat, "c", 0, |request| request.op_type = 32);
    assert_eq!(groups(&bench), 1, "a group that has an offset keeps it");
}

#[test]
fn a_filter_lets_through_what_has_one_of_its_types() {
    let (mut bench, seat) = Bench::demo();
    for (attributes, body) in [("$msgType$=Aa,k=v", "1"), ("$msgType$=BB", "2"), ("k=$msgType$", "3")] {
        let request =
            pb::SendMessageRequestP2b { flag: 1, ..message("demo", 0, &attributed(attributes, body)) };
        bench.call(seat, Request::SendMessage(Box::new(request)));
    }
    bench.produce(seat, "demo", 0, b"plain");
    bench.take(seat, "c", 0, |request| request.filter_cond_str = vec!["Aa".into(), "x".into()]);
    let pack = bench.get(seat, "c", 0, false, false);
    assert_eq!(pack.messages.len(), 1, "BB has the same hash in Java");
    assert_eq!(
        (pack.messages[0].flag, pack.messages[0].pay_load_data.as_ref()),
        (1, &attributed("$msgType$=Aa,k=v", "1")[..])
    );
    assert_eq!(bench.commit(seat, "c", 0, true).curr_offset, Some(112), "with what was left out");
    bench.produce(seat, "demo", 0, b"plain");
    let pack = bench.get(seat, "c", 0, false, false);
    assert_eq!((pack.err_code, pack.messages.len()), (200, 0), "progress, not the end");
    assert_eq!(bench.get(seat, "c", 0, false, false).err_code, 404);
}

#[test]
fn a_filter_that_leaves_out_large_messages_examines_a_few_mebibytes_at_a_time() {
    let (mut bench, seat) = Bench::demo();
    (0..9).for_each(|_| assert!(bench.produce(seat, "demo", 0, &vec![7; 1 << 20]).success));
    bench.take(seat, "c", 0, |request| request.filter_cond_str = vec!["x".into()]);
    for offset in [0, 4 * 28] {
        let pack = bench.get(seat, "c", 0, false, false);
        assert_eq!((pack.err_code, pack.messages.len(), pack.curr_offset), (200, 0, Some(offset)));
    }
    assert_eq!(bench.get(seat, "c", 0, false, false).curr_offset, Some(8 * 28));
    assert_eq!(bench.get(seat, "c", 0, false, false).err_code, 404, "all were examined");
}

#[test]
fn a_pack_ends_at_half_a_mebibyte() {
    let (mut bench, seat) = Bench::demo();
    (0..9).for_each(|_| assert!(bench.produce(seat, "demo", 0, &[7; 100 << 10]).success));
    bench.take(seat, "c", 0, |_| {});
    assert_eq!(bench.get(seat, "c", 0, false, false).messages.len(), 6);
    let rest = bench.get(seat, "c", 0, true, false);
    assert_eq!((rest.messages.len(), rest.curr_data_dlt), (3, Some(0)));
}

#[test]
fn a_message_that_cannot_be_read_is_an_error_with_its_number_and_moves_nothing() {
    let (mut bench, seat) = Bench::demo();
    (0..5).for_each(|_| assert!(bench.produce(seat, "demo", 0, b"abc").success));
    bench.kill(usize::MAX);
    let damaged = "UPDATE entry SET body = x'00' WHERE id % (1 << 30) = 2";
    assert_eq!(bench.db.execute(damaged, []).unwrap(), 1);
    let seat = bench.connect();
    bench.take(seat, "c", 0, |_| {});
    assert_eq!(bench.get(seat, "c", 0, true, false).messages.len(), 2, "those before it are good");
    for _ in 0..2 {
        let stopped = bench.get(seat, "c", 0, true, false);
        let why = stopped.err_msg.unwrap();
        assert!(!stopped.success && why.contains("entry 2") && why.contains("demo:0"), "{why}");
    }
    let damage = bench.broker.stats().damage.unwrap();
    assert!(damage.contains("entry 2") && damage.contains("demo:0"), "{damage}");
    let partition = &bench.broker.topic_stats("demo").unwrap().subscriptions[0];
    assert_eq!(partition.backlog, 3);
}

#[test]
fn gets_that_come_all_at_once_are_answered_as_fast_as_their_answers_are_taken() {
    const GETS: u32 = 500;
    let (mut bench, seat) = Bench::demo();
    (0..6).for_each(|_| assert!(bench.produce(seat, "demo", 0, &[7; 100 << 10]).success));
    bench.take(seat, "c", 0, |_| {});
    let get = pb::GetMessageRequestC2b {
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: "demo".into(),
        ..Default::default()
    };
    let call = Call::new(Request::GetMessages(get), Duration::from_secs(1));
    let mut out = Transmit::default();
    (0..GETS).for_each(|serial| call.encode(serial, &mut out).unwrap());
    // A request of 40 kB that would be answered with 300 MB.
    let mut input = out.take();
    let length = input.len() / GETS as usize;
    let all = input.clone();
    let (mut answered, mut turns, mut at_once) = (0, 0, 0);
    while answered < GETS {
        let before = answered;
        bench.broker.handle_input(bench.now, seat, &mut input).unwrap();
        assert_eq!(bench.broker.may_read(seat), input.is_empty(), "no more of them is read meanwhile");
        let mut output = Transmit::default();
        bench.broker.take_output(bench.now, seat, &mut output);
        assert!(output.len() < 9 << 20, "{} bytes wait", output.len());
        let (mut bytes, mut decoder) = (output.take(), Decoder::new(28 << 20));
        while let Some(frame) = decoder.next(&mut bytes).unwrap() {
            assert_eq!(frame.serial, answered);
            answered += 1;
        }
        turns += 1;
        at_once = at_once.max(answered - before);
    }
    assert!(turns > 30 && input.is_empty(), "{turns}");
    // The last get reaches the limit.
    let mut input = all;
    input.truncate(at_once as usize * length);
    bench.broker.handle_input(bench.now, seat, &mut input).unwrap();
    bench.replies(seat);
    assert!(input.is_empty() && bench.broker.may_read(seat));
}

#[test]
fn gets_whose_filter_leaves_everything_out_take_turns_with_other_connections() {
    const GETS: u32 = 6;
    let (mut bench, seat) = Bench::demo();
    (0..24).for_each(|_| assert!(bench.produce(seat, "demo", 0, &vec![7; 1 << 20]).success));
    bench.take(seat, "c", 0, |request| request.filter_cond_str = vec!["x".into()]);
    let neighbour = bench.connect();
    let get = pb::GetMessageRequestC2b {
        client_id: "c".into(),
        group_name: "g".into(),
        topic_name: "demo".into(),
        ..Default::default()
    };
    let call = Call::new(Request::GetMessages(get), Duration::from_secs(1));
    let mut out = Transmit::default();
    (0..GETS).for_each(|serial| call.encode(serial, &mut out).unwrap());
    let (mut input, mut answered, mut turns) = (out.take(), 0, 0);
    while answered < GETS {
        // Each looks at 4 MiB and answers with a few bytes.
        bench.broker.handle_input(bench.now, seat, &mut input).unwrap();
        let now = bench.replies(seat).len() as u32;
        assert!((1..=3).contains(&now), "{now} in one turn");
        answered += now;
        turns += 1;
        let woken = std::iter::from_fn(|| bench.broker.poll_wake()).any(|id| id == seat);
        assert!(input.is_empty() || woken, "its turn comes again");
        assert_eq!(bench.broker.may_read(seat), input.is_empty(), "the rest is before what comes");
        assert!(bench.register_producer(neighbour, "other").success);
    }
    assert!(turns > 1 && input.is_empty(), "{turns}");
}

#[test]
fn offsets_and_messages_outlive_a_kill() {
    let (mut bench, seat) = Bench::demo();
    for body in ["a", "b", "c"] {
        bench.produce(seat, "demo", 1, body.as_bytes());
    }
    bench.take(seat, "c", 1, |_| {});
    bench.get(seat, "c", 1, false, false);
    bench.commit(seat, "c", 1, true);
    bench.produce(seat, "demo", 1, b"d");
    bench.kill(0);
    let seat = bench.connect();
    assert_eq!(bench.take(seat, "c", 1, |_| {}).curr_offset, Some(84));
    assert_eq!(bodies(&bench.get(seat, "c", 1, false, false)), ["d"]);
    assert_eq!(bench.produce(seat, "demo", 1, b"e").append_offset, Some(112));
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 2)]);
}

/// Before format 6 the rows of topics had no checksums. A number of partitions that is too large
/// took the time of as many look-ups.
#[test]
fn a_partition_that_a_damaged_store_lacks_is_not_replaced_by_the_next_one() {
    let (mut bench, seat) = Bench::demo();
    bench.produce(seat, "demo", 1, b"second");
    bench.kill(1);
    for (damage, partitions) in [
        ("UPDATE topic SET partitions = 10000 WHERE name = 'demo'", 2),
        ("UPDATE topic SET name = 'gone' WHERE name = 'demo:0'", 0),
    ] {
        bench.db.execute_batch(damage).unwrap();
        bench.kill(0);
        assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), partitions)]);
        let seat = bench.connect();
        bench.register_producer(seat, "p");
        assert_eq!(
            bench.beat_producer(seat, "p", &["demo"]).topic_infos,
            [format!("demo#1:{partitions}:1#1048576")]
        );
        assert_eq!(bench.produce(seat, "demo", 0, b"first").success, partitions > 0);
    }
}

#[test]
fn a_commit_is_answered_when_it_is_on_disk() {
    let (mut bench, seat) = Bench::demo();
    bench.produce(seat, "demo", 0, b"a");
    bench.take(seat, "c", 0, |_| {});
    bench.get(seat, "c", 0, false, false);
    bench.held = true;
    bench.ask(seat, &Call::new(Request::CommitOffset(commit("c", 0, true)), Duration::from_secs(1)));
    assert!(bench.replies(seat).is_empty());
    bench.write();
    assert_eq!(bench.replies(seat).len(), 1);
}

#[test]
fn an_offset_that_came_with_a_get_is_written_soon_after() {
    let (mut bench, seat) = Bench::demo();
    bench.produce(seat, "demo", 0, b"a");
    bench.take(seat, "c", 0, |_| {});
    bench.get(seat, "c", 0, false, false);
    bench.get(seat, "c", 0, true, false);
    bench.pass(Duration::from_millis(100));
    bench.kill(0);
    let seat = bench.connect();
    assert_eq!(bench.take(seat, "c", 0, |_| {}).curr_offset, Some(28));
}

#[test]
fn a_group_is_forgotten_when_it_has_held_no_partition_for_long() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let mut bench = Bench::with(|settings| settings.offset_retention = minutes(20));
    bench.broker.create_topic("demo", 2).unwrap();
    bench.settle();
    let mut seat = bench.connect();
    let groups = |bench: &Bench| bench.broker.topic_stats("demo").unwrap().subscriptions.len();
    bench.produce(seat, "demo", 0, b"a");
    bench.take(seat, "c", 0, |_| {});
    bench.get(seat, "c", 0, false, false);
    bench.commit(seat, "c", 0, true);
    bench.pass(minutes(19));
    assert_eq!(groups(&bench), 1);
    bench.kill(0);
    seat = bench.connect();
    assert_eq!(bench.take(seat, "c", 0, |_| {}).curr_offset, Some(28), "it is where it was");
    for _ in 0..18 {
        bench.pass(Duration::from_secs(20));
        assert!(bench.beat_partitions(seat, "c", &[0]).is_empty());
    }
    // It was lost if the store knew only its commit.
    bench.kill(0);
    bench.pass(minutes(17));
    assert_eq!(groups(&bench), 1);
    bench.pass(minutes(5));
    assert_eq!(groups(&bench), 0);
    bench.kill(0);
    assert_eq!(groups(&bench), 0, "the store has forgotten it as well");
}

#[test]
fn a_step_of_the_clock_makes_nothing_older() {
    const DAY: u64 = 24 * 3_600_000;
    for wall_ms in [WALL_MS + 8 * DAY, WALL_MS + 50 * 365 * DAY, WALL_MS - 3_600_000, 0] {
        for restart in [false, true] {
            let (mut bench, mut seat) = Bench::demo();
            (0..10).for_each(|_| assert!(bench.produce(seat, "demo", 0, b"unread").success));
            bench.take(seat, "c", 1, |_| {});
            bench.produce(seat, "demo", 1, b"read");
            bench.get(seat, "c", 1, false, false);
            bench.commit(seat, "c", 1, true);
            bench.settings.clock = bench.settings.clock.set(bench.now, wall_ms);
            bench.broker.set_clock(bench.settings.clock);
            if restart {
                bench.kill(0);
                seat = bench.connect();
            }
            bench.pass(Duration::from_secs(1800));
            let stats = bench.broker.topic_stats("demo").unwrap();
            assert_eq!((stats.entries, stats.subscriptions.len()), (11, 1), "{wall_ms} {restart}");
            // What comes now is as young as it is, and what was there gets old.
            assert!(bench.produce(seat, "demo", 0, b"new").success);
            bench.pass(Duration::from_secs(1900));
            assert_eq!(bench.broker.topic_stats("demo").unwrap().entries, 1, "{wall_ms} {restart}");
        }
    }
}

#[test]
fn offsets_do_not_pile_up_while_the_store_cannot_write() {
    let (mut bench, seat) = Bench::demo();
    (0..20).for_each(|_| assert!(bench.produce(seat, "demo", 0, &[7; 400 << 10]).success));
    bench.take(seat, "c", 0, |_| {});
    bench.pass(Duration::from_secs(1));
    let full = forebay_base::error::Error::new(ErrorKind::Persistence, "no space left");
    bench.broker.handle_report(bench.now, Report { jobs: 0, outcome: Outcome::Waiting(full) });
    let before = bench.broker.issued();
    for _ in 0..8 {
        assert!(!bench.get(seat, "c", 0, true, false).messages.is_empty());
        bench.pass(Duration::from_millis(200));
    }
    assert_eq!(bench.broker.issued(), before);
    bench.broker.handle_report(bench.now, Report { jobs: 0, outcome: Outcome::Written(0) });
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.broker.issued(), before + 1, "the last offset");
}

#[test]
fn messages_go_by_their_age_whoever_has_had_them() {
    let (mut bench, seat) = Bench::demo();
    bench.produce(seat, "demo", 0, b"old");
    bench.pass(Duration::from_secs(3000));
    bench.produce(seat, "demo", 0, b"new");
    bench.pass(Duration::from_secs(700));
    bench.take(seat, "c", 0, |_| {});
    let pack = bench.get(seat, "c", 0, false, false);
    assert_eq!((bodies(&pack), pack.curr_offset), (vec!["new".into()], Some(28)));
}

#[test]
fn a_message_that_cannot_be_read_goes_by_its_age_with_those_behind_it() {
    // At the front, or where the search for the age looks first.
    for damaged in [0, 3] {
        let (mut bench, seat) = Bench::demo();
        (0..6).for_each(|_| assert!(bench.produce(seat, "demo", 0, b"old").success));
        bench.kill(usize::MAX);
        let change = "UPDATE entry SET body = x'00' WHERE id % (1 << 30) = ?1";
        assert_eq!(bench.db.execute(change, [damaged]).unwrap(), 1);
        bench.pass(Duration::from_secs(3000));
        assert_eq!(bench.broker.topic_stats("demo").unwrap().entries, 6);
        bench.pass(Duration::from_secs(700));
        assert_eq!(bench.broker.topic_stats("demo").unwrap().entries, 0, "{damaged}");
    }
}
