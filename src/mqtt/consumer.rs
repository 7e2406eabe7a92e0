//! The receiving half of a session: what the server publishes, until it is acknowledged.
//!
//! ```text
//!  QoS 1:  PUBLISH ──► delivered ──── ack ────► PUBACK
//!  QoS 2:  PUBLISH ──► delivered ──── ack ────► PUBREC ──► Received ── PUBREL ──► PUBCOMP, forgotten
//!                          ▲                                   ▲
//!              the same PUBLISH again: not delivered again, answered as before, any number of times
//! ```
//! Acknowledgements leave in the order in which the messages came [MQTT-4.6.0-2], [MQTT-4.6.0-3], in whatever
//! order the application gives them. The identifiers of QoS 2 outlive the connection; those of QoS 1 do not: what
//! was not acknowledged comes again.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::error::Result;
use crate::mqtt::connection::Connection;
use crate::mqtt::packet::{Ack, PacketId, Publish};
use crate::mqtt::{Packet, QoS, Reason, Version, Violation};

/// Names a delivered message when it is acknowledged. 0 is a message of QoS 0, which needs none.
pub type Token = u64;

#[derive(Debug)]
struct Arrival {
    id: PacketId,
    qos: QoS,
    token: Token,
    /// Whether the application has acknowledged it.
    acked: bool,
}

/// A message of QoS 2 between PUBLISH and PUBREL.
#[derive(Debug)]
struct Received {
    token: Token,
    acked: bool,
}

/// The receiving half of a session.
#[derive(Debug)]
pub struct Consumer {
    /// Not answered yet, in the order they came on this connection.
    arrivals: VecDeque<Arrival>,
    received: HashMap<PacketId, Received>,
    /// Given to the next message.
    next: Token,
    /// The most that we said we take (5.0).
    receive_maximum: u16,
}

impl Consumer {
    /// Takes at most `receive_maximum` publications of QoS 1 and 2 at a time.
    pub fn new(receive_maximum: u16) -> Self {
        Self { arrivals: VecDeque::new(), received: HashMap::new(), next: 1, receive_maximum }
    }

    /// Messages that have been given out and are not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.arrivals.iter().filter(|arrival| !arrival.acked).count()
    }

    /// The connection stands; without the session the broker will use its identifiers anew.
    pub fn attach(&mut self, session_present: bool) {
        self.arrivals.clear();
        if !session_present {
            self.received.clear();
        }
    }

    /// The connection is gone: what was not answered comes again.
    pub fn detach(&mut self) {
        self.arrivals.clear();
    }

    /// A PUBLISH; gives the token if it is to be delivered, nothing if it has been before.
    pub fn handle_publish(
        &mut self,
        now: Instant,
        publish: &Publish,
        connection: &mut Connection,
    ) -> Result<Option<Token>, Violation> {
        let Some(id) = publish.packet_id else { return Ok(Some(0)) };
        if connection.version() == Version::V5 && self.unanswered() >= usize::from(self.receive_maximum) {
            return Err(Violation {
                reason: Reason::ReceiveMaximumExceeded,
                message: format!("more than our receive maximum of {} publications", self.receive_maximum),
            });
        }
        if publish.qos == QoS::ExactlyOnce
            && let Some(received) = self.received.get(&id)
        {
            let (token, acked) = (received.token, received.acked);
            self.arrivals.retain(|arrival| arrival.token != token);
            self.arrivals.push_back(Arrival { id, qos: publish.qos, token, acked });
            self.release(now, connection);
            return Ok(None);
        }
        let token = self.next;
        self.next += 1;
        if publish.qos == QoS::ExactlyOnce {
            self.received.insert(id, Received { token, acked: false });
        }
        self.arrivals.push_back(Arrival { id, qos: publish.qos, token, acked: false });
        Ok(Some(token))
    }

    /// PUBREL: the identifier is free; PUBCOMP always.
    pub fn handle_pubrel(&mut self, now: Instant, id: PacketId, connection: &mut Connection) {
        let known = self.received.remove(&id).is_some();
        let reason = if known { Reason::Success } else { Reason::PacketIdentifierNotFound };
        let _ = connection.send(now, Packet::PubComp(Ack::with_reason(id, reason)));
    }

    /// The application is done with a message. Without a connection it is remembered for QoS 2; QoS 1 comes
    /// again.
    pub fn ack(&mut self, now: Instant, token: Token, connection: Option<&mut Connection>) {
        if token == 0 {
            return;
        }
        let Some(index) = self.position(token) else {
            if let Some(received) = self.received.values_mut().find(|received| received.token == token) {
                received.acked = true;
            }
            return;
        };
        let arrival = &mut self.arrivals[index];
        arrival.acked = true;
        if arrival.qos == QoS::ExactlyOnce
            && let Some(received) = self.received.get_mut(&arrival.id)
        {
            received.acked = true;
        }
        if index == 0
            && let Some(connection) = connection
        {
            self.release(now, connection);
        }
    }

    /// Answers everything at the head that the application has acknowledged.
    pub fn release(&mut self, now: Instant, connection: &mut Connection) {
        while self.arrivals.front().is_some_and(|arrival| arrival.acked) {
            let arrival = self.arrivals.pop_front().expect("just seen");
            let ack = Ack::new(arrival.id);
            let packet = match arrival.qos {
                QoS::ExactlyOnce => Packet::PubRec(ack),
                _ => Packet::PubAck(ack),
            };
            // Four bytes: the only refusal is a connection that is closing, after which it comes again.
            let _ = connection.send(now, packet);
        }
    }

    /// Publications that the server may count against our receive maximum: QoS 2 until its PUBCOMP.
    fn unanswered(&self) -> usize {
        let released = self.received.values().filter(|received| received.acked).count();
        let waiting = self.arrivals.iter().filter(|arrival| arrival.qos == QoS::ExactlyOnce && arrival.acked);
        // Acknowledged arrivals of QoS 2 are among `received` as well.
        self.arrivals.len() + released - waiting.count()
    }

    /// Tokens are given in the order of arrival, unless a resent QoS 2 keeps an older one.
    fn position(&self, token: Token) -> Option<usize> {
        match self.arrivals.binary_search_by_key(&token, |arrival| arrival.token) {
            Ok(index) => Some(index),
            Err(_) => self.arrivals.iter().position(|arrival| arrival.token == token),
        }
    }
}
