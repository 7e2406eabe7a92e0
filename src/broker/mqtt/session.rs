//! A session: what a client has here between its connections, and what waits for it.
//!
//! ```text
//! queue --window has room--> in flight --PUBACK, PUBCOMP--> done
//!                               |  ^
//!                            PUBREC: the PUBLISH is never sent again, PUBREL is owed
//! ```
//!
//! Not the client's halves of a session ([`crate::mqtt::producer`], [`crate::mqtt::consumer`]): here a message is
//! a reference into the store, and each step that the peer must not see undone waits for the disk.
//!
//! A packet identifier is given when a message enters the window. Of QoS 2 it is on disk before the PUBLISH
//! leaves: after a kill the client must see the same identifier again, or it would take the message for another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytestring::ByteString;

use super::message::Queued;
use super::routes::Subscription;
use crate::mqtt::QoS;
use crate::mqtt::packet::{PacketId, Publish};

/// Messages that wait for a connected session before its publishers wait as well.
const CROWDED: usize = 1000;

/// A message between PUBLISH and its last answer.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) packet_id: PacketId,
    pub(super) item: Queued,
    /// PUBREC came.
    pub(super) released: bool,
    /// Whether it has been on the wire: then it is sent again with DUP.
    pub(super) sent: bool,
    /// The change of the store that its identifier or its PUBREC is in.
    pub(super) change: u64,
}

/// What is published when the client is gone.
#[derive(Debug)]
pub(super) struct Will {
    pub(super) publish: Publish,
    /// Seconds after the end of the connection.
    pub(super) delay: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client_id: ByteString,
    /// The connection.
    pub(super) connection: Option<u64>,
    /// Seconds that it outlives its connection; `u32::MAX` is for ever.
    pub(super) expiry: u32,
    /// Whether it is in the store.
    pub(super) durable: bool,
    pub(super) subscriptions: BTreeMap<ByteString, Subscription>,
    pub(super) queue: VecDeque<Queued>,
    /// Messages that are for it once they are written, and their weight.
    pub(super) pending: usize,
    /// Weight of what is pending, queued and in flight.
    pub(super) bytes: usize,
    pub(super) flights: VecDeque<Flight>,
    /// Those of `flights` before this one have been sent on this connection.
    pub(super) resent: usize,
    next_packet_id: u16,
    next_position: u64,
    /// Packet identifiers of QoS 2 from the client, between PUBLISH and PUBREL.
    pub(super) received: BTreeSet<PacketId>,
    /// Connections whose acknowledgements wait until it has caught up.
    pub(super) throttled: BTreeSet<u64>,
    /// Messages that it was done with, now and when it was last looked at.
    pub(super) progress: (u64, u64),
    /// Whether it made none meanwhile: then nobody waits for it.
    pub(super) stalled: bool,
    pub(super) will: Option<Will>,
    pub(super) will_at: Option<Instant>,
    pub(super) ends_at: Option<Instant>,
}

impl Session {
    pub(super) fn new(client_id: ByteString, expiry: u32) -> Self {
        Self {
            client_id,
            connection: None,
            expiry,
            durable: false,
            subscriptions: BTreeMap::new(),
            queue: VecDeque::new(),
            pending: 0,
            bytes: 0,
            flights: VecDeque::new(),
            resent: 0,
            next_packet_id: 0,
            next_position: 0,
            received: BTreeSet::new(),
            throttled: BTreeSet::new(),
            progress: (0, 0),
            stalled: false,
            will: None,
            will_at: None,
            ends_at: None,
        }
    }

    /// A place at the end of the queue.
    pub(super) fn position(&mut self) -> u64 {
        self.next_position += 1;
        self.next_position
    }

    /// Places up to this one are taken.
    pub(super) fn set_position(&mut self, last: u64) {
        self.next_position = self.next_position.max(last);
    }

    /// Whether a message of `weight` would be too much.
    pub(super) fn is_full(&self, weight: usize, max_messages: usize, max_bytes: usize) -> bool {
        let waiting = self.queue.len() + self.pending;
        // Something always has room: a message larger than all must not stop for ever.
        waiting > 0 && (waiting >= max_messages || self.bytes + weight > max_bytes)
    }

    /// Whether it is connected and so far behind that its publishers should wait for it.
    pub(super) fn is_overfull(&self, max_bytes: usize) -> bool {
        let waiting = self.queue.len() + self.pending;
        self.connection.is_some() && !self.stalled && (waiting > CROWDED || self.bytes > max_bytes / 2)
    }

    /// Whether it has caught up so far that they need not wait any more.
    pub(super) fn has_room(&self, max_bytes: usize) -> bool {
        self.connection.is_none()
            || self.queue.len() + self.pending < CROWDED / 2 && self.bytes <= max_bytes / 2
    }

    /// A packet identifier that is not in flight. There is one: the window is smaller than their number.
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

    /// The message in flight with this identifier.
    pub(super) fn flight(&mut self, packet_id: PacketId) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.packet_id == packet_id)
    }

    /// Takes a message out of the window whose answer has come; `qos` says which kind of answer it was.
    pub(super) fn complete_inflight(&mut self, packet_id: PacketId, qos: QoS) -> Option<Queued> {
        let index = self
            .flights
            .iter()
            .position(|flight| flight.packet_id == packet_id && flight.item.qos == qos && flight.sent)?;
        if index < self.resent {
            self.resent -= 1;
        }
        self.progress.0 += 1;
        self.stalled = false;
        self.flights.remove(index).map(|flight| flight.item)
    }

    /// The client has a connection: everything in flight is to be sent again.
    pub(super) fn attach(&mut self, connection: u64) {
        self.connection = Some(connection);
        self.resent = 0;
        self.will_at = None;
        self.ends_at = None;
    }

    /// What waits for it, to be given up.
    pub(super) fn drain(&mut self) -> Vec<Queued> {
        let flights = std::mem::take(&mut self.flights).into_iter().map(|flight| flight.item);
        flights.chain(std::mem::take(&mut self.queue)).collect()
    }

    /// Its name for the store.
    pub(super) fn name(&self) -> Arc<str> {
        Arc::from(&*self.client_id)
    }
}
