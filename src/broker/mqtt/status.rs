//! `$SYS`: what the broker says of itself, under the names that Mosquitto uses. The values are there for whoever
//! subscribes, and are sent again when they have changed, every ten seconds.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Hub;
use super::message::Message;
use crate::broker::hub::Hub as _;
use crate::mqtt::packet::Publish;
use crate::mqtt::topic;

/// Between publications.
const INTERVAL: Duration = Duration::from_secs(10);

/// The broker in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MqttStats {
    /// Clients with a connection.
    pub connections: usize,
    /// Sessions, with and without.
    pub sessions: usize,
    /// Of all sessions.
    pub subscriptions: usize,
    /// Retained messages.
    pub retained: usize,
    /// PUBLISH packets taken since start.
    pub messages_in: u64,
    /// PUBLISH packets sent since start.
    pub messages_out: u64,
    /// Messages that a subscriber did not get: its queue was full, it was too slow, or their time was over.
    pub messages_dropped: u64,
    /// Bytes received since start.
    pub bytes_in: u64,
    /// Bytes sent since start.
    pub bytes_out: u64,
    /// Why nothing can be written any more.
    pub failure: Option<String>,
}

#[derive(Debug)]
pub(super) struct Counters {
    started: Instant,
    next_at: Instant,
    told: HashMap<&'static str, String>,
    pub(super) sockets: u64,
    pub(super) refused: u64,
    /// Client identifiers given out.
    pub(super) assigned: u64,
    pub(super) published: u64,
    pub(super) delivered: u64,
    pub(super) dropped: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

impl Counters {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            next_at: now + INTERVAL,
            told: HashMap::new(),
            sockets: 0,
            refused: 0,
            assigned: 0,
            published: 0,
            delivered: 0,
            dropped: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }
}

impl Hub {
    /// The broker in numbers.
    pub fn stats(&self) -> MqttStats {
        MqttStats {
            connections: self.sessions.values().filter(|session| session.seat.is_some()).count(),
            sessions: self.sessions.len(),
            subscriptions: self.routes.count,
            retained: self.retained.len(),
            messages_in: self.counters.published,
            messages_out: self.counters.delivered,
            messages_dropped: self.counters.dropped,
            bytes_in: self.counters.bytes_in,
            bytes_out: self.counters.bytes_out,
            failure: self.commits.failure().map(|error| error.message().to_owned()),
        }
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let stats = self.stats();
        let uptime = self.now.saturating_duration_since(self.counters.started).as_secs();
        let text = |value: u64| value.to_string();
        vec![
            ("$SYS/broker/version", format!("Penstock {}", env!("CARGO_PKG_VERSION"))),
            ("$SYS/broker/uptime", format!("{uptime} seconds")),
            ("$SYS/broker/clients/connected", text(stats.connections as u64)),
            ("$SYS/broker/clients/disconnected", text((stats.sessions - stats.connections) as u64)),
            ("$SYS/broker/clients/total", text(stats.sessions as u64)),
            ("$SYS/broker/clients/refused", text(self.counters.refused)),
            ("$SYS/broker/load/sockets", text(self.counters.sockets)),
            ("$SYS/broker/subscriptions/count", text(stats.subscriptions as u64)),
            ("$SYS/broker/retained messages/count", text(stats.retained as u64)),
            ("$SYS/broker/store/messages/count", text(self.needed.len() as u64)),
            ("$SYS/broker/store/messages/bytes", text(self.used_bytes())),
            ("$SYS/broker/messages/received", text(stats.messages_in)),
            ("$SYS/broker/messages/sent", text(stats.messages_out)),
            ("$SYS/broker/publish/messages/received", text(stats.messages_in)),
            ("$SYS/broker/publish/messages/sent", text(stats.messages_out)),
            ("$SYS/broker/publish/messages/dropped", text(stats.messages_dropped)),
            ("$SYS/broker/bytes/received", text(stats.bytes_in)),
            ("$SYS/broker/bytes/sent", text(stats.bytes_out)),
        ]
    }

    /// What is said to a new subscriber.
    pub(super) fn status_messages(&self, pattern: &str) -> Vec<Rc<Message>> {
        if !pattern.starts_with("$SYS") {
            return Vec::new();
        }
        let values = self.values().into_iter().filter(|(name, _)| topic::matches(pattern, name));
        values.map(|(name, value)| Rc::new(Message::new(publish(name, value), self.wall_ms()))).collect()
    }

    /// Sends what has changed.
    pub(super) fn publish_status(&mut self) {
        if self.counters.next_at > self.now {
            return;
        }
        self.counters.next_at = self.now + INTERVAL;
        for (name, value) in self.values() {
            if self.counters.told.get(name) != Some(&value) {
                self.counters.told.insert(name, value.clone());
                let _ = self.scatter(&publish(name, value), None);
            }
        }
    }
}

fn publish(name: &'static str, value: String) -> Publish {
    Publish { topic: name.into(), payload: value.into(), ..Publish::default() }
}
