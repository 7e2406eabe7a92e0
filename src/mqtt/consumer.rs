//! The receiving half of a session: messages from the server until they are acknowledged.
//!
//! ```text
//!  QoS 1:  PUBLISH ──► delivered ── ack ──► PUBACK
//!  QoS 2:  PUBLISH ──► delivered ── ack ──► PUBREC ──► Received ── PUBREL ──► PUBCOMP, forgotten
//!                          ▲                               ▲
//!              a repeated PUBLISH: not delivered again, answered as before, any number of times
//! ```
//! Acknowledgements are sent in the order in which the messages arrived [MQTT-4.6.0-2],
//! [MQTT-4.6.0-3], regardless of the order in which the application makes them. Packet identifiers
//! of QoS 2 survive the connection. Those of QoS 1 do not: unacknowledged messages are redelivered.

use std::collections::VecDeque;
use std::time::Instant;

use crate::connection::Connection;
use crate::packet::{Ack, PacketId, Publish};
use crate::{Packet, QoS, Reason, Version, Violation};
use forebay_base::error::Result;
use forebay_base::random::HashMap;

/// Identifies a delivered message for its acknowledgement. 0 is used for QoS 0, which is not
/// acknowledged.
pub type Token = u64;

/// Unacknowledged messages after which some server sends no more: Mosquitto as it is shipped.
const SMALLEST_WINDOW: usize = 20;

#[derive(Debug)]
struct Arrival {
    id: PacketId,
    qos: QoS,
    token: Token,
    /// Whether the application has acknowledged the message.
    acked: bool,
}

/// A QoS 2 message between PUBLISH and PUBREL.
#[derive(Debug)]
struct Received {
    token: Token,
    acked: bool,
    /// Acknowledged and no longer among the arrivals: only PUBREL is outstanding.
    answered: bool,
}

/// The receiving half of a session.
#[derive(Debug)]
pub struct Consumer {
    /// Messages not yet answered, in the order of arrival on this connection.
    arrivals: VecDeque<Arrival>,
    received: HashMap<PacketId, Received>,
    /// Number of answered entries in `received`, kept as a counter because each PUBLISH needs it.
    answered: usize,
    /// Number of arrivals that are not acknowledged, kept as a counter because each turn of the
    /// driver needs it.
    unacknowledged: usize,
    /// When the last one arrived.
    last_arrival: Option<Instant>,
    /// Token of the next message.
    next: Token,
    /// Receive maximum that we announced (MQTT 5).
    receive_maximum: u16,
}

impl Consumer {
    /// Creates a consumer that accepts up to `receive_maximum` QoS 1 and 2 messages at a time.
    pub fn new(receive_maximum: u16) -> Self {
        Self {
            arrivals: VecDeque::new(),
            received: HashMap::default(),
            answered: 0,
            unacknowledged: 0,
            last_arrival: None,
            next: 1,
            receive_maximum,
        }
    }

    /// Number of messages delivered and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    /// The message that the server waits for, if it may send nothing until that is acknowledged,
    /// and when the last message arrived.
    pub fn holds_up(&self) -> Option<(Token, Instant)> {
        if self.unacknowledged < SMALLEST_WINDOW {
            return None;
        }
        Some((self.arrivals.front()?.token, self.last_arrival?))
    }

    /// Number of messages that may still come without exceeding the receive maximum. At least 1
    /// while there is nothing to acknowledge: only what the server sends can make room then.
    pub fn room(&self) -> usize {
        let room = usize::from(self.receive_maximum).saturating_sub(self.unanswered());
        room.max(usize::from(self.arrivals.is_empty()))
    }

    /// Handles CONNACK. Without a session the broker reuses its packet identifiers from the start.
    pub fn attach(&mut self, session_present: bool) {
        if !session_present {
            self.received.clear();
            self.answered = 0;
        }
        self.detach();
    }

    /// Handles the end of the connection: unanswered messages will be redelivered.
    pub fn detach(&mut self) {
        self.arrivals.clear();
        self.unacknowledged = 0;
        for received in self.received.values_mut().filter(|received| received.acked) {
            self.answered += usize::from(!std::mem::replace(&mut received.answered, true));
        }
    }

    /// Handles PUBLISH. Returns a token if the message is to be delivered, `None` if it was
    /// delivered before.
    pub fn handle_publish(
        &mut self,
        now: Instant,
        publish: &Publish,
        connection: &mut Connection,
    ) -> Result<Option<Token>, Violation> {
        let Some(id) = publish.packet_id else { return Ok(Some(0)) };
        self.last_arrival = Some(now);
        if publish.qos == QoS::ExactlyOnce
            && let Some(received) = self.received.get_mut(&id)
        {
            self.answered -= usize::from(std::mem::take(&mut received.answered));
            let (token, acked) = (received.token, received.acked);
            self.arrivals.retain(|arrival| {
                let other = arrival.token != token;
                self.unacknowledged -= usize::from(!other && !arrival.acked);
                other
            });
            self.unacknowledged += usize::from(!acked);
            self.arrivals.push_back(Arrival { id, qos: publish.qos, token, acked });
            self.release(now, connection);
            return Ok(None);
        }
        // Checked after duplicates: a resent message is already counted, even if its PUBREC
        // preceded the disconnect.
        if connection.version() == Version::V5 && self.unanswered() >= usize::from(self.receive_maximum) {
            return Err(Violation {
                reason: Reason::ReceiveMaximumExceeded,
                message: format!(
                    "the server exceeded our receive maximum of {} unacknowledged messages (3.3.4)",
                    self.receive_maximum
                ),
            });
        }
        let token = self.next;
        self.next += 1;
        if publish.qos == QoS::ExactlyOnce {
            self.received.insert(id, Received { token, acked: false, answered: false });
        }
        self.arrivals.push_back(Arrival { id, qos: publish.qos, token, acked: false });
        self.unacknowledged += 1;
        Ok(Some(token))
    }

    /// Handles PUBREL: frees the packet identifier and always answers PUBCOMP.
    pub fn handle_pubrel(&mut self, now: Instant, id: PacketId, connection: &mut Connection) {
        let reason = match self.received.remove(&id) {
            Some(received) => {
                self.answered -= usize::from(received.answered);
                Reason::Success
            }
            None => Reason::PacketIdentifierNotFound,
        };
        let _ = connection.send(now, Packet::PubComp(Ack::with_reason(id, reason)));
    }

    /// Records the application's acknowledgement. Without a connection it is remembered for QoS 2,
    /// while QoS 1 messages are redelivered.
    pub fn ack(&mut self, now: Instant, token: Token, connection: Option<&mut Connection>) {
        if token == 0 {
            return;
        }
        let Some(index) = self.position(token) else {
            if let Some(received) = self.received.values_mut().find(|received| received.token == token) {
                received.acked = true;
                self.answered += usize::from(!std::mem::replace(&mut received.answered, true));
            }
            return;
        };
        let arrival = &mut self.arrivals[index];
        self.unacknowledged -= usize::from(!std::mem::replace(&mut arrival.acked, true));
        // After an early PUBREL the packet identifier may be that of another message by now.
        if arrival.qos == QoS::ExactlyOnce
            && let Some(received) = self.received.get_mut(&arrival.id)
            && received.token == token
        {
            received.acked = true;
        }
        if index == 0
            && let Some(connection) = connection
        {
            self.release(now, connection);
        }
    }

    /// Answers the acknowledged messages at the head of the arrivals.
    pub fn release(&mut self, now: Instant, connection: &mut Connection) {
        while self.arrivals.front().is_some_and(|arrival| arrival.acked) {
            let arrival = self.arrivals.pop_front().expect("checked above");
            if arrival.qos == QoS::ExactlyOnce {
                // After an early PUBREL its flow is over, and a PUBREC would be for a later message
                // of the identifier.
                let Some(received) = self.received.get_mut(&arrival.id) else { continue };
                if received.token != arrival.token {
                    continue;
                }
                self.answered += usize::from(!std::mem::replace(&mut received.answered, true));
            }
            let ack = Ack::new(arrival.id);
            let packet = match arrival.qos {
                QoS::ExactlyOnce => Packet::PubRec(ack),
                _ => Packet::PubAck(ack),
            };
            // An ack of four bytes fits any limit. Sending fails only while closing; the message is
            // then redelivered.
            let _ = connection.send(now, packet);
        }
    }

    /// Number of messages that the server may count against our receive maximum: QoS 2 until
    /// PUBCOMP.
    fn unanswered(&self) -> usize {
        self.arrivals.len() + self.answered
    }

    /// Index of the message with `token`. Tokens increase with arrival, except that a resent QoS 2
    /// keeps its token.
    fn position(&self, token: Token) -> Option<usize> {
        match self.arrivals.binary_search_by_key(&token, |arrival| arrival.token) {
            Ok(index) => Some(index),
            Err(_) => self.arrivals.iter().position(|arrival| arrival.token == token),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::BytesMut;

    use super::*;
    use crate::packet::Connect;
    use forebay_base::machine::Machine;

    fn connection(now: Instant) -> Connection {
        let connect = Connect::new(Version::V5, "test");
        let mut connection = Connection::new(now, connect, Duration::from_secs(1)).unwrap();
        connection.handle_input(now, &mut BytesMut::from(&[0x20, 3, 0, 0, 0][..])).unwrap();
        assert!(connection.is_ready());
        connection
    }

    #[test]
    fn an_acknowledgement_is_for_its_message_and_not_for_a_later_one_of_the_same_identifier() {
        let now = Instant::now();
        let mut connection = connection(now);
        let mut consumer = Consumer::new(8);
        let id = PacketId::new(5).unwrap();
        let publish = Publish { qos: QoS::ExactlyOnce, packet_id: Some(id), ..Publish::default() };
        let first = consumer.handle_publish(now, &publish, &mut connection).unwrap().unwrap();
        // A server that does not wait for PUBREC uses the identifier again.
        consumer.handle_pubrel(now, id, &mut connection);
        let second = consumer.handle_publish(now, &publish, &mut connection).unwrap().unwrap();
        let written = connection.transmit().len();
        consumer.ack(now, first, Some(&mut connection));
        assert_eq!(connection.transmit().len(), written, "a PUBREC would be for the second message");
        assert!(!consumer.received[&id].acked, "the application has not acknowledged it");
        assert_eq!(consumer.unacknowledged(), 1);
        // Nor after a reconnect, when the server sends it again.
        consumer.detach();
        consumer.attach(true);
        consumer.ack(now, first, Some(&mut connection));
        assert_eq!(consumer.handle_publish(now, &publish, &mut connection).unwrap(), None);
        assert_eq!(consumer.unacknowledged(), 1);
        consumer.ack(now, second, Some(&mut connection));
        assert_eq!(consumer.unacknowledged(), 0);
        assert_eq!(connection.transmit().len(), written + 4, "one PUBREC");
    }

    /// Recomputes [`Consumer::unanswered`] from scratch.
    fn recount(consumer: &Consumer) -> usize {
        let waits = |received: &&Received| {
            received.acked && !consumer.arrivals.iter().any(|arrival| arrival.token == received.token)
        };
        consumer.arrivals.len() + consumer.received.values().filter(waits).count()
    }

    #[test]
    fn what_is_not_answered_is_counted_right_in_whatever_order_things_happen() {
        let now = Instant::now();
        let mut connection = connection(now);
        let mut consumer = Consumer::new(8);
        let mut refused = 0;
        let mut chance = 1_u64;
        let mut attached = true;
        for _ in 0..100_000 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, which) = (chance >> 33, chance >> 45);
            let id = PacketId::new(which as u16 % 12 + 1).unwrap();
            match what % 16 {
                0..6 if attached => {
                    let qos = if which & 32 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
                    let publish = Publish { qos, packet_id: Some(id), ..Publish::default() };
                    let again = qos == QoS::ExactlyOnce && consumer.received.contains_key(&id);
                    let full = consumer.unanswered() >= 8 && !again;
                    assert_eq!(consumer.handle_publish(now, &publish, &mut connection).is_err(), full);
                    refused += usize::from(full);
                }
                6..11 => {
                    let token = consumer.next.saturating_sub(which % 12);
                    consumer.ack(now, token, attached.then_some(&mut connection));
                }
                11..15 if attached => consumer.handle_pubrel(now, id, &mut connection),
                15 if which % 16 == 0 && attached => {
                    consumer.detach();
                    attached = false;
                }
                15 if !attached => {
                    consumer.attach(which % 4 > 0);
                    attached = true;
                }
                _ => {}
            }
            assert_eq!(consumer.unanswered(), recount(&consumer));
            let unacknowledged = consumer.arrivals.iter().filter(|arrival| !arrival.acked).count();
            assert_eq!(consumer.unacknowledged(), unacknowledged);
            let room = 8_usize.saturating_sub(recount(&consumer));
            assert_eq!(consumer.room(), room.max(consumer.arrivals.is_empty().into()));
        }
        assert!(refused > 100, "the maximum was rarely reached: {refused}");
    }
}
