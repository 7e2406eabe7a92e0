//! A session: the state that a client has between its connections, and the messages that wait for
//! it.
//!
//! ```text
//! queue --window has room--> in flight --PUBACK, PUBCOMP--> done
//!                               |  ^
//!                            PUBREC: the PUBLISH is never sent again, PUBREL is due
//! ```
//!
//! Unlike in the client's halves of a session ([`forebay_mqtt::producer`],
//! [`forebay_mqtt::consumer`]), a message is a reference into the store here, and each step that
//! must survive a kill waits for the disk.
//!
//! A packet identifier is assigned when a message enters the window. For QoS 2 it is on disk before
//! the PUBLISH is sent: after a kill the client must see the same identifier again, or it would
//! take the message for a new one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytestring::ByteString;

use super::message::{NEVER, Queued};
use super::replay::Replay;
use super::routes::Subscription;
use forebay_base::random::HashMap;
use forebay_mqtt::QoS;
use forebay_mqtt::packet::{PacketId, Publish};

/// Backlog of a connected session beyond which its publishers wait.
const CROWDED: usize = 1000;
/// Prefixes of an owner in the store.
const BY_PASSWORD: &str = "password:";
const BY_TOKEN: &str = "token:";

/// A message between PUBLISH and its last acknowledgement.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) packet_id: PacketId,
    pub(super) item: Queued,
    /// Whether PUBREC was received.
    pub(super) released: bool,
    /// Whether it was sent before: then it is sent again with DUP.
    pub(super) sent: bool,
    /// The change of the store that has its packet identifier or its PUBREC.
    pub(super) change: u64,
}

/// The will of a client.
#[derive(Debug)]
pub(super) struct Will {
    pub(super) publish: Publish,
    /// Will delay interval in seconds.
    pub(super) delay: u32,
}

/// The user that a session belongs to.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) name: ByteString,
    /// Whether the user came with a token or a certificate, not with a password of the file.
    pub(super) by_token: bool,
}

impl Owner {
    /// All clients without credentials, of a broker that asks others for them. No user has the
    /// empty name.
    pub(super) fn anonymous() -> Self {
        Self { name: ByteString::new(), by_token: false }
    }

    /// The user, unless clients without credentials are meant.
    pub(super) fn user(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| !name.is_empty())
    }

    /// The owner as the store keeps it.
    pub(super) fn to_stored(&self) -> Arc<str> {
        Arc::from(format!("{}{}", if self.by_token { BY_TOKEN } else { BY_PASSWORD }, self.name))
    }

    /// The owner from the text in the store.
    pub(super) fn from_stored(text: &str) -> Self {
        let (name, by_token) = match text.strip_prefix(BY_TOKEN) {
            Some(name) => (name, true),
            None => (text.strip_prefix(BY_PASSWORD).unwrap_or(text), false),
        };
        Self { name: name.into(), by_token }
    }
}

/// A session, as the [module](self) describes.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client_id: ByteString,
    /// The user that it belongs to, if the broker asks for credentials. No other may continue or
    /// replace it.
    pub(super) owner: Option<Owner>,
    /// The connection, if the client is connected.
    pub(super) connection: Option<u64>,
    /// Session expiry interval in seconds; `u32::MAX` never expires.
    pub(super) expiry: u32,
    /// Whether the session is stored.
    pub(super) durable: bool,
    /// Whether a message comes once, whichever of its subscriptions match (3.3.5 of MQTT 3.1.1), as
    /// from Mosquitto. Not known of a stored session until its client connects.
    pub(super) gets_one_copy: bool,
    /// Its first CONNACK has not left: the client does not know of it.
    pub(super) unknown: bool,
    pub(super) subscriptions: BTreeMap<ByteString, Subscription>,
    /// Sum of their weights.
    pub(super) subscription_bytes: usize,
    pub(super) queue: VecDeque<Queued>,
    /// No message in the queue expires before this time, in milliseconds that brokers have run on
    /// the store: [`NEVER`] if none expires, 0 if some were restored and have not been read.
    pub(super) next_expiry: u64,
    /// When the expired messages of the queue are dropped, if the client is away.
    pub(super) expire_at: Option<Instant>,
    /// Retained messages for new subscriptions, by serial number in order of the subscriptions.
    pub(super) replays: BTreeMap<u64, Replay>,
    /// Serial numbers of the replays by filter.
    replays_of: HashMap<ByteString, u64>,
    next_replay: u64,
    /// Messages of QoS 0 that were published during a replay: they must not overtake it.
    pub(super) parked: VecDeque<Queued>,
    /// Their weight.
    pub(super) parked_bytes: usize,
    /// Number and weight of the messages that will be queued once they are written.
    pub(super) pending: usize,
    /// Weight of pending, queued and in-flight messages.
    pub(super) bytes: usize,
    pub(super) flights: VecDeque<Flight>,
    /// Number of `flights` that have been sent on this connection.
    pub(super) resent: usize,
    next_packet_id: u16,
    next_position: u64,
    /// The queue up to this position was filled by other rules than those of now: what may not be
    /// read is taken out when its turn comes.
    pub(super) unchecked: u64,
    /// Packet identifiers of received QoS 2 messages between PUBLISH and PUBREL.
    pub(super) received: BTreeSet<PacketId>,
    /// Throttled publishers: connections whose acknowledgements wait until this session has caught
    /// up.
    pub(super) throttled: BTreeSet<u64>,
    /// Number of completed messages: now, and at the last check of whether publishers should go on
    /// waiting.
    pub(super) progress: (u64, u64),
    /// When publishers stop waiting for this session, if some do.
    pub(super) throttling_until: Option<Instant>,
    /// Whether it was too slow. Publishers do not wait for a stalled session.
    pub(super) stalled: bool,
    /// Whether messages were dropped since it last had room.
    pub(super) dropping: bool,
    pub(super) will: Option<Will>,
    pub(super) will_at: Option<Instant>,
    pub(super) ends_at: Option<Instant>,
}

impl Session {
    pub(super) fn new(client_id: ByteString, expiry: u32) -> Self {
        Self {
            client_id,
            owner: None,
            connection: None,
            expiry,
            durable: false,
            gets_one_copy: false,
            unknown: false,
            subscriptions: BTreeMap::new(),
            subscription_bytes: 0,
            queue: VecDeque::new(),
            next_expiry: NEVER,
            expire_at: None,
            replays: BTreeMap::new(),
            replays_of: HashMap::default(),
            next_replay: 0,
            parked: VecDeque::new(),
            parked_bytes: 0,
            pending: 0,
            bytes: 0,
            flights: VecDeque::new(),
            resent: 0,
            next_packet_id: 0,
            next_position: 0,
            unchecked: 0,
            received: BTreeSet::new(),
            throttled: BTreeSet::new(),
            progress: (0, 0),
            throttling_until: None,
            stalled: false,
            dropping: false,
            will: None,
            will_at: None,
            ends_at: None,
        }
    }

    /// Reserves a position at the end of the queue.
    pub(super) fn position(&mut self) -> u64 {
        self.next_position += 1;
        self.next_position
    }

    /// Reserves `count` positions at the end of the queue and gives the first.
    pub(super) fn reserve(&mut self, count: u64) -> u64 {
        let first = self.next_position + 1;
        self.next_position += count;
        first
    }

    /// Whether messages of QoS 0 wait for a replay.
    pub(super) fn replaying(&self) -> bool {
        !self.replays.is_empty() || !self.parked.is_empty()
    }

    /// Adds a replay in place of an unfinished one of the same filter, and gives its serial number.
    pub(super) fn add_replay(&mut self, replay: Replay) -> u64 {
        self.remove_replay(&replay.filter);
        self.next_replay += 1;
        self.replays_of.insert(replay.filter.clone(), self.next_replay);
        self.replays.insert(self.next_replay, replay);
        self.next_replay
    }

    /// Whether a filter has an unfinished replay.
    pub(super) fn has_replay(&self, filter: &str) -> bool {
        self.replays_of.contains_key(filter)
    }

    /// Removes the replay of a filter, and returns whether there was one.
    pub(super) fn remove_replay(&mut self, filter: &str) -> bool {
        let Some(serial) = self.replays_of.remove(filter) else { return false };
        self.replays.remove(&serial).is_some()
    }

    /// Lets the replays give the messages up to `stamp`, at most `count` each. Those may be more
    /// than they had reserved positions for, so each reserves its positions again.
    pub(super) fn extend_replays(&mut self, count: u64, stamp: u64) {
        for replay in self.replays.values_mut() {
            replay.stamp = stamp;
            replay.behind = self.next_position;
            replay.position = self.next_position + 1;
            self.next_position += count;
        }
    }

    /// Marks positions up to this one as used.
    pub(super) fn set_position(&mut self, last: u64) {
        self.next_position = self.next_position.max(last);
    }

    /// Notes that the rules have changed for what is queued.
    pub(super) fn uncheck(&mut self) {
        self.unchecked = self.next_position;
    }

    /// Whether a message of `weight` would exceed the limits.
    pub(super) fn is_full(&self, weight: usize, max_messages: usize, max_bytes: usize) -> bool {
        let waiting = self.queue.len() + self.pending;
        // One message always has room, or a message larger than the limit would block forever.
        waiting > 0 && (waiting >= max_messages || self.bytes + weight > max_bytes)
    }

    /// Notes that a message found room. Drops count as over when half of the room is free, not at
    /// each message that fits.
    pub(super) fn note_room(&mut self, max_messages: usize, max_bytes: usize) {
        let waiting = self.queue.len() + self.pending;
        self.dropping &= waiting > max_messages / 2 || self.bytes > max_bytes / 2;
    }

    /// Whether the session is connected and so far behind that its publishers should wait.
    pub(super) fn is_overfull(&self, max_bytes: usize) -> bool {
        let waiting = self.queue.len() + self.pending;
        self.connection.is_some() && !self.stalled && (waiting > CROWDED || self.bytes > max_bytes / 2)
    }

    /// Whether the session has caught up, so that its publishers can continue.
    pub(super) fn has_room(&self, max_bytes: usize) -> bool {
        self.connection.is_none()
            || self.queue.len() + self.pending < CROWDED / 2 && self.bytes <= max_bytes / 2
    }

    /// An unused packet identifier. There is one, because the window is smaller than their number.
    pub(super) fn packet_id(&mut self) -> PacketId {
        loop {
            self.next_packet_id = self.next_packet_id.wrapping_add(1);
            if let Some(id) = PacketId::new(self.next_packet_id)
                && !self.flights.iter().any(|flight| flight.packet_id == id)
            {
                return id;
            }
        }
    }

    /// The message in flight with this packet identifier.
    pub(super) fn flight(&mut self, packet_id: PacketId) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.packet_id == packet_id)
    }

    /// Removes an acknowledged message from the window; `qos` is the kind of its acknowledgement.
    pub(super) fn complete_inflight(&mut self, packet_id: PacketId, qos: QoS) -> Option<Queued> {
        let index = self
            .flights
            .iter()
            .position(|flight| flight.packet_id == packet_id && flight.item.qos == qos && flight.sent)?;
        if index < self.resent {
            self.resent -= 1;
        }
        self.progress.0 += 1;
        self.flights.remove(index).map(|flight| flight.item)
    }

    /// Attaches a connection: every message in flight is sent again.
    pub(super) fn attach(&mut self, connection: u64) {
        self.connection = Some(connection);
        self.resent = 0;
        self.will_at = None;
        self.ends_at = None;
    }

    /// Takes all messages out of the session.
    pub(super) fn drain(&mut self) -> Vec<Queued> {
        let flights = std::mem::take(&mut self.flights).into_iter().map(|flight| flight.item);
        let waiting = std::mem::take(&mut self.queue).into_iter().chain(std::mem::take(&mut self.parked));
        flights.chain(waiting).collect()
    }

    /// The client identifier as the store keeps it.
    pub(super) fn name(&self) -> Arc<str> {
        Arc::from(&*self.client_id)
    }
}
