//! Retained messages for new subscriptions, in order with what is published meanwhile.
//!
//! A replay is not a list of messages but a place in the search for them: it goes on as the
//! subscriber takes what was sent, so that a thousand subscriptions cost no more memory than their
//! filters. One replay of a session runs at a time.
//!
//! Messages keep their order: those that were queued before the subscription come first, then its
//! retained messages, then what is published after it, QoS 0 included (`parked`) [MQTT-4.6.0-6]. A
//! message that is retained after the subscription is not replayed, because it is delivered as it
//! is published.
//!
//! A replay of a stored session begins again after a restart: its subscription is marked with
//! [`REPLAYING`] until it is finished.

use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;

use bytestring::ByteString;

use super::message::Message;
use super::retained;
use super::routes::Subscription;
use forebay_mqtt::QoS;

/// In the stored options of a subscription, which leave this bit free: its replay is not finished.
pub(super) const REPLAYING: u8 = 0x80;
/// The place of a replay.
#[derive(Debug)]
pub(super) enum Place {
    /// In the search for retained messages.
    Retained(Bound<String>),
    /// At the values of `$SYS`.
    Status(VecDeque<Rc<Message>>),
}

/// Retained messages for one subscription, as the [module](self) describes.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) filter: ByteString,
    pub(super) qos: QoS,
    pub(super) ids: Rc<[u32]>,
    /// Whether its SUBACK has been sent.
    pub(super) ready: bool,
    /// Queued messages up to this position come first.
    pub(super) behind: u64,
    /// Position of its next message: they were reserved when it began.
    pub(super) position: u64,
    /// The message that had been retained last when it began.
    pub(super) stamp: u64,
    pub(super) place: Place,
}

impl Replay {
    /// A replay that begins, with the positions from `position` on.
    pub(super) fn new(filter: ByteString, subscription: &Subscription, position: u64, stamp: u64) -> Self {
        let place = Place::Retained(retained::start(&filter));
        let ids = subscription.id.into_iter().collect();
        let qos = subscription.options.qos;
        Self { filter, qos, ids, ready: false, behind: position - 1, position, stamp, place }
    }

    /// A replay that an earlier run did not finish. It comes before what is queued.
    pub(super) fn restored(
        filter: ByteString,
        subscription: &Subscription,
        position: u64,
        stamp: u64,
    ) -> Self {
        Self { ready: true, behind: 0, ..Self::new(filter, subscription, position, stamp) }
    }
}
