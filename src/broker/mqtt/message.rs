//! A message between its publisher and its subscribers, and its form in the store.

use std::cell::Cell;
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
    /// When the message was received.
    pub(super) received: Moment,
    /// When the message expires, by the time that brokers have run on the store.
    pub(super) expires_run_ms: Option<u64>,
    /// Number of queues of QoS 1 and 2 that have it only in memory.
    pub(super) holders: Cell<u32>,
}

/// Stands for the end of what does not end.
pub(super) const NEVER: u64 = u64::MAX;

/// A moment by both clocks of [`crate::protocol::Clock`], in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// Time since 1970, for operators.
    pub(super) wall_ms: u64,
    /// Time that brokers have run on the store, for everything that ends after a time.
    pub(super) run_ms: u64,
}

impl Message {
    /// A message from a PUBLISH with its full topic.
    pub(super) fn new(mut publish: Publish, received: Moment) -> Self {
        publish.dup = false;
        publish.packet_id = None;
        publish.properties.retain(|property| !matches!(property, Property::TopicAlias(_)));
        let expires_run_ms = expiry_ms(&publish).map(|expiry| received.run_ms + expiry);
        Self { publish, received, expires_run_ms, holders: Cell::new(0) }
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
    pub(super) fn expired(&self, run_ms: u64) -> bool {
        self.expires_run_ms.is_some_and(|at| at <= run_ms)
    }

    /// The PUBLISH for a subscriber.
    pub(super) fn outgoing(&self, form: Form<'_>, run_ms: u64) -> Publish {
        let mut properties = self.publish.properties.clone();
        if let (Some(at), Some(interval)) =
            (self.expires_run_ms, properties.message_expiry_interval().copied())
        {
            properties.retain(|property| !matches!(property, Property::MessageExpiryInterval(_)));
            // Rounded up: a message that is sent has not expired. A kill takes the run time back by
            // up to a minute.
            let left = at.saturating_sub(run_ms).div_ceil(1000).min(interval.into());
            properties.push(Property::MessageExpiryInterval(left as u32));
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
            stored_ms: self.received.wall_ms,
            // 0 means that the message was stored when expiry went by the calendar.
            run_ms: self.received.run_ms.max(1),
            publish_ms: self.received.wall_ms,
            deliver_ms: 0,
            count: 1,
            flags: 0,
            hash: 0,
            checksum: None,
            body: body.take().freeze(),
        }
    }

    /// Decodes the result of [`Self::to_entry`].
    pub(super) fn from_entry(entry: &Entry, now: Moment) -> Option<Rc<Self>> {
        let mut body = BytesMut::from(&entry.body[..]);
        let frame = frame::Decoder::new(usize::MAX).next(&mut body).ok()??;
        match Packet::decode(&frame, Version::V5, Sender::Client).ok()? {
            Packet::Publish(publish) => {
                let received = Moment { wall_ms: entry.publish_ms, run_ms: entry.run_ms };
                let mut message = Self::new(publish, received);
                if entry.run_ms == 0 {
                    let age = now.wall_ms.saturating_sub(entry.publish_ms);
                    let left = expiry_ms(&message.publish).map(|expiry| expiry.saturating_sub(age));
                    message.expires_run_ms = left.map(|left| now.run_ms + left);
                }
                Some(Rc::new(message))
            }
            _ => None,
        }
    }
}

/// The message expiry interval in milliseconds.
fn expiry_ms(publish: &Publish) -> Option<u64> {
    publish.properties.message_expiry_interval().map(|seconds| u64::from(*seconds) * 1000)
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
    /// When it expires, by the time that brokers have run on the store; [`NEVER`] if it does not.
    /// `None` if it was not read since the broker started.
    pub(super) expires_run_ms: Option<u64>,
    /// Memory use.
    pub(super) weight: usize,
    /// The shared subscriptions that it came by. Not stored: after a restart it stays with its
    /// session.
    pub(super) groups: Box<[u64]>,
}

impl Queued {
    /// Whether it is to be acknowledged and only memory has it.
    pub(super) fn is_transient(&self) -> bool {
        self.sequence.is_none() && self.qos != QoS::AtMostOnce
    }
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

    const RECEIVED: Moment = Moment { wall_ms: 1_700_000_000_000, run_ms: 5_000 };

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
        Message::new(publish, RECEIVED)
    }

    #[test]
    fn the_store_gives_back_what_it_was_given() {
        let message = message();
        assert_eq!(message.expires_run_ms, Some(15_000));
        // Whatever the calendar shows when it is read.
        for wall_ms in [0, RECEIVED.wall_ms + 40 * 24 * 3_600_000] {
            let now = Moment { wall_ms, run_ms: 8_000 };
            assert_eq!(*Message::from_entry(&message.to_entry(1), now).unwrap(), message);
        }
        // Without the run time, by the calendar.
        let before = Entry { run_ms: 0, ..message.to_entry(1) };
        let expires = |age, run_ms| {
            let now = Moment { wall_ms: RECEIVED.wall_ms + age, run_ms };
            Message::from_entry(&before, now).unwrap().expires_run_ms
        };
        assert_eq!((expires(4_000, 100), expires(11_000, 100)), (Some(6_100), Some(100)));
        let mut damaged = message.to_entry(1);
        damaged.body.truncate(4);
        assert_eq!(Message::from_entry(&damaged, RECEIVED), None);
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
        let late = message.outgoing(form, 100);
        assert_eq!(late.properties.message_expiry_interval(), Some(&10), "never more than its publisher set");
    }
}
