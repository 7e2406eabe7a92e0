//! Pulsar's commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_broker::auth::TokenKeys;
use forebay_broker::pulsar::Broker;
use forebay_broker::store::Found;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Frame, Payload};
use forebay_pulsar::{hot, pb};

use super::{Credentials, ELSEWHERE, Ids, Reach, assert_bounded, assert_shut_out};
use crate::hostile::world::{HELD, PATIENCE, WALL_MS, World, difference};
use crate::support::pulsar::settings;

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
const TOPIC: &str = "persistent://public/default/orders";
const OWN_TOPIC: &str = "persistent://public/default/hers";

/// Fields that count connections or follow the time.
const APART: [&str; 3] = ["next_session", "now", "wakes"];

/// The ids of a command.
struct Named {
    topic: &'static str,
    subscription: &'static str,
    /// Producer, consumer, and everything else with a number.
    number: u64,
    entry: pb::MessageIdData,
}

fn named(ids: Ids) -> Named {
    let entry = |ledger_id, entry_id| pb::MessageIdData { ledger_id, entry_id, ..Default::default() };
    match ids {
        Ids::Own => Named { topic: OWN_TOPIC, subscription: "hers", number: 77, entry: entry(99, 99) },
        Ids::Others => Named { topic: TOPIC, subscription: "s", number: 1, entry: entry(7, 0) },
    }
}

/// The row of a command: the command itself, and what it reaches.
pub(crate) fn row(name: &str, credentials: Credentials, ids: Ids) -> Option<(Command, Reach)> {
    use Command as C;
    let Named { topic, subscription, number, entry } = named(ids);
    let (topic, subscription, request_id) = (topic.to_owned(), subscription.to_owned(), 4);
    let reach = match name {
        "Subscribe"
        | "Producer"
        | "PartitionedMetadata"
        | "Lookup"
        | "GetTopicsOfNamespace"
        | "WatchTopicList"
        | "GetSchema"
        | "GetOrCreateSchema" => Reach::Name,
        _ => Reach::Handle,
    };
    macro_rules! rows {
        (empty: $($empty:ident),+; $($row:ident: $command:expr,)+) => {
            match name {
                $(stringify!($empty) => C::$empty(Default::default()),)+
                $(stringify!($row) => $command,)+
                _ => return None,
            }
        };
    }
    let command = rows! {
        // Commands of a broker, and of features that this one does not have.
        empty: Connected, SendReceipt, SendError, Success, Error, ProducerSuccess, PartitionedMetadataResponse,
            LookupResponse, ConsumerStatsResponse, ReachedEndOfTopic, GetLastMessageIdResponse, ActiveConsumerChange,
            GetTopicsOfNamespaceResponse, GetSchemaResponse, AuthChallenge, AckResponse, GetOrCreateSchemaResponse,
            NewTxn, NewTxnResponse, AddPartitionToTxn, AddPartitionToTxnResponse, AddSubscriptionToTxn,
            AddSubscriptionToTxnResponse, EndTxn, EndTxnResponse, EndTxnOnPartition, EndTxnOnPartitionResponse,
            EndTxnOnSubscription, EndTxnOnSubscriptionResponse, TcClientConnectRequest, TcClientConnectResponse,
            WatchTopicListSuccess, WatchTopicUpdate, TopicMigrated,
            ScalableTopicLookup, ScalableTopicUpdate, ScalableTopicClose, ScalableTopicSubscribe,
            ScalableTopicSubscribeResponse, ScalableTopicAssignmentUpdate, WatchScalableTopics,
            WatchScalableTopicsUpdate, WatchScalableTopicsClose, WatchTcAssignments, WatchTcAssignmentsUpdate,
            WatchTcAssignmentsClose;
        Connect: C::Connect(pb::CommandConnect {
            // As a proxy would, for another.
            original_principal: (ids == Ids::Others).then(|| "alice".to_owned()),
            ..connect(credentials)
        }),
        Subscribe: C::Subscribe(Box::new(pb::CommandSubscribe {
            topic, subscription, sub_type: 1, consumer_id: number, request_id, initial_position: Some(1),
            ..Default::default()
        })),
        Producer: C::Producer(Box::new(pb::CommandProducer {
            topic, producer_id: number, request_id, ..Default::default()
        })),
        Send: C::Send(hot::Send { producer_id: number, sequence_id: 100, ..Default::default() }),
        Message: C::Message(hot::Delivery { consumer_id: number, message_id: entry, ..Default::default() }),
        Ack: C::Ack(hot::Ack {
            consumer_id: number, ack_type: 1, message_ids: vec![entry], request_id: Some(request_id),
            ..Default::default()
        }),
        Flow: C::Flow(hot::Flow { consumer_id: number, permits: 100 }),
        Unsubscribe: C::Unsubscribe(pb::CommandUnsubscribe {
            consumer_id: number, request_id, force: Some(true)
        }),
        CloseProducer: C::CloseProducer(pb::CommandCloseProducer {
            producer_id: number, request_id, ..Default::default()
        }),
        CloseConsumer: C::CloseConsumer(pb::CommandCloseConsumer {
            consumer_id: number, request_id, ..Default::default()
        }),
        RedeliverUnacknowledgedMessages: C::RedeliverUnacknowledgedMessages(
            pb::CommandRedeliverUnacknowledgedMessages { consumer_id: number, ..Default::default() }
        ),
        PartitionedMetadata: C::PartitionedMetadata(pb::CommandPartitionedTopicMetadata {
            topic, request_id, ..Default::default()
        }),
        Lookup: C::Lookup(Box::new(pb::CommandLookupTopic { topic, request_id, ..Default::default() })),
        ConsumerStats: C::ConsumerStats(pb::CommandConsumerStats { request_id, consumer_id: number }),
        Seek: C::Seek(Box::new(pb::CommandSeek {
            consumer_id: number, request_id, message_id: Some(entry), message_publish_time: None
        })),
        GetLastMessageId: C::GetLastMessageId(pb::CommandGetLastMessageId { consumer_id: number, request_id }),
        GetTopicsOfNamespace: C::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
            request_id, namespace: "public/default".into(), ..Default::default()
        })),
        WatchTopicList: C::WatchTopicList(pb::CommandWatchTopicList {
            request_id, watcher_id: number, namespace: "public/default".into(), topics_pattern: ".*".into(),
            topics_hash: None
        }),
        WatchTopicListClose: C::WatchTopicListClose(pb::CommandWatchTopicListClose {
            request_id, watcher_id: number
        }),
        GetSchema: C::GetSchema(pb::CommandGetSchema { request_id, topic, schema_version: None }),
        GetOrCreateSchema: C::GetOrCreateSchema(Box::new(pb::CommandGetOrCreateSchema {
            request_id, topic, schema: schema(b"[\"string\"]"), ..Default::default()
        })),
        AuthResponse: C::AuthResponse(pb::CommandAuthResponse {
            response: Some(pb::AuthData {
                auth_method_name: Some("token".into()),
                auth_data: token(credentials).map(Bytes::from),
            }),
            ..Default::default()
        }),
        Ping: C::Ping,
        Pong: C::Pong,
    };
    Some((command, reach))
}

fn schema(text: &'static [u8]) -> pb::Schema {
    pb::Schema {
        name: "n".into(),
        schema_data: Bytes::from_static(text),
        r#type: pb::schema::Type::Json as i32,
        ..Default::default()
    }
}

fn token(credentials: Credentials) -> Option<String> {
    let key = TokenKeys::new(KEY).unwrap();
    match credentials {
        Credentials::None => None,
        Credentials::Wrong => Some(TokenKeys::new(&[b'9'; 32]).unwrap().sign("alice", None)),
        Credentials::Expired => Some(key.sign("alice", Some(WALL_MS - 1000))),
        Credentials::Other => Some(key.sign("mallory", None)),
    }
}

fn connect_with(token: Option<String>) -> pb::CommandConnect {
    pb::CommandConnect {
        client_version: "test".into(),
        protocol_version: Some(21),
        auth_method_name: token.is_some().then(|| "token".into()),
        auth_data: token.map(Bytes::from),
        feature_flags: Some(pb::FeatureFlags { supports_auth_refresh: Some(true), ..Default::default() }),
        ..Default::default()
    }
}

fn connect(credentials: Credentials) -> pb::CommandConnect {
    connect_with(token(credentials))
}

pub(crate) fn bytes(command: Command) -> Bytes {
    bytes_with(command, b"forged")
}

fn bytes_with(command: Command, body: &[u8]) -> Bytes {
    let payload = matches!(command, Command::Send(_) | Command::Message(_)).then(|| {
        let mut metadata = BytesMut::new();
        let fields =
            pb::MessageMetadata { producer_name: "p".into(), sequence_id: 100, ..Default::default() };
        hot::encode_metadata(&fields, &mut metadata);
        Payload::build(&metadata, body)
    });
    Frame { command, payload }.to_bytes()
}

/// The CONNECT that the visitor's credentials allow, if any, and then the command.
fn script(name: &str, credentials: Credentials, ids: Ids) -> (Vec<u8>, Reach) {
    let (command, reach) =
        row(name, credentials, ids).unwrap_or_else(|| panic!("{name} has no row in the table"));
    let mut script = Vec::new();
    if credentials != Credentials::None && name != "Connect" {
        script.extend_from_slice(&bytes(Command::Connect(connect(credentials))));
    }
    script.extend_from_slice(&bytes(command));
    (script, reach)
}

fn empty() -> World<Broker> {
    let now = Instant::now();
    let mut settings = settings(now);
    settings.session.tokens = Some(Arc::new(TokenKeys::new(KEY).unwrap()));
    World::new(Broker::new(settings, Found::default(), None, now), now)
}

/// A broker on which a user produces and consumes; one message is delivered and not acknowledged.
fn full() -> (World<Broker>, u64) {
    let mut world = empty();
    let key = TokenKeys::new(KEY).unwrap();
    let alice = world.connect("127.0.0.1:1");
    let mut tell = |command| world.tell(alice, &bytes_with(command, b"card number")).unwrap();
    tell(Command::Connect(connect_with(Some(key.sign("alice", None)))));
    tell(Command::Producer(Box::new(pb::CommandProducer {
        topic: TOPIC.into(),
        producer_id: 1,
        request_id: 1,
        schema: Some(schema(b"\"string\"")),
        ..Default::default()
    })));
    tell(Command::Subscribe(Box::new(pb::CommandSubscribe {
        topic: TOPIC.into(),
        subscription: "s".into(),
        sub_type: 0,
        consumer_id: 1,
        request_id: 2,
        ..Default::default()
    })));
    for sequence_id in 0..3 {
        tell(Command::Send(hot::Send { producer_id: 1, sequence_id, ..Default::default() }));
    }
    tell(Command::Flow(hot::Flow { consumer_id: 1, permits: 1 }));
    let heard = world.hear(alice);
    assert!(heard.windows(4).any(|window| window == b"card"), "the message is under way");
    (world, alice)
}

#[test]
fn without_credentials_no_command_of_pulsar_gets_or_changes_anything() {
    for (_, name) in Command::KNOWN {
        for credentials in Credentials::INVALID {
            for ids in Ids::BOTH {
                let (script, _) = script(name, credentials, ids);
                let what = format!("{name}, {credentials:?}, {ids:?}");
                assert_shut_out(&what, &script, &mut full().0, &mut empty(), &APART);
            }
        }
    }
}

#[test]
fn another_user_reaches_no_producer_or_consumer_of_a_connection() {
    for (_, name) in Command::KNOWN {
        for ids in Ids::BOTH {
            let (script, reach) = script(name, Credentials::Other, ids);
            let what = format!("{name}, {ids:?}");
            let (mut world, alice) = full();
            let before = world.state(&APART);
            let visit = world.visit(ELSEWHERE, &script);
            assert!(world.hear(alice).is_empty(), "{what}: the other connection is told something");
            assert_bounded(&what, &visit);
            if reach == Reach::Name {
                continue;
            }
            let after = world.state(&APART);
            assert!(before == after, "{what}: changed the broker: {}", difference(&before, &after));
            assert_eq!(visit.changes, 0, "{what}: changed the store");
            // Which ids others have, it is not told either.
            assert_eq!(visit.output, empty().visit(ELSEWHERE, &script).output, "{what}");
        }
    }
}

#[test]
fn a_session_whose_token_has_expired_ends_in_ten_seconds() {
    let key = TokenKeys::new(KEY).unwrap();
    for refreshes in [false, true] {
        let (mut world, _) = full();
        let id = world.connect(ELSEWHERE);
        let mut connect = connect_with(Some(key.sign("mallory", Some(WALL_MS + 60_000))));
        connect.feature_flags.as_mut().unwrap().supports_auth_refresh = Some(refreshes);
        world.tell(id, &bytes(Command::Connect(connect))).unwrap();
        // It shows signs of life all the time, and does not answer the challenge.
        let expires = world.now + Duration::from_secs(60);
        let mut ended = false;
        while !ended && world.now < expires + 4 * PATIENCE {
            world.now += Duration::from_secs(1);
            ended = world.ends(id, Duration::ZERO) || world.tell(id, &bytes(Command::Ping)).is_err();
        }
        assert!(world.now >= expires, "it ends before its time");
        assert!(ended && world.now <= expires + PATIENCE, "{refreshes}: {:?}", world.now - expires);
    }
}

#[test]
fn a_stranger_to_pulsar_may_not_even_begin_a_large_frame() {
    let mut world = empty();
    for claimed in [64 << 10, 5 << 20, u32::MAX as usize] {
        let id = world.connect(ELSEWHERE);
        let mut input = BytesMut::from(&(claimed as u32).to_be_bytes()[..]);
        let mut refused = false;
        while !refused && input.len() <= HELD {
            input.extend_from_slice(&[0; 1024]);
            refused = world.feed(id, &mut input).is_err();
        }
        assert!(refused, "a frame of {claimed} bytes: {} wait", input.len());
    }
}
