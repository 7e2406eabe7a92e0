//! TubeMQ's methods.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_base::transmit::Transmit;
use forebay_broker::protocol::Protocol as _;
use forebay_broker::store::Found;
use forebay_broker::tubemq::{Broker, Settings, Users};
use forebay_client::tubemq::signature;
use forebay_tubemq::command::{Call, Method, Reply, Request, Response};
use forebay_tubemq::frame::Decoder;
use forebay_tubemq::pb;

use super::{Credentials, ELSEWHERE, Ids, Reach, assert_bounded, assert_shut_out};
use crate::hostile::world::{HELD, PATIENCE, WALL_MS, World, difference};
use crate::support::tubemq::settings;

const USERS: &str = "alice:her-word\nmallory:my-word\n";
const REGISTER: i32 = 31;
const UNREGISTER: i32 = 32;
/// An address on the host of the rightful client.
const SAME_HOST: &str = "127.0.0.1:2";

/// Fields that count connections or follow the time.
const APART: [&str; 4] = ["next_connection", "caller", "now", "wakes"];
/// The same for another user: her host is known once she was admitted.
const APART_OF_OTHERS: [&str; 5] = ["next_connection", "caller", "now", "wakes", "hosts"];

/// What a call shows: a signature for the master, a visit token for the broker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    signature: Option<pb::MasterCertificateInfo>,
    token: Option<pb::AuthorizedInfo>,
}

fn shown(user: &str, password: &str, timestamp: i64, token: i64) -> Shown {
    let auth_info = pb::AuthenticateInfo {
        user_name: user.into(),
        timestamp,
        nonce: 12_345,
        oth_params: String::new(),
        signature: signature(user, password, timestamp, 12_345),
    };
    Shown {
        signature: Some(pb::MasterCertificateInfo { auth_info: Some(auth_info), authorized_token: None }),
        token: Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None }),
    }
}

/// The row of a method: its requests, and what they reach. A method without a row does not compile.
pub(crate) fn row(method: Method, ids: Ids, shown: &Shown) -> (Vec<Request>, Reach) {
    let others = ids == Ids::Others;
    let choose = |other: &str, own: &str| if others { other } else { own }.to_owned();
    let (topic, group) = (choose("demo", "hers"), choose("billing", "her-group"));
    let (producer, consumer) =
        (choose("alice-producer", "her-producer"), choose("alice-7f3a", "her-consumer"));
    let host_name = "10.9.8.7".to_owned();
    let (signature, token) = (shown.signature.clone(), shown.token.clone());
    let place = |client: &str| vec![format!("{client}@{group}#1:127.0.0.1:8123#{topic}:0")];
    let one = |request| vec![request];
    match method {
        Method::ProducerRegister => {
            let request = pb::RegisterRequestP2m {
                client_id: producer,
                topic_list: vec![topic],
                broker_check_sum: -1,
                host_name,
                auth_info: signature,
                ..Default::default()
            };
            (one(Request::ProducerRegister(request)), Reach::Handle)
        }
        Method::ProducerHeartbeat => {
            let request = pb::HeartRequestP2m {
                client_id: producer,
                topic_list: vec![topic],
                host_name,
                auth_info: signature,
                ..Default::default()
            };
            (one(Request::ProducerHeartbeat(request)), Reach::Handle)
        }
        Method::ProducerClose => {
            let request = pb::CloseRequestP2m { client_id: producer, auth_info: signature };
            (one(Request::ProducerClose(request)), Reach::Handle)
        }
        Method::ConsumerRegister => {
            let request = pb::RegisterRequestC2m {
                client_id: consumer,
                group_name: group,
                host_name,
                topic_list: vec![topic],
                auth_info: signature,
                ..Default::default()
            };
            (one(Request::ConsumerRegister(Box::new(request))), Reach::Handle)
        }
        Method::ConsumerHeartbeat => {
            let requests = [false, true].map(|report_subscribe_info| {
                Request::ConsumerHeartbeat(Box::new(pb::HeartRequestC2m {
                    client_id: consumer.clone(),
                    group_name: group.clone(),
                    subscribe_info: place(&consumer),
                    report_subscribe_info,
                    event: Some(pb::EventProto { rebalance_id: Some(1), ..Default::default() }),
                    auth_info: signature.clone(),
                    ..Default::default()
                }))
            });
            (requests.into(), Reach::Handle)
        }
        Method::ConsumerClose => {
            let request =
                pb::CloseRequestC2m { client_id: consumer, group_name: group, auth_info: signature };
            (one(Request::ConsumerClose(request)), Reach::Handle)
        }
        Method::BrokerRegister => {
            let request = pb::RegisterRequestB2m { auth_info: signature, ..Default::default() };
            (one(Request::BrokerRegister(Box::new(request))), Reach::Handle)
        }
        Method::BrokerHeartbeat => {
            let request =
                pb::HeartRequestB2m { broker_id: "1".into(), auth_info: signature, ..Default::default() };
            (one(Request::BrokerHeartbeat(Box::new(request))), Reach::Handle)
        }
        Method::BrokerClose => {
            let request = pb::CloseRequestB2m { broker_id: "1".into(), auth_info: signature };
            (one(Request::BrokerClose(request)), Reach::Handle)
        }
        Method::SendMessage => {
            let request = pb::SendMessageRequestP2b {
                client_id: producer,
                topic_name: topic,
                data: Bytes::from_static(b"forged"),
                check_sum: -1,
                auth_info: token,
                ..Default::default()
            };
            (one(Request::SendMessage(Box::new(request))), Reach::Name)
        }
        Method::PartitionRegister => {
            let requests = [REGISTER, UNREGISTER].map(|op_type| {
                Request::PartitionRegister(Box::new(pb::RegisterRequestC2b {
                    op_type,
                    client_id: consumer.clone(),
                    group_name: group.clone(),
                    topic_name: topic.clone(),
                    auth_info: token.clone(),
                    ..Default::default()
                }))
            });
            (requests.into(), Reach::Handle)
        }
        Method::PartitionHeartbeat => {
            let request = pb::HeartBeatRequestC2b {
                client_id: consumer,
                group_name: group,
                partition_info: vec![format!("1:127.0.0.1:8123#{topic}:0")],
                auth_info: token,
                ..Default::default()
            };
            (one(Request::PartitionHeartbeat(Box::new(request))), Reach::Handle)
        }
        Method::GetMessages => {
            let requests = [false, true].map(|consumed| {
                Request::GetMessages(pb::GetMessageRequestC2b {
                    client_id: consumer.clone(),
                    group_name: group.clone(),
                    topic_name: topic.clone(),
                    last_pack_consumed: Some(consumed),
                    manual_commit_offset: Some(!consumed),
                    ..Default::default()
                })
            });
            (requests.into(), Reach::Handle)
        }
        Method::CommitOffset => {
            let request = pb::CommitOffsetRequestC2b {
                client_id: consumer,
                group_name: group,
                topic_name: topic,
                last_pack_consumed: Some(true),
                ..Default::default()
            };
            (one(Request::CommitOffset(request)), Reach::Handle)
        }
        Method::BalanceRegister => {
            let request = pb::RegisterRequestC2mv2 {
                client_id: consumer,
                group_name: group,
                host_name,
                source_count: -1,
                node_id: -1,
                topic_list: vec![topic],
                auth_info: signature,
                ..Default::default()
            };
            (one(Request::BalanceRegister(Box::new(request))), Reach::Handle)
        }
        Method::BalanceHeartbeat => {
            let request = pb::HeartRequestC2mv2 {
                client_id: consumer,
                group_name: group,
                auth_info: signature,
                ..Default::default()
            };
            (one(Request::BalanceHeartbeat(Box::new(request))), Reach::Handle)
        }
        Method::PartitionMetadata => {
            let request = pb::GetPartMetaRequestC2m {
                client_id: consumer,
                group_name: group,
                auth_info: signature,
                ..Default::default()
            };
            (one(Request::PartitionMetadata(request)), Reach::Name)
        }
    }
}

pub(crate) fn encode(requests: Vec<Request>) -> Vec<u8> {
    let mut out = Transmit::default();
    for (serial, request) in requests.into_iter().enumerate() {
        Call::new(request, Duration::from_secs(10)).encode(serial as u32, &mut out).unwrap();
    }
    out.take().to_vec()
}

fn replies(mut bytes: BytesMut) -> Vec<Reply> {
    let mut decoder = Decoder::new(28 << 20);
    std::iter::from_fn(|| decoder.next(&mut bytes).unwrap())
        .map(|frame| Reply::decode(&frame.payload).unwrap())
        .collect()
}

/// A call of the rightful client, which succeeds; gives its visit token if it gets one.
fn call(world: &mut World<Broker>, id: u64, request: Request) -> Option<i64> {
    world.tell(id, &encode(vec![request])).unwrap();
    let heard = world.hear(id);
    let Some(Reply::Response { response, .. }) = replies(heard).pop() else { panic!("a response") };
    assert!(response.outcome().is_ok(), "{response:?}");
    match response {
        Response::ProducerRegister(response) => {
            response.authorized_info.map(|info| info.visit_authorized_token)
        }
        _ => None,
    }
}

fn empty() -> World<Broker> {
    let now = Instant::now();
    let settings = Settings { users: Some(Users::parse(USERS).unwrap()), ..settings(now) };
    World::new(Broker::new(settings, Found::default(), None, now), now)
}

/// A broker on which a user produces and consumes; one pack is delivered and not confirmed. Gives
/// her connection and what she shows.
fn full() -> (World<Broker>, u64, Shown) {
    let mut world = empty();
    let alice = world.connect("127.0.0.1:1");
    let mut shows = shown("alice", "her-word", WALL_MS as i64, 0);
    let (mut requests, _) = row(Method::ProducerRegister, Ids::Others, &shows);
    let token = call(&mut world, alice, requests.remove(0)).unwrap();
    shows = shown("alice", "her-word", WALL_MS as i64, token);
    for method in
        [Method::ConsumerRegister, Method::SendMessage, Method::PartitionRegister, Method::GetMessages]
    {
        let (mut requests, _) = row(method, Ids::Others, &shows);
        call(&mut world, alice, requests.remove(0));
    }
    (world, alice, shows)
}

/// What the visitor shows, on a broker whose tokens she may have seen.
fn credentials(world: &mut World<Broker>, credentials: Credentials) -> Shown {
    match credentials {
        Credentials::None => Shown::default(),
        Credentials::Wrong => shown("alice", "guessed", WALL_MS as i64, 4711),
        // A signature that was seen half a minute ago, and a token of the time before last.
        Credentials::Expired => shown("alice", "her-word", WALL_MS as i64 - 30_000, 4712),
        Credentials::Other => {
            let signed = shown("mallory", "my-word", WALL_MS as i64, 0);
            let id = world.connect(ELSEWHERE);
            let (mut requests, _) = row(Method::ProducerRegister, Ids::Own, &signed);
            let token = call(world, id, requests.remove(0)).unwrap();
            world.broker.disconnect(world.now, id);
            shown("mallory", "my-word", WALL_MS as i64, token)
        }
    }
}

#[test]
fn without_credentials_no_method_of_tubemq_gets_or_changes_anything() {
    for method in Method::ALL {
        for with in Credentials::INVALID {
            for ids in Ids::BOTH {
                let what = format!("{method:?}, {with:?}, {ids:?}");
                let mut world = full().0;
                let shown = credentials(&mut world, with);
                let (requests, _) = row(*method, ids, &shown);
                assert_shut_out(&what, &encode(requests), &mut world, &mut empty(), &APART);
            }
        }
    }
}

#[test]
fn another_user_reaches_no_client_and_no_partition_that_it_holds() {
    for method in Method::ALL {
        let (mut world, alice, hers) = full();
        let shown = credentials(&mut world, Credentials::Other);
        // Admitted: every connection begins with a heartbeat that shows her token.
        let beat = |shown: &Shown| row(Method::PartitionHeartbeat, Ids::Own, shown).0;
        let (requests, reach) = row(*method, Ids::Others, &shown);
        if reach == Reach::Name {
            continue;
        }
        let before = world.state(&APART_OF_OTHERS);
        let script = encode(beat(&shown).into_iter().chain(requests).collect());
        let visit = world.visit(ELSEWHERE, &script);
        let after = world.state(&APART_OF_OTHERS);
        assert!(before == after, "{method:?}: changed the broker: {}", difference(&before, &after));
        assert_eq!(visit.changes, 0, "{method:?}: changed the store");
        assert_bounded(&format!("{method:?}"), &visit);
        for reply in replies(BytesMut::from(&visit.output[..])).into_iter().skip(1) {
            let refused = match &reply {
                Reply::Exception(_) => true,
                // A heartbeat succeeds and names the partitions that the client does not hold.
                Reply::Response { response: Response::PartitionHeartbeat(beat), .. } => {
                    beat.has_part_failure == Some(true)
                }
                Reply::Response { response, .. } => response.outcome().is_err(),
            };
            assert!(refused, "{method:?}: {reply:?}");
        }
        assert!(world.hear(alice).is_empty(), "{method:?}: the other connection is told something");
        // The holder goes on.
        let (mut requests, _) = row(Method::CommitOffset, Ids::Others, &hers);
        call(&mut world, alice, requests.remove(0));
    }
}

#[test]
fn another_users_own_things_leave_those_of_others_alone() {
    for method in Method::ALL {
        let (mut world, alice, hers) = full();
        let shown = credentials(&mut world, Credentials::Other);
        let (requests, _) = row(*method, Ids::Own, &shown);
        let beat = row(Method::PartitionHeartbeat, Ids::Own, &shown).0;
        let visit = world.visit(ELSEWHERE, &encode(beat.into_iter().chain(requests).collect()));
        assert_bounded(&format!("{method:?}"), &visit);
        assert!(!visit.output.windows(6).any(|window| window == b"forged"), "{method:?}");
        let (mut requests, _) = row(Method::CommitOffset, Ids::Others, &hers);
        call(&mut world, alice, requests.remove(0));
    }
}

#[test]
fn a_connection_whose_token_is_no_longer_valid_gets_and_commits_nothing() {
    let (mut world, alice, hers) = full();
    let (mut requests, _) = row(Method::CommitOffset, Ids::Others, &hers);
    call(&mut world, alice, requests.remove(0));
    // Gets keep the partition, and two tokens later the one that the connection has shown is worth
    // nothing.
    for _ in 0..62 {
        world.now += Duration::from_secs(10);
        world.broker.handle_timeout(world.now);
        let _ = world.tell(alice, &encode(row(Method::GetMessages, Ids::Others, &hers).0));
        world.hear(alice);
    }
    for method in [Method::GetMessages, Method::CommitOffset] {
        world.tell(alice, &encode(row(method, Ids::Others, &hers).0)).unwrap();
        for reply in replies(world.hear(alice)) {
            let Reply::Response { response, .. } = reply else { panic!("{reply:?}") };
            assert_eq!(response.code().0, 415, "{response:?}");
        }
    }
}

#[test]
fn calls_of_a_stranger_from_a_known_host_end_in_ten_seconds_too() {
    let (mut world, ..) = full();
    let wrong = shown("alice", "guessed", WALL_MS as i64, 4711);
    for method in Method::ALL {
        let id = world.connect(SAME_HOST);
        world.tell(id, &encode(row(*method, Ids::Others, &wrong).0)).unwrap();
        assert!(world.ends(id, PATIENCE), "{method:?}");
        world.broker.disconnect(world.now, id);
    }
}

#[test]
fn a_stranger_to_tubemq_holds_little_however_much_it_asks_and_however_little_it_reads() {
    let mut world = empty();
    // A call that it may not even begin.
    let id = world.connect(ELSEWHERE);
    let mut input = BytesMut::from(&[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 1, 0, 0, 0, 100][..]);
    let mut refused = false;
    while !refused && input.len() <= 2 * HELD {
        input.extend_from_slice(&8192_u32.to_be_bytes());
        input.extend_from_slice(&[0; 8192]);
        refused = world.feed(id, &mut input).is_err();
    }
    assert!(refused, "{} bytes wait", input.len());
    // Calls that are refused, and no answer is read.
    let shown = shown("alice", "guessed", WALL_MS as i64, 4711);
    for method in Method::ALL {
        let id = world.connect(ELSEWHERE);
        let calls = encode(row(*method, Ids::Others, &shown).0);
        let (mut input, mut most) = (BytesMut::new(), 0);
        let heap = allocation_counter::measure(|| {
            for _ in 0..2000 {
                // What the broker does not take stays on the wire: the socket is read only while it
                // may be.
                if !world.broker.may_read(id) {
                    break;
                }
                input.extend_from_slice(&calls);
                if world.feed(id, &mut input).is_err() {
                    break;
                }
                most = most.max(input.len());
            }
        });
        assert!(most <= HELD, "{method:?}: {most} bytes wait");
        assert!(heap.bytes_current <= 2 * HELD as i64, "{method:?}: {} bytes", heap.bytes_current);
        world.broker.disconnect(world.now, id);
    }
}
