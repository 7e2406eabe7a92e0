use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::frame::{Decoder, MAX_PAYLOAD};
use crate::message::{Outgoing, pack};
use crate::{Call, Request};
use forebay_base::transmit::Transmit;

const VISIT: pb::AuthorizedInfo =
    pb::AuthorizedInfo { visit_authorized_token: 5, auth_authorized_token: None };

const TIMEOUT: Duration = Duration::from_secs(30);

fn partition(broker: u32, id: u32) -> Partition {
    Partition { broker, id }
}

fn producer(now: Instant, partitions: &[Partition]) -> Producer {
    let mut producer = Producer::new(Options {
        client_id: "c".into(),
        topic: "demo".into(),
        address: 0x7f00_0001,
        max_pending: 100,
        send_timeout: Some(TIMEOUT),
        seed: 0,
    });
    producer.set_partitions(now, partitions.to_vec(), 1000);
    producer
}

fn push(producer: &mut Producer, now: Instant, payload: &str, key: Option<&str>) {
    let packed = pack(&Outgoing { payload: payload.as_bytes(), ..Outgoing::default() }).unwrap();
    producer.try_push(now, packed, key, payload.len()).unwrap();
}

/// A message returned by `poll_request`: its number, partition and payload.
#[derive(Clone, Debug, PartialEq)]
struct Sent(u64, u32, String);

fn send_all(producer: &mut Producer, now: Instant, broker: u32) -> Vec<Sent> {
    let mut sent = Vec::new();
    while let Some((number, request)) = producer.poll_request(now, broker, &VISIT) {
        assert_eq!(*request.visit, VISIT);
        let payload = String::from_utf8(request.message.data.to_vec()).unwrap();
        sent.push(Sent(number, request.partition, payload));
    }
    sent
}

/// A request as a broker decodes it.
fn decoded(request: Send<'_>) -> pb::SendMessageRequestP2b {
    let mut out = Transmit::default();
    Call::new(request, TIMEOUT).encode(7, &mut out).unwrap();
    let frame = Decoder::new(MAX_PAYLOAD).next(&mut out.take()).unwrap().unwrap();
    let Request::SendMessage(request) = Call::decode(&frame.payload).unwrap().request else {
        panic!("a send")
    };
    *request
}

fn answer(code: i32, offset: i64) -> Result<Response> {
    Ok(Response::SendMessage(pb::SendMessageResponseB2p {
        success: code == 200,
        err_code: code,
        err_msg: String::new(),
        require_auth: None,
        message_id: Some(offset + 1),
        append_time: Some(1000),
        append_offset: Some(offset),
    }))
}

fn disconnected() -> Error {
    Error::new(ErrorKind::Disconnected, "cut")
}

/// Offsets of stored messages and kinds of failed ones, without requests for metadata.
fn outcomes(producer: &mut Producer) -> Vec<Result<i64, ErrorKind>> {
    std::iter::from_fn(|| producer.poll_event())
        .filter_map(|event| match event {
            Event::Stored { position, .. } => Some(Ok(position.offset)),
            Event::Failed { error, .. } => Some(Err(error.kind())),
            Event::Refresh => None,
        })
        .collect()
}

fn attach(producer: &mut Producer, broker: u32) {
    assert_eq!(producer.poll_wants(), [broker], "one connection is wanted");
    producer.attach(broker);
}

#[test]
fn messages_without_a_key_go_round_and_keep_their_order() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0), partition(1, 1), partition(1, 10_000)]);
    for i in 0..6 {
        push(&mut producer, now, &i.to_string(), None);
    }
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    assert_eq!(sent.iter().map(|sent| sent.2.as_str()).collect::<String>(), "012345");
    let mut counts = HashMap::new();
    sent.iter().for_each(|sent| *counts.entry(sent.1).or_insert(0) += 1);
    assert_eq!(counts, HashMap::from([(0, 2), (1, 2), (10_000, 2)]));
}

#[test]
fn a_key_stays_in_its_partition() {
    let now = Instant::now();
    let partitions: Vec<_> = (0..16).map(|id| partition(1, id)).collect();
    let mut producer = producer(now, &partitions);
    for i in 0..64 {
        push(&mut producer, now, "x", Some(&(i % 8).to_string()));
    }
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    let of_key = |key: usize| -> Vec<u32> { sent.iter().skip(key).step_by(8).map(|sent| sent.1).collect() };
    for key in 0..8 {
        assert_eq!(of_key(key), vec![of_key(key)[0]; 8]);
    }
    let distinct: BTreeSet<u32> = (0..8).map(|key| of_key(key)[0]).collect();
    assert!(distinct.len() > 3, "{distinct:?}");
}

#[test]
fn outcomes_come_in_the_order_of_the_pushes() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0), partition(2, 0)]);
    for i in 0..4 {
        push(&mut producer, now, &i.to_string(), None);
    }
    producer.poll_wants().into_iter().for_each(|broker| producer.attach(broker));
    let (first, second) = (send_all(&mut producer, now, 1), send_all(&mut producer, now, 2));
    assert_eq!((first.len(), second.len()), (2, 2));
    let (early, late) = if first[0].0 == 0 { (first, second) } else { (second, first) };
    for Sent(number, ..) in late {
        producer.handle_answer(now, number, answer(200, number as i64));
        assert_eq!(outcomes(&mut producer), []);
    }
    producer.handle_answer(now, early[0].0, answer(200, 0));
    assert_eq!(outcomes(&mut producer), [Ok(0), Ok(1)]);
    producer.handle_answer(now, early[1].0, answer(400, 2));
    assert_eq!(outcomes(&mut producer), [Err(ErrorKind::InvalidArgument), Ok(3)]);
    assert_eq!(producer.pending_messages(), 0);
}

#[test]
fn what_a_cut_left_unanswered_is_sent_again_in_its_order() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    for i in 0..5 {
        push(&mut producer, now, &i.to_string(), None);
    }
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    producer.handle_answer(now, sent[0].0, answer(200, 0));
    push(&mut producer, now, "5", None);
    for Sent(number, ..) in &sent[1..] {
        producer.handle_answer(now, *number, Err(disconnected()));
    }
    producer.detach(now, 1, Duration::from_secs(1));
    assert_eq!(send_all(&mut producer, now, 1), []);
    assert_eq!(producer.poll_wants(), [0; 0], "not before the pause is over");
    let later = now + Duration::from_secs(1);
    assert_eq!(producer.poll_timeout(), Some(later));
    producer.handle_timeout(later);
    attach(&mut producer, 1);
    let again = send_all(&mut producer, later, 1);
    assert_eq!(again.iter().map(|sent| sent.2.as_str()).collect::<String>(), "12345");
    assert_eq!(outcomes(&mut producer), [Ok(0)]);
}

#[test]
fn a_full_partition_is_evaded_but_not_by_keys() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0), partition(1, 1)]);
    push(&mut producer, now, "free", None);
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    producer.handle_answer(now, sent[0].0, answer(419, 0));
    let again = send_all(&mut producer, now, 1);
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].1, sent[0].1);
    producer.handle_answer(now, again[0].0, answer(200, 1));
    assert_eq!(outcomes(&mut producer), [Ok(1)]);

    for text in ["k1", "k2", "k3"] {
        push(&mut producer, now, text, Some("key"));
    }
    let later = now + LONGEST_PAUSE;
    producer.handle_timeout(later);
    let (number, _) = producer.poll_request(later, 1, &VISIT).unwrap();
    producer.handle_answer(later, number, answer(419, 0));
    assert_eq!(send_all(&mut producer, later, 1), [], "those behind it wait for it");
    let due = producer.poll_timeout().unwrap();
    assert!(due > later && due <= later + LONGEST_PAUSE);
    producer.handle_timeout(due);
    let texts: Vec<_> = send_all(&mut producer, due, 1).into_iter().map(|sent| sent.2).collect();
    assert_eq!(texts, ["k1", "k2", "k3"]);
}

#[test]
fn a_broker_that_stopped_writing_is_left_alone_for_a_while() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0), partition(2, 0)]);
    push(&mut producer, now, "a", None);
    push(&mut producer, now, "b", None);
    producer.poll_wants().into_iter().for_each(|broker| producer.attach(broker));
    let refused = send_all(&mut producer, now, 1);
    producer.handle_answer(now, refused[0].0, answer(503, 0));
    let other = send_all(&mut producer, now, 2);
    assert_eq!(other.len(), 2, "its own, and the one that the other refused");
    push(&mut producer, now, "c", None);
    push(&mut producer, now, "d", None);
    assert_eq!(send_all(&mut producer, now, 1), []);
    assert_eq!(send_all(&mut producer, now, 2).len(), 2);
    let later = now + BROKER_PAUSE;
    producer.handle_timeout(later);
    push(&mut producer, later, "e", None);
    push(&mut producer, later, "f", None);
    assert_eq!(send_all(&mut producer, later, 1).len(), 1);
}

#[test]
fn a_refusal_that_does_not_pass_fails_the_message() {
    let mut now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    push(&mut producer, now, "a", None);
    attach(&mut producer, 1);
    for attempt in 1..=MAX_REFUSALS {
        let (number, _) = producer.poll_request(now, 1, &VISIT).expect("it is tried again");
        producer.handle_answer(now, number, answer(403, 0));
        let asks = std::iter::from_fn(|| producer.poll_event()).collect::<Vec<_>>();
        if attempt < MAX_REFUSALS {
            assert!(matches!(asks[..], [Event::Refresh]), "{asks:?}");
            now = producer.poll_timeout().unwrap();
            producer.handle_timeout(now);
        } else {
            assert!(
                matches!(&asks[..], [Event::Failed { error, .. }] if error.kind() == ErrorKind::NotAllowed)
            );
        }
    }
    assert_eq!(producer.pending_messages(), 0);
}

/// A master that restarts issues other tokens, and the client learns of them when it can reach the
/// master again.
#[test]
fn an_expired_visit_token_fails_no_message() {
    let mut now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    push(&mut producer, now, "a", Some("key"));
    attach(&mut producer, 1);
    for _ in 0..2 * MAX_REFUSALS {
        let (number, _) = producer.poll_request(now, 1, &VISIT).expect("it is tried again");
        producer.handle_answer(now, number, answer(415, 0));
        let asks = std::iter::from_fn(|| producer.poll_event()).collect::<Vec<_>>();
        assert!(matches!(asks[..], [Event::Refresh]), "a token is needed: {asks:?}");
        now = producer.poll_timeout().unwrap();
        producer.handle_timeout(now);
    }
    let (number, _) = producer.poll_request(now, 1, &VISIT).expect("it is tried again");
    producer.handle_answer(now, number, answer(200, 7));
    assert_eq!(outcomes(&mut producer), [Ok(7)]);
}

/// Without a limit on the time of a send, and a user that the master no longer knows.
#[test]
fn a_message_whose_token_is_refused_for_good_fails_as_not_authenticated() {
    for send_timeout in [None, Some(TIMEOUT)] {
        let begin = Instant::now();
        let mut producer = producer(begin, &[partition(1, 0)]);
        producer.options.send_timeout = send_timeout;
        let mut now = begin;
        for payload in ["a", "b"] {
            push(&mut producer, now, payload, Some("key"));
        }
        attach(&mut producer, 1);
        let mut ends = Vec::new();
        while ends.len() < 2 {
            assert!(now < begin + 2 * DENIED_LIMIT, "it never ends");
            for sent in send_all(&mut producer, now, 1) {
                producer.handle_answer(now, sent.0, answer(415, 0));
            }
            ends.extend(outcomes(&mut producer));
            now = producer.poll_timeout().unwrap_or(now);
            producer.handle_timeout(now);
            ends.extend(outcomes(&mut producer));
        }
        let expected = if send_timeout.is_some() { ErrorKind::Timeout } else { ErrorKind::Authentication };
        assert_eq!(ends, [Err(expected); 2], "{send_timeout:?}");
        let limit = send_timeout.unwrap_or(DENIED_LIMIT);
        assert!(now >= begin + limit, "a master that is replaced has that time: {:?}", now - begin);
    }
}

/// The limit is for a token that is refused all the time, not for two restarts of the master a
/// while apart.
#[test]
fn refusals_of_the_token_count_only_one_after_the_other() {
    let begin = Instant::now();
    let mut producer = producer(begin, &[partition(1, 0)]);
    producer.options.send_timeout = None;
    push(&mut producer, begin, "a", Some("key"));
    attach(&mut producer, 1);
    let (mut now, mut step, mut ends) = (begin, 0, Vec::new());
    while ends.is_empty() {
        assert!(now < begin + 3 * DENIED_LIMIT, "it never ends");
        for sent in send_all(&mut producer, now, 1) {
            let code = match step {
                0 | 2 => 415,
                1 => 419,
                _ => 200,
            };
            if step != 1 || now > begin + DENIED_LIMIT + Duration::from_secs(5) {
                step += 1;
            }
            producer.handle_answer(now, sent.0, answer(code, 0));
        }
        ends.extend(outcomes(&mut producer));
        now = producer.poll_timeout().unwrap_or(now);
        producer.handle_timeout(now);
    }
    assert!(matches!(ends[..], [Ok(_)]), "{ends:?}");
}

/// A message waits in the client while the broker is away; afterwards the token is one of before.
#[test]
fn the_time_in_which_a_broker_cannot_be_asked_does_not_count_as_refusals_of_the_token() {
    let mut now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    producer.options.send_timeout = None;
    push(&mut producer, now, "a", Some("key"));
    for _ in 0..5 {
        attach(&mut producer, 1);
        let (number, _) = producer.poll_request(now, 1, &VISIT).expect("it is tried again");
        producer.handle_answer(now, number, answer(415, 0));
        producer.detach(now, 1, DENIED_LIMIT);
        now += 2 * DENIED_LIMIT;
        producer.handle_timeout(now);
    }
    attach(&mut producer, 1);
    let (number, _) = producer.poll_request(now, 1, &VISIT).expect("it is tried again");
    producer.handle_answer(now, number, answer(200, 7));
    assert_eq!(outcomes(&mut producer), [Ok(7)]);
}

/// A message that may have been stored does not end as one that was refused.
#[test]
fn a_message_that_may_have_been_stored_ends_as_a_time_out_when_its_token_is_refused() {
    let begin = Instant::now();
    let mut producer = producer(begin, &[partition(1, 0)]);
    producer.options.send_timeout = None;
    push(&mut producer, begin, "a", Some("key"));
    attach(&mut producer, 1);
    let (mut now, mut first, mut ends) = (begin, true, Vec::new());
    while ends.is_empty() {
        assert!(now < begin + 2 * DENIED_LIMIT, "it never ends");
        for sent in send_all(&mut producer, now, 1) {
            let lost = std::mem::take(&mut first);
            let result = if lost { Err(Error::new(ErrorKind::Timeout, "no answer")) } else { answer(415, 0) };
            producer.handle_answer(now, sent.0, result);
        }
        ends.extend(outcomes(&mut producer));
        now = producer.poll_timeout().unwrap_or(now);
        producer.handle_timeout(now);
    }
    assert_eq!(ends, [Err(ErrorKind::Timeout)]);
}

#[test]
fn a_message_waits_no_longer_than_it_may() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    push(&mut producer, now, "sent", None);
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    producer.detach(now, 1, Duration::from_secs(60));
    push(&mut producer, now, "waits", None);
    producer.handle_timeout(now + TIMEOUT - Duration::from_millis(1));
    assert_eq!(outcomes(&mut producer), []);
    producer.handle_timeout(now + TIMEOUT);
    assert_eq!(outcomes(&mut producer), [Err(ErrorKind::Timeout); 2]);
    // A response that arrives afterwards is ignored.
    producer.handle_answer(now, sent[0].0, answer(200, 0));
    assert_eq!(outcomes(&mut producer), []);
}

/// The error of a timeout says whether the message may have been stored, also by an attempt on a
/// lost connection.
#[test]
fn a_timeout_says_whether_the_message_may_have_been_stored() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    push(&mut producer, now, "sent before", None);
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    producer.detach(now, 1, Duration::from_secs(60));
    producer.handle_answer(now, sent[0].0, Err(disconnected()));
    push(&mut producer, now, "never sent", None);
    producer.handle_timeout(now + TIMEOUT);
    let texts: Vec<_> = std::iter::from_fn(|| producer.poll_event())
        .map(|event| match event {
            Event::Failed { error, .. } => error.message().to_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(texts[0].ends_with("it may have been stored"), "{texts:?}");
    assert!(texts[1].ends_with("it was not stored"), "{texts:?}");
}

#[test]
fn the_window_bounds_what_is_sent_and_twice_of_it_may_wait() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    for _ in 0..100 {
        push(&mut producer, now, "x", None);
    }
    let packed = pack(&Outgoing { payload: b"x", ..Outgoing::default() }).unwrap();
    let full = producer.try_push(now, packed.clone(), None, 1).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QueueFull);
    for _ in 0..100 {
        producer.push(now, packed.clone(), None, 1).unwrap();
    }
    assert_eq!(producer.push(now, packed, None, 1).unwrap_err().kind(), ErrorKind::QueueFull);
    attach(&mut producer, 1);
    assert_eq!(send_all(&mut producer, now, 1).len(), 100);
    producer.handle_answer(now, 0, answer(200, 0));
    assert_eq!(send_all(&mut producer, now, 1).len(), 1);
    let large = Packed { data: vec![0; 1001].into(), ..Packed::default() };
    assert_eq!(producer.push(now, large, None, 1).unwrap_err().kind(), ErrorKind::MessageTooLarge);
}

#[test]
fn new_metadata_move_what_waits() {
    let now = Instant::now();
    let mut producer = producer(now, &[]);
    push(&mut producer, now, "a", None);
    push(&mut producer, now, "b", Some("k"));
    assert_eq!(producer.poll_wants(), [0; 0]);
    producer.set_partitions(now, vec![partition(1, 0)], 1000);
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    assert_eq!(sent.len(), 2);
    // The broker is gone with everything it had; its unanswered messages are sent to the new one.
    producer.set_partitions(now, vec![partition(2, 3)], 1000);
    for Sent(number, ..) in sent {
        producer.handle_answer(now, number, Err(disconnected()));
    }
    producer.detach(now, 1, Duration::ZERO);
    attach(&mut producer, 2);
    assert_eq!(send_all(&mut producer, now, 2).iter().map(|sent| sent.1).collect::<Vec<_>>(), [3, 3]);
}

#[test]
fn closing_fails_what_is_pending() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    push(&mut producer, now, "a", None);
    push(&mut producer, now, "b", None);
    attach(&mut producer, 1);
    assert!(producer.poll_request(now, 1, &VISIT).is_some());
    producer.close(&Error::new(ErrorKind::Closed, "closed"));
    assert_eq!(outcomes(&mut producer), [Err(ErrorKind::Closed); 2]);
}

#[derive(Clone, Debug)]
enum Step {
    Push(Option<u8>),
    Answer(usize, i32),
    Cut(u32),
    Wait(u64),
    Metadata(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::option::of(0_u8..4).prop_map(Step::Push),
        6 => (any::<usize>(), prop_oneof![6 => Just(200), 1 => Just(419), 1 => Just(503), 1 => Just(403), 1 => Just(400)])
            .prop_map(|(which, code)| Step::Answer(which, code)),
        1 => (1_u32..4).prop_map(Step::Cut),
        2 => (0_u64..3000).prop_map(Step::Wait),
        1 => (0_u8..8).prop_map(Step::Metadata),
    ]
}

proptest! {
    /// Whatever brokers and master do, each message ends exactly once, in the order of the pushes;
    /// none is in flight twice at a time; and a stored message was sent to a partition of the
    /// topic.
    #[test]
    fn each_message_ends_once_and_in_order(steps in proptest::collection::vec(step(), 0..200)) {
        let mut now = Instant::now();
        let mut producer = producer(now, &[partition(1, 0), partition(2, 0), partition(3, 1)]);
        let mut pushed = 0_u64;
        let mut ended = 0_u64;
        let mut open: Vec<(u32, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Push(key) => {
                    let key = key.map(|key| key.to_string());
                    let data = Packed { data: pushed.to_be_bytes().to_vec().into(), ..Packed::default() };
                    if producer.push(now, data, key.as_deref(), 1).is_ok() {
                        pushed += 1;
                    }
                }
                Step::Answer(which, code) if !open.is_empty() => {
                    let (_, number) = open.remove(which % open.len());
                    producer.handle_answer(now, number, answer(code, number as i64));
                }
                Step::Answer(..) => {}
                Step::Cut(broker) => {
                    let (cut, rest) = open.into_iter().partition(|(at, _)| *at == broker);
                    open = rest;
                    let cut: Vec<(u32, u64)> = cut;
                    for (_, number) in cut {
                        producer.handle_answer(now, number, Err(disconnected()));
                    }
                    producer.detach(now, broker, Duration::from_millis(100));
                }
                Step::Wait(ms) => {
                    now += Duration::from_millis(ms);
                    producer.handle_timeout(now);
                }
                Step::Metadata(bits) => {
                    let all = [partition(1, 0), partition(2, 0), partition(3, 1)];
                    let some = all.into_iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, p)| p);
                    producer.set_partitions(now, some.collect(), 1000);
                }
            }
            producer.poll_wants().into_iter().for_each(|broker| producer.attach(broker));
            for broker in 1..4 {
                while let Some((number, _)) = producer.poll_request(now, broker, &VISIT) {
                    prop_assert!(open.iter().all(|(_, other)| *other != number), "sent while it is open");
                    open.push((broker, number));
                }
            }
            while let Some(event) = producer.poll_event() {
                match event {
                    Event::Stored { position, .. } => {
                        prop_assert_eq!(position.offset, ended as i64);
                        ended += 1;
                    }
                    Event::Failed { .. } => ended += 1,
                    Event::Refresh => {}
                }
            }
            prop_assert_eq!(producer.pending_messages() as u64, pushed - ended);
        }
        producer.close(&disconnected());
        ended += outcomes(&mut producer).len() as u64;
        prop_assert_eq!(ended, pushed);
    }
}

#[test]
fn a_timeout_names_the_trouble_of_its_own_broker_only() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0), partition(2, 0)]);
    for payload in ["a", "b"] {
        push(&mut producer, now, payload, None);
    }
    producer.attach(2);
    let sent = send_all(&mut producer, now, 2);
    assert_eq!(sent.len(), 1);
    producer.note_trouble(1, Error::new(ErrorKind::ConnectFailed, "no route to broker 1"));
    producer.handle_timeout(now + TIMEOUT);
    let failed: Vec<Error> = std::iter::from_fn(|| producer.poll_event())
        .filter_map(|event| match event {
            Event::Failed { error, .. } => Some(error),
            _ => None,
        })
        .collect();
    assert_eq!(failed.len(), 2);
    for (number, error) in failed.iter().enumerate() {
        let of_broker_2 = sent[0].0 == number as u64;
        assert_eq!(error.message().contains("no route to broker 1"), !of_broker_2, "{error}");
    }
}

#[test]
fn a_request_says_who_sends_what_to_where() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 7), partition(1, 10_003)]);
    assert_eq!((producer.topic(), producer.partitions()), ("demo", 2));
    push(&mut producer, now, "a", None);
    attach(&mut producer, 1);
    let (number, request) = producer.poll_request(now, 1, &VISIT).unwrap();
    let request = decoded(request);
    assert!([7, 10_003].contains(&request.partition_id));
    let expected = pb::SendMessageRequestP2b {
        client_id: "c".into(),
        topic_name: "demo".into(),
        partition_id: request.partition_id,
        data: pack(&Outgoing { payload: b"a", ..Outgoing::default() }).unwrap().data,
        flag: 0,
        // The broker does not check it.
        check_sum: -1,
        sent_addr: 0x7f00_0001,
        msg_type: None,
        msg_time: None,
        auth_info: Some(VISIT),
    };
    assert_eq!(request, expected);
    let bare = pb::SendMessageResponseB2p { success: true, err_code: 200, ..Default::default() };
    producer.handle_answer(now, number, Ok(Response::SendMessage(bare)));
    let Some(Event::Stored { position, .. }) = producer.poll_event() else { panic!("it is stored") };
    assert_eq!((position.broker, position.partition as i32, position.time), (1, expected.partition_id, -1));
}

#[test]
fn a_message_as_large_as_the_topic_takes_is_accepted_and_one_byte_more_is_not() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    let of = |size| pack(&Outgoing { payload: &vec![0; size], ..Outgoing::default() }).unwrap();
    let room = 1001 - of(1).data.len();
    producer.try_push(now, of(room), None, room).unwrap();
    let error = producer.try_push(now, of(room + 1), None, room + 1).unwrap_err();
    assert_eq!((error.kind(), producer.pending_messages()), (ErrorKind::MessageTooLarge, 1));
}

#[test]
fn a_broker_that_stopped_writing_is_asked_again_after_its_pause_with_all_its_partitions() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0), partition(1, 1)]);
    for key in 0..8 {
        push(&mut producer, now, "x", Some(&key.to_string()));
    }
    attach(&mut producer, 1);
    let (number, _) = producer.poll_request(now, 1, &VISIT).unwrap();
    producer.handle_answer(now, number, answer(503, 0));
    assert!(matches!(producer.poll_event(), Some(Event::Refresh)), "the master may know better");
    let before = now + BROKER_PAUSE - Duration::from_millis(1);
    producer.handle_timeout(before);
    assert_eq!(send_all(&mut producer, before, 1), []);
    assert_eq!(producer.poll_timeout(), Some(now + BROKER_PAUSE));
    assert_eq!(send_all(&mut producer, now + BROKER_PAUSE, 1).len(), 8, "also before the timer has run");
}

#[test]
fn a_full_partition_is_asked_again_after_pauses_that_double_up_to_a_limit() {
    let mut now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    push(&mut producer, now, "x", Some("key"));
    attach(&mut producer, 1);
    let mut pause = FIRST_PAUSE;
    for _ in 0..10 {
        let (number, _) = producer.poll_request(now, 1, &VISIT).unwrap();
        producer.handle_answer(now, number, answer(419, 0));
        assert!(producer.poll_event().is_none(), "a partition that is full is still there");
        assert_eq!(producer.poll_timeout(), Some(now + pause));
        assert_eq!(send_all(&mut producer, now + pause / 2, 1), []);
        now += pause;
        producer.handle_timeout(now);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
    let (number, _) = producer.poll_request(now, 1, &VISIT).unwrap();
    assert_eq!(producer.poll_timeout(), Some(producer.entries[0].pushed + TIMEOUT));
    producer.handle_answer(now, number, answer(200, 1));
    push(&mut producer, now, "x", Some("key"));
    let (number, _) = producer.poll_request(now, 1, &VISIT).unwrap();
    producer.handle_answer(now, number, answer(419, 0));
    assert_eq!(producer.poll_timeout(), Some(now + FIRST_PAUSE), "what was stored ends the doubling");
}

#[test]
fn what_timed_out_makes_room_for_what_waits() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    for _ in 0..100 {
        push(&mut producer, now, "lost", None);
    }
    attach(&mut producer, 1);
    assert_eq!(send_all(&mut producer, now, 1).len(), 100);
    assert_eq!(producer.poll_timeout(), Some(now + TIMEOUT));
    let later = now + TIMEOUT;
    producer.handle_timeout(later);
    assert_eq!((outcomes(&mut producer).len(), producer.poll_timeout()), (100, None));
    for _ in 0..100 {
        push(&mut producer, later, "next", None);
    }
    assert_eq!(send_all(&mut producer, later, 1).len(), 100);
}

#[test]
fn a_connection_is_wanted_for_messages_only_and_after_the_pause() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    push(&mut producer, now, "a", None);
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    producer.handle_answer(now, sent[0].0, answer(200, 0));
    let pause = Duration::from_secs(1);
    producer.detach(now, 1, pause);
    producer.handle_timeout(now + pause);
    assert!(producer.poll_wants().is_empty(), "there is nothing to send");
    push(&mut producer, now + pause, "b", None);
    assert_eq!(producer.poll_wants(), [1]);
    producer.detach(now + pause, 1, pause);
    producer.handle_timeout(now + pause);
    assert!(producer.poll_wants().is_empty(), "it has just failed");
    producer.handle_timeout(now + 2 * pause);
    assert_eq!(producer.poll_wants(), [1]);
}

#[test]
fn a_connection_outlives_a_topic_that_leaves_its_broker_for_a_while() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0)]);
    push(&mut producer, now, "a", None);
    attach(&mut producer, 1);
    let sent = send_all(&mut producer, now, 1);
    producer.set_partitions(now, vec![partition(2, 0)], 1000);
    producer.handle_answer(now, sent[0].0, answer(200, 5));
    assert_eq!(outcomes(&mut producer), [Ok(5)]);
    producer.set_partitions(now, vec![partition(1, 0)], 1000);
    push(&mut producer, now, "b", None);
    assert!(producer.poll_wants().is_empty(), "the connection is there");
    assert_eq!(send_all(&mut producer, now, 1).len(), 1);
}

#[test]
fn a_broker_that_is_left_alone_gets_no_new_messages_although_its_partitions_may_be_tried() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0), partition(2, 0)]);
    push(&mut producer, now, "a", None);
    push(&mut producer, now, "b", None);
    producer.poll_wants().into_iter().for_each(|broker| producer.attach(broker));
    let refused = send_all(&mut producer, now, 1);
    producer.handle_answer(now, refused[0].0, answer(503, 0));
    send_all(&mut producer, now, 2);
    let later = now + Duration::from_secs(1);
    producer.handle_timeout(later);
    for _ in 0..4 {
        push(&mut producer, later, "c", None);
    }
    assert_eq!(send_all(&mut producer, later, 2).len(), 4);

    // The same while it cannot be reached, when no partition has refused anything.
    let mut producer = self::producer(now, &[partition(1, 0), partition(2, 0)]);
    producer.detach(now, 1, Duration::from_secs(1));
    for _ in 0..4 {
        push(&mut producer, now, "c", None);
    }
    attach(&mut producer, 2);
    assert_eq!(send_all(&mut producer, now, 2).len(), 4);
}

#[test]
fn what_waits_for_another_partition_stays_where_it_is() {
    let now = Instant::now();
    let mut producer = producer(now, &[partition(1, 0), partition(1, 1), partition(1, 2)]);
    for _ in 0..13 {
        push(&mut producer, now, "x", None);
    }
    attach(&mut producer, 1);
    let (number, _) = producer.poll_request(now, 1, &VISIT).unwrap();
    let partitions = |producer: &Producer| -> Vec<u32> {
        producer.entries.iter().map(|entry| entry.partition.id).collect()
    };
    let before = partitions(&producer);
    producer.handle_answer(now, number, answer(419, 0));
    let after = partitions(&producer);
    let full = before[number as usize];
    for (before, after) in before.iter().zip(&after) {
        assert!(if *before == full { *after != full } else { before == after }, "{before} became {after}");
    }
}

#[test]
fn the_end_of_a_pause_is_waited_for_only_by_what_may_be_sent_then() {
    let now = Instant::now();
    for waiting in [0, 20] {
        let mut producer = producer(now, &[partition(1, 0), partition(1, 1)]);
        let count = if waiting == 0 { 1 } else { 100 + waiting };
        for _ in 0..count {
            let packed = pack(&Outgoing { payload: b"x", ..Outgoing::default() }).unwrap();
            producer.push(now, packed, None, 1).unwrap();
        }
        attach(&mut producer, 1);
        let sent = send_all(&mut producer, now, 1);
        producer.handle_answer(now, sent[0].0, answer(419, 0));
        assert_eq!(producer.poll_timeout(), Some(now + FIRST_PAUSE));
        assert_eq!(send_all(&mut producer, now, 1).len(), 1, "in another partition");
        assert_eq!(producer.poll_timeout(), Some(now + TIMEOUT), "{waiting} wait for a place in the window");
    }
}
