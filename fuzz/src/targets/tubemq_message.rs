//! The contents of TubeMQ's messages: a stored message with its attributes, which is packed again
//! if a client could have packed it, and the texts about brokers, topics and partitions, which are
//! written again unchanged. The first byte chooses: 128 and above are texts, otherwise it is the
//! message's flag.

use bytes::Bytes;
use forebay_tubemq::message::{Outgoing, checksum, pack, type_hash, unpack};
use forebay_tubemq::pb::TransferedMessage;
use forebay_tubemq::topic::{
    Broker, Condition, ConsumerTopic, HeldInfo, ProducerTopic, SubscribeInfo, check_group, check_topic,
};

fn message(flag: i32, data: &[u8]) -> TransferedMessage {
    let pay_load_data = Bytes::copy_from_slice(data);
    TransferedMessage { message_id: 1, check_sum: checksum(data), pay_load_data, flag }
}

fn stored(flag: i32, data: &[u8]) {
    let Ok((payload, attributes)) = unpack(message(flag, data)) else {
        return assert_eq!(flag & 1, 1, "without attributes everything is a message");
    };
    assert!(data.ends_with(&payload));
    let wrong = TransferedMessage { check_sum: checksum(data) ^ 1, ..message(flag, data) };
    unpack(wrong).expect_err("the checksum is wrong");
    let properties: Vec<_> = attributes.properties().collect();
    let key = attributes.key();
    let outgoing = Outgoing {
        payload: &payload,
        key: key.as_deref(),
        message_type: attributes.message_type(),
        time: attributes.time(),
        properties: &properties,
    };
    if let Some(kind) = outgoing.message_type {
        type_hash(kind);
    }
    // Not everything that comes could have been sent by this client.
    let Ok(packed) = pack(&outgoing) else { return };
    let (again, known) = unpack(message(packed.flag, &packed.data)).expect("it was just packed");
    assert_eq!(again, payload);
    assert_eq!(known.key(), key);
    assert_eq!(known.message_type(), outgoing.message_type);
    assert_eq!(known.properties().collect::<Vec<_>>(), properties);
    // The 31st of February is taken for a day of March, which then stays.
    assert_eq!(known.time(), outgoing.time);
}

fn described(text: &str) {
    if let Ok(broker) = Broker::parse(text, 8123) {
        for port in [8123, 1] {
            assert_eq!(Broker::parse(&broker.to_text(port), port).unwrap(), broker);
        }
    }
    if let Ok(topic) = ProducerTopic::parse(text) {
        assert!(topic.partitions.len() <= 1 << 16);
    }
    if let Ok(topic) = ConsumerTopic::parse(text) {
        assert!(topic.partitions.len() <= 1 << 16);
    }
    let infos = [
        SubscribeInfo::parse(text, 1),
        SubscribeInfo::parse_location(text, 1),
        SubscribeInfo::parse_failure(text, 1).map(|(_, info)| info),
    ];
    for info in infos.into_iter().flatten() {
        assert_eq!(SubscribeInfo::parse(&info.to_text("client", "group"), 2).unwrap(), info);
        assert_eq!(SubscribeInfo::parse_failure(&info.to_failure(-1), 2).unwrap(), (-1, info));
    }
    if let Ok(held) = HeldInfo::parse(text) {
        assert_eq!(HeldInfo::parse(&held.to_string()).unwrap(), held);
    }
    if let Ok(condition) = Condition::parse(text) {
        assert_eq!(Condition::parse(&condition.to_string()).unwrap(), condition);
    }
    if check_topic(text).is_ok() {
        check_group(text).expect("a topic's name is a group's name");
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    if first & 0x80 == 0 {
        stored(i32::from(*first), data);
    } else if let Ok(text) = std::str::from_utf8(data) {
        described(text);
    }
}
