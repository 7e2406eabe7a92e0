//! A message between its publisher and its subscribers, and its form in the store.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::log::Entry;
use forebay_base::transmit::Transmit;
use forebay_mqtt::packet::{PacketId, Publish};
use forebay_mqtt::{Packet, Property, QoS, Sender, Version, frame};

/// A published message, without the parts that belong to one connection.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    /// The PUBLISH, without packet identifier, topic alias and subscription identifiers.
    pub(super) publish: Publish,
    /// When the message was received, in milliseconds since 1970.
    pub(super) received_ms: u64,
    /// When the message expires, in milliseconds since 1970.
    pub(super) expires_ms: Option<u64>,
}

impl Message {
    /// A message from a PUBLISH with its full topic.
    pub(super) fn new(mut publish: Publish, received_ms: u64) -> Self {
        publish.dup = false;
        publish.packet_id = None;
        publish.properties.retain(|property| !matches!(property, Property::TopicAlias(_)));
        let expiry = publish.properties.message_expiry_interval();
        let expires_ms = expiry.map(|seconds| received_ms + u64::from(*seconds) * 1000);
        Self { publish, received_ms, expires_ms }
    }

    /// Topic.
    pub(super) fn topic(&self) -> &ByteString {
        &self.publish.topic
    }

    /// Approximate memory use, and bytes in the store.
    pub(super) fn weight(&self) -> usize {
        self.publish.weight() + size_of::<Self>()
    }

    /// Whether the message has expired.
    pub(super) fn expired(&self, wall_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at| at <= wall_ms)
    }

    /// The PUBLISH for a subscriber.
    pub(super) fn outgoing(&self, form: Form<'_>, wall_ms: u64) -> Publish {
        let mut properties = self.publish.properties.clone();
        if let Some(at) = self.expires_ms {
            properties.retain(|property| !matches!(property, Property::MessageExpiryInterval(_)));
            // Rounded up: a message that is sent has not expired.
            let left = at.saturating_sub(wall_ms).div_ceil(1000);
            properties.push(Property::MessageExpiryInterval(u32::try_from(left).unwrap_or(u32::MAX)));
        }
        for id in form.ids {
            properties.push(Property::SubscriptionIdentifier(*id));
        }
        Publish {
            dup: form.dup,
            qos: form.qos,
            retain: form.retain,
            topic: self.publish.topic.clone(),
            packet_id: form.packet_id,
            properties,
            payload: self.publish.payload.clone(),
        }
    }

    /// The entry for the store: an MQTT 5 PUBLISH, which has every property.
    pub(super) fn to_entry(&self, sequence: u64) -> Entry {
        let mut publish = self.publish.clone();
        if publish.qos != QoS::AtMostOnce {
            publish.packet_id = Some(PacketId::MIN);
        }
        let mut body = Transmit::default();
        // A received message fits into a packet. Should encoding fail, the entry is skipped when it
        // is read, like a damaged one.
        let _ = Packet::Publish(publish).encode(Version::V5, &mut body);
        Entry {
            sequence,
            last_index: sequence,
            stored_ms: self.received_ms,
            run_ms: 0,
            publish_ms: self.received_ms,
            deliver_ms: 0,
            count: 1,
            flags: 0,
            hash: 0,
            checksum: None,
            body: body.take().freeze(),
        }
    }

    /// Decodes the result of [`Self::to_entry`].
    pub(super) fn from_entry(entry: &Entry) -> Option<Rc<Self>> {
        let mut body = BytesMut::from(&entry.body[..]);
        let frame = frame::Decoder::new(usize::MAX).next(&mut body).ok()??;
        match Packet::decode(&frame, Version::V5, Sender::Client).ok()? {
            Packet::Publish(publish) => Some(Rc::new(Self::new(publish, entry.publish_ms))),
            _ => None,
        }
    }
}

/// The parts of a PUBLISH that differ between subscribers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form<'a> {
    pub(super) dup: bool,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) packet_id: Option<PacketId>,
    /// Identifiers of the matching subscriptions.
    pub(super) ids: &'a [u32],
}

/// A message in the queue of a session.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    /// Position in the queue: the key of its row.
    pub(super) position: u64,
    /// Number in the store; `None` if it is not stored.
    pub(super) sequence: Option<u64>,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) ids: Rc<[u32]>,
    /// The message; `None` if only the store has it.
    pub(super) message: Option<Rc<Message>>,
    /// Memory use.
    pub(super) weight: usize,
    /// The shared subscription that it came by. Not stored: after a restart it stays with its
    /// session.
    pub(super) group: Option<u64>,
}

/// Copies bytes that would keep a much larger read buffer alive.
pub(super) fn compact(body: &mut Bytes) {
    const SMALL: usize = 16 << 10;
    if body.len() < SMALL {
        *body = Bytes::copy_from_slice(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_mqtt::Properties;

    fn message() -> Message {
        let properties = Properties::new()
            .with(Property::MessageExpiryInterval(10))
            .with(Property::TopicAlias(3))
            .with(Property::User("a".into(), "b".into()));
        let publish = Publish {
            qos: QoS::ExactlyOnce,
            retain: true,
            topic: "a/b".into(),
            packet_id: PacketId::new(7),
            properties,
            payload: Bytes::from_static(b"payload"),
            ..Publish::default()
        };
        Message::new(publish, 5_000)
    }

    #[test]
    fn the_store_gives_back_what_it_was_given() {
        let message = message();
        assert_eq!(message.expires_ms, Some(15_000));
        assert_eq!(*Message::from_entry(&message.to_entry(1)).unwrap(), message);
        let mut damaged = message.to_entry(1);
        damaged.body.truncate(4);
        assert_eq!(Message::from_entry(&damaged), None);
    }

    #[test]
    fn a_subscriber_is_told_how_long_the_message_still_lives() {
        let message = message();
        let form = Form { dup: false, qos: QoS::AtMostOnce, retain: false, packet_id: None, ids: &[4, 9] };
        let sent = message.outgoing(form, 8_500);
        assert_eq!(sent.properties.message_expiry_interval(), Some(&7));
        assert_eq!(sent.properties.topic_alias(), None);
        assert_eq!(sent.properties.subscription_identifiers().collect::<Vec<_>>(), [4, 9]);
        assert!(!message.expired(14_999) && message.expired(15_000));
    }
}
