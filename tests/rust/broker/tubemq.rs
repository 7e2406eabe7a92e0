//! The embedded TubeMQ master and broker as calls and answers. No socket and no clock: the state machine, on a database,
//! is driven by hand.

use std::time::Duration;

use bytes::BytesMut;
use penstock::broker::protocol::Protocol as _;
use penstock::broker::tubemq::Users;
use penstock::error::ErrorKind;
use penstock::sqlite::{Outcome, Report};
use penstock::transmit::Transmit;
use penstock::tubemq::command::{Call, Reply, Request, Response};
use penstock::tubemq::frame::{Decoder, Frame};
use penstock::tubemq::pb;

use crate::support::tubemq::*;

const NO_FILTERS: &[&str] = &[];

fn attributed(attributes: &str, body: &str) -> Vec<u8> {
    [&(attributes.len() as u32).to_be_bytes(), attributes.as_bytes(), body.as_bytes()].concat()
}

/// A client's calls, which return the fields that matter here.
impl Bench {
    fn produce(&mut self, seat: u64, topic: &str, partition: i32, data: &[u8]) -> pb::SendMessageResponseB2p {
        match self.call(seat, Request::SendMessage(Box::new(message(topic, partition, data)))) {
            Response::SendMessage(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn register_producer(&mut self, seat: u64, client: &str) -> pb::RegisterResponseM2p {
        let request = pb::RegisterRequestP2m {
            client_id: client.into(),
            broker_check_sum: -1,
            host_name: "127.0.0.1".into(),
            ..Default::default()
        };
        match self.call(seat, Request::ProducerRegister(request)) {
            Response::ProducerRegister(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn beat_producer(&mut self, seat: u64, client: &str, topics: &[&str]) -> pb::HeartResponseM2p {
        let request = pb::HeartRequestP2m {
            client_id: client.into(),
            broker_check_sum: -1,
            host_name: "127.0.0.1".into(),
            topic_list: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            ..Default::default()
        };
        match self.call(seat, Request::ProducerHeartbeat(request)) {
            Response::ProducerHeartbeat(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn take(
        &mut self,
        seat: u64,
        client: &str,
        id: i32,
        change: impl FnOnce(&mut pb::RegisterRequestC2b),
    ) -> pb::RegisterResponseB2c {
        let mut request = pb::RegisterRequestC2b {
            op_type: 31,
            client_id: client.into(),
            group_name: "g".into(),
            topic_name: "demo".into(),
            partition_id: id,
            ..Default::default()
        };
        change(&mut request);
        match self.call(seat, Request::PartitionRegister(Box::new(request))) {
            Response::PartitionRegister(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn get(
        &mut self,
        seat: u64,
        client: &str,
        id: i32,
        consumed: bool,
        manual: bool,
    ) -> pb::GetMessageResponseB2c {
        let request = pb::GetMessageRequestC2b {
            client_id: client.into(),
            partition_id: id,
            group_name: "g".into(),
            topic_name: "demo".into(),
            last_pack_consumed: Some(consumed),
            manual_commit_offset: Some(manual),
            esc_flow_ctrl: Some(false),
        };
        match self.call(seat, Request::GetMessages(request)) {
            Response::GetMessages(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, seat: u64, client: &str, id: i32, consumed: bool) -> pb::CommitOffsetResponseB2c {
        match self.call(seat, Request::CommitOffset(commit(client, id, consumed))) {
            Response::CommitOffset(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn beat_partitions(&mut self, seat: u64, client: &str, partitions: &[i32]) -> Vec<String> {
        let request = pb::HeartBeatRequestC2b {
            client_id: client.into(),
            group_name: "g".into(),
            partition_info: partitions.iter().map(|id| format!("1:127.0.0.1:8123#demo:{id}")).collect(),
            ..Default::default()
        };
        match self.call(seat, Request::PartitionHeartbeat(Box::new(request))) {
            Response::PartitionHeartbeat(response) => response.failure_info,
            other => panic!("{other:?}"),
        }
    }

    fn join(
        &mut self,
        seat: u64,
        client: &str,
        topics: &[&str],
        conditions: &[&str],
    ) -> pb::RegisterResponseM2c {
        let request = pb::RegisterRequestC2m {
            client_id: client.into(),
            group_name: "g".into(),
            host_name: "127.0.0.1".into(),
            topic_list: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            topic_condition: conditions.iter().map(|condition| (*condition).to_owned()).collect(),
            ..Default::default()
        };
        match self.call(seat, Request::ConsumerRegister(Box::new(request))) {
            Response::ConsumerRegister(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn beat(
        &mut self,
        seat: u64,
        client: &str,
        held: Option<&[String]>,
        event: Option<pb::EventProto>,
    ) -> pb::HeartResponseM2c {
        let request = pb::HeartRequestC2m {
            client_id: client.into(),
            group_name: "g".into(),
            subscribe_info: held.unwrap_or_default().to_vec(),
            report_subscribe_info: held.is_some(),
            event,
            ..Default::default()
        };
        match self.call(seat, Request::ConsumerHeartbeat(Box::new(request))) {
            Response::ConsumerHeartbeat(response) => *response,
            other => panic!("{other:?}"),
        }
    }

    /// A topic with two partitions.
    fn demo() -> (Self, u64) {
        let mut bench = Self::new();
        bench.broker.create_topic("demo", 2).unwrap();
        bench.settle();
        let seat = bench.connect();
        (bench, seat)
    }
}

fn commit(client: &str, id: i32, consumed: bool) -> pb::CommitOffsetRequestC2b {
    pb::CommitOffsetRequestC2b {
        client_id: client.into(),
        topic_name: "demo".into(),
        partition_id: id,
        group_name: "g".into(),
        last_pack_consumed: Some(consumed),
    }
}

fn bodies(response: &pb::GetMessageResponseB2c) -> Vec<String> {
    let text = |m: &pb::TransferedMessage| String::from_utf8(m.pay_load_data.to_vec()).unwrap();
    response.messages.iter().map(text).collect()
}

fn done(event: &pb::EventProto) -> Option<pb::EventProto> {
    Some(pb::EventProto { status: Some(2), ..event.clone() })
}

// Producers

#[test]
fn a_producer_registers_and_is_told_where_its_topics_are() {
    let mut bench = Bench::new();
    let seat = bench.connect();
    let registered = bench.register_producer(seat, "p");
    assert!(registered.success);
    assert_eq!(registered.broker_infos, ["1:127.0.0.1:8123"]);
    assert_eq!(registered.appd_config.unwrap().max_msg_size, Some(1 << 20));
    let beat = bench.beat_producer(seat, "p", &["demo", "not a name"]);
    assert_eq!(beat.topic_infos, ["demo#1:2:1#1048576"], "it has come into being; the other cannot");
    assert_eq!(beat.broker_check_sum, registered.broker_check_sum);
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 2)]);
}

#[test]
fn topics_do_not_come_into_being_unless_they_may() {
    let mut bench = Bench::with(|settings| settings.auto_create = false);
    let seat = bench.connect();
    bench.register_producer(seat, "p");
    assert!(bench.beat_producer(seat, "p", &["demo"]).topic_infos.is_empty());
    assert_eq!(bench.join(seat, "c", &["demo"], &[]).err_code, 431);
    bench.broker.create_topic("demo", 5).unwrap();
    assert_eq!(bench.beat_producer(seat, "p", &["demo"]).topic_infos, ["demo#1:5:1#1048576"]);
    assert!(bench.broker.create_topic("demo", 5).is_err());
    assert!(bench.broker.create_topic("de mo", 5).is_err());
}

#[test]
fn a_producer_that_the_master_does_not_know_has_to_register() {
    let mut bench = Bench::new();
    let seat = bench.connect();
    assert_eq!(bench.beat_producer(seat, "p", &[]).err_code, 411);
    bench.register_producer(seat, "p");
    assert_eq!(bench.beat_producer(seat, "p", &[]).err_code, 200);
    bench.pass(Duration::from_secs(32));
    assert_eq!(bench.beat_producer(seat, "p", &[]).err_code, 411, "it was silent for too long");
}

#[test]
fn success_is_answered_when_the_message_is_on_disk() {
    let (mut bench, seat) = Bench::demo();
    bench.held = true;
    let call = Call::new(Request::SendMessage(Box::new(message("demo", 1, b"a"))), Duration::from_secs(1));
    let serial = bench.ask(seat, &call);
    assert!(bench.replies(seat).is_empty());
    let reader = bench.connect();
    bench.write();
    let replies = bench.replies(seat);
    let [(answered, Reply::Response { response: Response::SendMessage(sent), .. })] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((*answered, sent.success, sent.append_offset), (serial, true, Some(0)));
    assert_eq!(sent.append_time, Some(WALL_MS as i64));
    bench.take(reader, "c", 1, |_| {});
    assert_eq!(bodies(&bench.get(reader, "c", 1, false, false)), ["a"]);
    assert_eq!(bench.produce(seat, "demo", 1, b"b").append_offset, Some(28));
}

#[test]
fn what_the_disk_does_not_take_is_refused_and_nobody_gets_it() {
    let (mut bench, seat) = Bench::demo();
    bench.take(seat, "c", 0, |_| {});
    bench.held = true;
    let call = Call::new(Request::SendMessage(Box::new(message("demo", 0, b"a"))), Duration::from_secs(1));
    bench.ask(seat, &call);
    bench.fail();
    let replies = bench.replies(seat);
    let [(_, Reply::Response { response: Response::SendMessage(sent), .. })] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((sent.success, sent.err_code), (false, 503));
    assert_eq!(bench.produce(seat, "demo", 0, b"b").err_code, 503);
    assert_eq!(bench.get(seat, "c", 0, false, false).err_code, 404);
}

#[test]
fn a_message_that_cannot_be_is_refused_with_the_servers_codes() {
    let (mut bench, seat) = Bench::demo();
    assert_eq!(bench.produce(seat, "demo", 0, b"").err_code, 400);
    assert_eq!(bench.produce(seat, "demo", 0, &vec![0; (1 << 20) + (10 << 10)]).err_code, 200);
    assert_eq!(bench.produce(seat, "demo", 0, &vec![0; (1 << 20) + (10 << 10) + 1]).err_code, 400);
    assert_eq!(bench.produce(seat, "demo", 2, b"x").err_code, 403);
    assert_eq!(bench.produce(seat, "demo", 10_000, b"x").err_code, 403, "a store without readers");
    assert_eq!(bench.produce(seat, "demo", -1, b"x").err_code, 403);
    assert_eq!(bench.produce(seat, "other", 0, b"x").err_code, 403);
    let sent = |bench: &mut Bench, check_sum| {
        let request = pb::SendMessageRequestP2b { check_sum, ..message("demo", 0, b"hello") };
        let Response::SendMessage(sent) = bench.call(seat, Request::SendMessage(Box::new(request))) else {
            panic!("a response to a message")
        };
        sent.err_code
    };
    assert_eq!(sent(&mut bench, 907_060_870), 200);
    assert_eq!(sent(&mut bench, 907_060_871), 403);
}

#[test]
fn flags_come_out_as_they_went_in_from_memory_and_from_the_store() {
    let (mut bench, mut seat) = Bench::demo();
    let flags = [0, 1, 0x7fff_fffe, -1, i32::MIN];
    for flag in flags {
        let request = pb::SendMessageRequestP2b { flag, ..message("demo", 0, b"\0\0\0\0hello") };
        bench.call(seat, Request::SendMessage(Box::new(request)));
    }
    for _ in 0..2 {
        bench.take(seat, "c", 0, |_| {});
        let given = bench.get(seat, "c", 0, false, false);
        assert!(given.messages.iter().map(|message| message.flag).eq(flags));
        bench.kill(0);
        seat = bench.connect();
    }
}

#[test]
fn a_full_store_pushes_producers_back() {
    let mut bench = Bench::with(|settings| settings.max_store = 1000);
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let seat = bench.connect();
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, 419);
}

// Consumers at the broker

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

/// Before format 6 the rows of topics had no checksums. A number of partitions that is too large took the time of as many
/// look-ups.
#[test]
fn a_partition_that_a_damaged_store_lacks_is_not_replaced_by_the_next_one() {
    let (mut bench, seat) = Bench::demo();
    bench.produce(seat, "demo", 1, b"second");
    bench.kill(1);
    for (damage, partitions) in [
        ("UPDATE topic SET partitions = 100000 WHERE name = 'demo'", 2),
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
    let full = penstock::error::Error::new(ErrorKind::Persistence, "no space left");
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

// Groups that the master balances

#[test]
fn a_member_is_told_to_take_partitions_and_another_gets_its_share() {
    let (mut bench, seat) = Bench::demo();
    assert!(bench.join(seat, "a", &["demo"], NO_FILTERS).success);
    let first = bench.beat(seat, "a", Some(&[]), None);
    let event = first.event.unwrap();
    assert_eq!(first.not_allocated, Some(true));
    assert_eq!((event.op_type, event.status), (Some(10), Some(0)));
    let all = ["a@g#1:127.0.0.1:8123#demo:0".to_owned(), "a@g#1:127.0.0.1:8123#demo:1".to_owned()];
    assert_eq!(event.subscribe_info, all);
    let done_first = bench.beat(seat, "a", Some(&all), done(&event));
    assert_eq!((done_first.event, done_first.not_allocated), (None, Some(false)));

    assert!(bench.join(seat, "b", &["demo"], NO_FILTERS).success);
    assert_eq!(bench.beat(seat, "b", Some(&[]), None).event, None, "nothing is free yet");
    let leave = bench.beat(seat, "a", Some(&all), None).event.unwrap();
    assert_eq!((leave.op_type, &leave.subscribe_info[..]), (Some(20), &all[1..]));
    bench.beat(seat, "a", Some(&all[..1]), done(&leave));
    let take = bench.beat(seat, "b", Some(&[]), None).event.unwrap();
    assert_eq!(
        (take.op_type, &take.subscribe_info[..]),
        (Some(10), &["b@g#1:127.0.0.1:8123#demo:1".to_owned()][..])
    );

    let close = pb::CloseRequestC2m { client_id: "a".into(), group_name: "g".into(), auth_info: None };
    bench.call(seat, Request::ConsumerClose(close));
    let held = ["b@g#1:127.0.0.1:8123#demo:1".to_owned()];
    let rest = bench.beat(seat, "b", Some(&held), done(&take)).event.unwrap();
    assert_eq!(rest.subscribe_info, ["b@g#1:127.0.0.1:8123#demo:0"]);
}

#[test]
fn a_member_that_falls_silent_loses_its_partitions_at_once() {
    let (mut bench, seat) = Bench::demo();
    bench.join(seat, "a", &["demo"], NO_FILTERS);
    let event = bench.beat(seat, "a", Some(&[]), None).event.unwrap();
    let held = event.subscribe_info.clone();
    bench.beat(seat, "a", Some(&held), done(&event));
    bench.take(seat, "a", 0, |_| {});
    bench.join(seat, "b", &["demo"], NO_FILTERS);
    for _ in 0..4 {
        bench.pass(Duration::from_secs(10));
        bench.beat(seat, "b", Some(&[]), None);
        bench.beat_partitions(seat, "a", &[0]);
    }
    assert_eq!(bench.beat(seat, "a", None, None).err_code, 411);
    assert_eq!(bench.take(seat, "b", 0, |_| {}).err_code, 200);
    bench.pass(Duration::from_secs(16));
    let event = bench.beat(seat, "b", Some(&[]), None).event.unwrap();
    assert_eq!(event.subscribe_info.len(), 2);
}

#[test]
fn a_group_agrees_or_a_member_stays_out() {
    let mut bench = Bench::new();
    let seat = bench.connect();
    assert!(bench.join(seat, "a", &["demo"], &["demo#x"]).success);
    assert_eq!(bench.join(seat, "b", &["demo", "more"], &["demo#x"]).err_code, 425);
    assert_eq!(bench.join(seat, "b", &["demo"], NO_FILTERS).err_code, 426);
    assert!(bench.join(seat, "b", &["demo"], &["demo#x"]).success);
    assert_eq!(bench.join(seat, "c@d", &["demo"], &["demo#x"]).err_code, 400);
}

// Groups that balance by themselves

#[test]
fn a_member_is_one_of_as_many_as_it_says() {
    let (mut bench, seat) = Bench::demo();
    let mut register = |node_id, source_count| {
        let register = pb::RegisterRequestC2mv2 {
            client_id: "a".into(),
            group_name: "g".into(),
            host_name: "127.0.0.1".into(),
            source_count,
            node_id,
            topic_list: vec!["demo".into()],
            ..Default::default()
        };
        match bench.call(seat, Request::BalanceRegister(Box::new(register))) {
            Response::BalanceRegister(response) => response.err_code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        (register(2, 2), register(5, 2), register(-1, 2), register(i32::MAX, 2)),
        (400, 400, 400, 400)
    );
    assert_eq!((register(0, 2), register(1, 2)), (200, 200));
    assert_eq!((register(-1, -1), register(5, 0)), (200, 200), "who does not say how many may be any");
}

#[test]
fn a_member_that_balances_by_itself_is_told_of_partitions() {
    let (mut bench, seat) = Bench::demo();
    let register = pb::RegisterRequestC2mv2 {
        client_id: "a".into(),
        group_name: "g".into(),
        host_name: "127.0.0.1".into(),
        source_count: -1,
        node_id: -1,
        topic_list: vec!["demo".into()],
        ..Default::default()
    };
    let Response::BalanceRegister(registered) =
        bench.call(seat, Request::BalanceRegister(Box::new(register)))
    else {
        panic!("a response to a register")
    };
    assert_eq!(
        (registered.err_code, &registered.broker_config_list[..]),
        (200, &["1:127.0.0.1:8123".to_owned()][..])
    );
    let ask = |topics| pb::GetPartMetaRequestC2m {
        client_id: "a".into(),
        group_name: "g".into(),
        broker_config_id: registered.broker_config_id.unwrap(),
        topic_meta_info_id: topics,
        auth_info: None,
    };
    let Response::PartitionMetadata(first) = bench.call(seat, Request::PartitionMetadata(ask(-2))) else {
        panic!("a response to a question")
    };
    assert_eq!(
        (first.broker_config_list.len(), &first.topic_meta_info_list[..]),
        (0, &["demo#1:1:2:1".to_owned()][..])
    );
    let again = ask(first.topic_meta_info_id.unwrap());
    let Response::PartitionMetadata(same) = bench.call(seat, Request::PartitionMetadata(again)) else {
        panic!("a response to a question")
    };
    assert!(same.topic_meta_info_list.is_empty(), "nothing is new");
    let beat = pb::HeartRequestC2mv2 { client_id: "a".into(), group_name: "g".into(), ..Default::default() };
    let Response::BalanceHeartbeat(beaten) =
        bench.call(seat, Request::BalanceHeartbeat(Box::new(beat.clone())))
    else {
        panic!("a response to a heartbeat")
    };
    assert_eq!(beaten.err_code, 200);
    bench.pass(Duration::from_secs(32));
    let Response::BalanceHeartbeat(late) = bench.call(seat, Request::BalanceHeartbeat(Box::new(beat))) else {
        panic!("a response to a heartbeat")
    };
    assert_eq!(late.err_code, 411);
}

// Admission

/// Registers a producer with the user's signature and gives the visit token that the master answers with.
fn visit_token(bench: &mut Bench, seat: u64) -> i64 {
    let signed = pb::AuthenticateInfo {
        user_name: "user".into(),
        timestamp: WALL_MS as i64,
        nonce: 12_345,
        oth_params: String::new(),
        signature: "RLhXalsHekYJuwfCUQXEBOxNoUc%3D".into(),
    };
    let request = pb::RegisterRequestP2m {
        client_id: "p".into(),
        broker_check_sum: -1,
        host_name: "127.0.0.1".into(),
        auth_info: Some(pb::MasterCertificateInfo { auth_info: Some(signed), authorized_token: None }),
        ..Default::default()
    };
    let Response::ProducerRegister(registered) = bench.call(seat, Request::ProducerRegister(request)) else {
        panic!("a response to a register")
    };
    assert!(registered.success, "{}", registered.err_msg);
    registered.authorized_info.unwrap().visit_authorized_token
}

#[test]
fn with_users_the_master_wants_a_signature_and_the_broker_its_token() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let seat = bench.connect();
    assert_eq!(bench.register_producer(seat, "p").err_code, 415);
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, 415);
    let token = visit_token(&mut bench, seat);
    let send = |bench: &mut Bench, token| {
        let auth_info =
            Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
        let request = pb::SendMessageRequestP2b { auth_info, ..message("demo", 0, b"x") };
        let Response::SendMessage(sent) = bench.call(seat, Request::SendMessage(Box::new(request))) else {
            panic!("a response to a message")
        };
        sent.err_code
    };
    assert_eq!(send(&mut bench, token), 200);
    assert_eq!(send(&mut bench, token + 1), 415);
    bench.pass(Duration::from_secs(301));
    assert_eq!(send(&mut bench, token), 200, "the one before is good for a while");
    bench.pass(Duration::from_secs(301));
    assert_eq!(send(&mut bench, token), 415);
}

#[test]
fn a_changed_password_ends_the_visit_tokens_and_the_same_one_keeps_them() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let seat = bench.connect();
    let first = visit_token(&mut bench, seat);
    let send = |bench: &mut Bench, token| {
        let auth_info =
            Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
        let request = pb::SendMessageRequestP2b { auth_info, ..message("demo", 0, b"x") };
        let Response::SendMessage(sent) = bench.call(seat, Request::SendMessage(Box::new(request))) else {
            panic!("a response to a message")
        };
        sent.err_code
    };
    let commit = |bench: &mut Bench| bench.commit(seat, "c", 0, true).err_code;
    assert_eq!(send(&mut bench, first), 200);
    bench.pass(Duration::from_secs(301));
    let set = |bench: &mut Bench, file: &str| bench.broker.set_users(bench.now, file).unwrap();
    assert_eq!(set(&mut bench, "user:pass\nother:word"), 2);
    assert_eq!(send(&mut bench, first), 200, "the password is the same");
    assert_ne!(commit(&mut bench), 415);
    assert_eq!(set(&mut bench, "user:changed"), 1);
    assert_eq!((send(&mut bench, first), commit(&mut bench)), (415, 415));
    assert_eq!(set(&mut bench, "user:pass"), 1);
    assert_eq!((send(&mut bench, first), commit(&mut bench)), (415, 415), "what has ended stays so");
}

#[test]
fn with_users_a_connection_without_a_token_learns_and_moves_nothing() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let rightful = bench.connect();
    let token = visit_token(&mut bench, rightful);
    let visit = || Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
    let request = pb::SendMessageRequestP2b { auth_info: visit(), ..message("demo", 0, b"card number") };
    assert!(matches!(
        bench.call(rightful, Request::SendMessage(Box::new(request))),
        Response::SendMessage(sent) if sent.success
    ));
    let register = |bench: &mut Bench, seat, client: &str, auth_info| {
        let request = pb::RegisterRequestC2b {
            op_type: 31,
            client_id: client.into(),
            group_name: "billing".into(),
            topic_name: "demo".into(),
            partition_id: 0,
            read_status: 0,
            auth_info,
            ..Default::default()
        };
        let Response::PartitionRegister(answer) =
            bench.call(seat, Request::PartitionRegister(Box::new(request)))
        else {
            panic!("a response to a register")
        };
        answer
    };
    let get = |bench: &mut Bench, seat, client: &str| {
        let request = pb::GetMessageRequestC2b {
            client_id: client.into(),
            partition_id: 0,
            group_name: "billing".into(),
            topic_name: "demo".into(),
            last_pack_consumed: Some(false),
            ..Default::default()
        };
        let Response::GetMessages(answer) = bench.call(seat, Request::GetMessages(request)) else {
            panic!("a response to a get")
        };
        answer
    };
    let commit = |bench: &mut Bench, seat, client: &str| {
        let request = pb::CommitOffsetRequestC2b {
            client_id: client.into(),
            topic_name: "demo".into(),
            partition_id: 0,
            group_name: "billing".into(),
            last_pack_consumed: Some(true),
        };
        let Response::CommitOffset(answer) = bench.call(seat, Request::CommitOffset(request)) else {
            panic!("a response to a commit")
        };
        answer
    };
    assert!(register(&mut bench, rightful, "billing-7f3a9c", visit()).success);

    // A stranger, who does not know the holder's id, and one who does.
    for client in ["evil", "billing-7f3a9c"] {
        let stranger = bench.connect();
        let registered = register(&mut bench, stranger, client, None);
        let got = get(&mut bench, stranger, client);
        let committed = commit(&mut bench, stranger, client);
        assert_eq!([registered.err_code, got.err_code, committed.err_code], [415; 3]);
        assert!(got.messages.is_empty() && got.max_offset.is_none() && committed.max_offset.is_none());
        for text in [&registered.err_msg, got.err_msg(), &committed.err_msg] {
            assert!(!text.contains("7f3a9c"), "{text}");
        }
    }

    // Another user's connection: admitted, but the lease is bound to the connection that took it.
    let other = bench.connect();
    let refused = register(&mut bench, other, "other", visit());
    assert_eq!(refused.err_code, 410);
    assert!(!refused.err_msg.contains("7f3a9c"), "{}", refused.err_msg);
    assert_eq!(get(&mut bench, other, "billing-7f3a9c").err_code, 415);
    assert_eq!(commit(&mut bench, other, "billing-7f3a9c").err_code, 415);

    let got = get(&mut bench, rightful, "billing-7f3a9c");
    assert_eq!(got.messages.iter().map(|m| &m.pay_load_data[..]).collect::<Vec<_>>(), [b"card number"]);

    // The rightful client comes back on another connection: a heartbeat with the token binds the lease to it.
    let back = bench.connect();
    let request = pb::HeartBeatRequestC2b {
        client_id: "billing-7f3a9c".into(),
        group_name: "billing".into(),
        partition_info: vec!["1:127.0.0.1:8123#demo:0".into()],
        auth_info: visit(),
        ..Default::default()
    };
    let Response::PartitionHeartbeat(beat) = bench.call(back, Request::PartitionHeartbeat(Box::new(request)))
    else {
        panic!("a response to a heartbeat")
    };
    assert!(beat.success && beat.failure_info.is_empty(), "{beat:?}");
    assert_eq!(get(&mut bench, back, "billing-7f3a9c").messages.len(), 1);
    assert!(commit(&mut bench, back, "billing-7f3a9c").success);
}

// Invalid calls

#[test]
fn a_call_that_cannot_be_read_or_placed_is_an_exception_and_the_connection_goes_on() {
    let (mut bench, seat) = Bench::demo();
    let mut call =
        Call::new(Request::SendMessage(Box::new(message("demo", 0, b"x"))), Duration::from_secs(1));
    call.service = Some(1);
    let Reply::Exception(exception) = bench.reply(seat, &call) else { panic!("an exception") };
    assert!(!exception.fatal && exception.name.starts_with("org.apache.inlong.tubemq."));
    call.version = Some(1);
    let Reply::Exception(exception) = bench.reply(seat, &call) else { panic!("an exception") };
    assert!(exception.name.starts_with("com.tencent.tubemq."));
    // A payload that is not a message.
    bench.input(seat, &[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2]).unwrap();
    let replies = bench.replies(seat);
    let [(9, Reply::Exception(exception))] = &replies[..] else { panic!("{replies:?}") };
    assert!(exception.fatal);
    assert!(bench.produce(seat, "demo", 0, b"x").success);
    let service = Call { service: Some(2), ..Call::new(call.request, Duration::from_secs(1)) };
    assert!(matches!(bench.reply(seat, &service), Reply::Response { .. }), "as at the real broker");
}

#[test]
fn bytes_that_are_no_frame_end_the_connection() {
    let mut bench = Bench::new();
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        &[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 1, 0, 0, 0, 0],
        &[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 1, 0, 0, 0x0e, 1],
        &[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff],
    ] {
        let seat = bench.connect();
        assert!(bench.input(seat, bytes).is_err(), "{bytes:x?}");
    }
}

// Strangers

/// Connects from a host that no other connection comes from.
fn stranger(bench: &mut Bench, number: usize) -> u64 {
    bench.broker.connect(bench.now, &format!("10.0.0.{number}:5000"))
}

/// Lets time pass; gives the error that the deadline of a connection ends it with.
fn outlast(bench: &mut Bench, seat: u64, time: Duration) -> Option<ErrorKind> {
    bench.pass(time);
    let due = bench.broker.session_timeout(seat).is_some_and(|at| at <= bench.now);
    if !due {
        return None;
    }
    bench.broker.handle_session_timeout(bench.now, seat).err().map(|error| error.kind())
}

/// A frame of one call with a payload of `size` bytes, without its last byte.
fn unfinished(size: usize) -> Vec<u8> {
    let payload = bytes::Bytes::from(vec![b'x'; size]);
    let mut frame = Frame { serial: 1, payload }.to_bytes().unwrap().to_vec();
    frame.pop();
    frame
}

#[test]
fn a_connection_without_an_admitted_call_ends_after_ten_seconds() {
    for users in [None, Some(Users::parse("user:pass").unwrap())] {
        let secured = users.is_some();
        let mut bench = Bench::with(|settings| settings.users = users);
        let (silent, refused, good) =
            (stranger(&mut bench, 1), stranger(&mut bench, 2), stranger(&mut bench, 3));
        let slow = stranger(&mut bench, 4);
        bench.input(slow, &unfinished(100)).unwrap();
        bench.register_producer(refused, "p");
        visit_token(&mut bench, good);
        assert_eq!(outlast(&mut bench, silent, Duration::from_secs(9)), None);
        assert_eq!(outlast(&mut bench, silent, Duration::from_secs(1)), Some(ErrorKind::Timeout));
        assert_eq!(
            outlast(&mut bench, slow, Duration::ZERO),
            Some(ErrorKind::Timeout),
            "half a call is none"
        );
        // With users, a call without a signature admits no connection.
        assert_eq!(outlast(&mut bench, refused, Duration::ZERO).is_some(), secured);
        assert_eq!(outlast(&mut bench, good, Duration::ZERO), None);
        let second = stranger(&mut bench, 3);
        assert_eq!(outlast(&mut bench, second, Duration::from_secs(11)), None, "its host is known");
        assert_eq!(outlast(&mut bench, good, Duration::from_secs(300)), Some(ErrorKind::Timeout), "idle");
    }
}

#[test]
fn with_users_strangers_hold_no_more_than_a_small_call_each() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    let seat = stranger(&mut bench, 1);
    bench.input(seat, &unfinished(60 << 10)).unwrap();
    let seat = stranger(&mut bench, 2);
    let error = bench.input(seat, &unfinished(1 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FrameTooLarge);
    // The first message of a producer that has registered with the master may be large.
    let master = stranger(&mut bench, 3);
    let token = visit_token(&mut bench, master);
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let producer = stranger(&mut bench, 3);
    let auth_info = Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
    let request = pb::SendMessageRequestP2b { auth_info, ..message("demo", 0, &[b'x'; 500 << 10]) };
    let Response::SendMessage(sent) = bench.call(producer, Request::SendMessage(Box::new(request))) else {
        panic!("a response to a message")
    };
    assert_eq!(sent.err_code, 200, "{}", sent.err_msg);
}

#[test]
fn the_first_message_of_a_registered_producer_may_be_large_from_any_address() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    let master = stranger(&mut bench, 1);
    let token = visit_token(&mut bench, master);
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let auth_info = Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
    let call = |client: &str, bench: &mut Bench, number: usize| {
        let request = pb::SendMessageRequestP2b {
            client_id: client.into(),
            auth_info: auth_info.clone(),
            ..message("demo", 0, &[b'x'; 500 << 10])
        };
        let mut out = Transmit::default();
        let call = Call::new(Request::SendMessage(Box::new(request)), Duration::from_secs(10));
        call.encode(1, &mut out).unwrap();
        let (seat, bytes) = (stranger(bench, number), out.take());
        let mut input = BytesMut::new();
        // As it comes from the socket.
        for piece in bytes.chunks(10_000) {
            input.extend_from_slice(piece);
            bench.broker.handle_input(bench.now, seat, &mut input)?;
            bench.settle();
        }
        Ok::<_, penstock::error::Error>(bench.replies(seat))
    };
    let sent = call("p", &mut bench, 2).unwrap();
    let [(1, Reply::Response { response: Response::SendMessage(sent), .. })] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(sent.err_code, 200, "{}", sent.err_msg);
    let error = call("q", &mut bench, 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FrameTooLarge, "the master does not know this one");
    bench.pass(bench.settings.client_timeout + Duration::from_secs(2));
    let error = call("p", &mut bench, 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FrameTooLarge, "its registration has expired");
}

#[test]
fn in_memory_what_comes_between_two_counts_of_the_space_counts() {
    let mut bench = Bench::with(|settings| (settings.stored, settings.max_store) = (false, 100_000));
    let seat = bench.connect();
    bench.register_producer(seat, "p");
    bench.broker.create_topic("demo", 1).unwrap();
    let mut taken = 0;
    for _ in 0..20 {
        let request = Request::SendMessage(Box::new(message("demo", 0, &[b'x'; 10_000])));
        let Response::SendMessage(sent) = bench.call(seat, request) else {
            panic!("a response to a message")
        };
        taken += usize::from(sent.success);
    }
    assert!((8..=10).contains(&taken), "{taken} messages of 10,000 bytes");
}

#[test]
fn large_first_calls_share_one_budget() {
    let mut bench = Bench::new();
    let mut held = 0;
    for number in 0..200 {
        let seat = stranger(&mut bench, number);
        match bench.input(seat, &unfinished(1 << 20)) {
            Ok(()) => held += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TooManyRequests);
                bench.broker.disconnect(bench.now, seat);
            }
        }
    }
    assert!((10..=20).contains(&held), "{held} connections hold a megabyte each");
}
