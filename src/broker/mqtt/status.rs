//! `$SYS`: figures of the broker, under Mosquitto's names. A new subscriber gets all values; every
//! ten seconds the changed ones are published.

use std::rc::Rc;

use super::Broker;
use super::counters::INTERVAL;
use super::message::Message;
use crate::protocol::Protocol as _;
use crate::stats::ProtocolStats;
use forebay_mqtt::packet::Publish;
use forebay_mqtt::topic;

impl Broker {
    /// Figures of MQTT's side.
    pub fn stats(&self) -> ProtocolStats {
        ProtocolStats {
            connections: self.sessions.values().filter(|session| session.connection.is_some()).count(),
            sessions: self.sessions.len(),
            subscriptions: self.routes.count,
            retained: self.retained.len(),
            messages_in: self.counters.published,
            messages_out: self.counters.delivered,
            messages_dropped: self.counters.dropped,
            messages_redelivered: self.counters.redelivered,
            denied: self.counters.denied,
            bytes_in: self.counters.bytes_in,
            bytes_out: self.counters.bytes_out,
            failure: self.commits.failure().map(ToString::to_string),
            stalled: self.commits.stalled(),
            damage: self.damage.clone(),
            ..ProtocolStats::default()
        }
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let stats = self.stats();
        let uptime = self.now.saturating_duration_since(self.counters.started).as_secs();
        let text = |value: u64| value.to_string();
        vec![
            ("$SYS/broker/version", format!("Forebay {}", env!("CARGO_PKG_VERSION"))),
            ("$SYS/broker/uptime", format!("{uptime} seconds")),
            ("$SYS/broker/clients/connected", text(stats.connections as u64)),
            ("$SYS/broker/clients/disconnected", text((stats.sessions - stats.connections) as u64)),
            ("$SYS/broker/clients/total", text(stats.sessions as u64)),
            ("$SYS/broker/clients/refused", text(self.counters.refused)),
            ("$SYS/broker/clients/too slow", text(self.counters.evicted)),
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

    /// The values that a new subscription gets.
    pub(super) fn status_messages(&self, pattern: &str) -> Vec<Rc<Message>> {
        if !pattern.starts_with("$SYS") {
            return Vec::new();
        }
        let values = self.values().into_iter().filter(|(name, _)| topic::matches(pattern, name));
        values.map(|(name, value)| Rc::new(Message::new(publish(name, value), self.moment()))).collect()
    }

    /// Publishes changed values.
    pub(super) fn publish_status(&mut self) {
        if self.counters.next_at > self.now {
            return;
        }
        self.counters.next_at = self.now + INTERVAL;
        for (name, value) in self.values() {
            if self.counters.told.get(name) != Some(&value) {
                self.counters.told.insert(name, value.clone());
                let route = self.route(name);
                let _ = self.scatter(&publish(name, value), &route, None);
            }
        }
    }
}

fn publish(name: &'static str, value: String) -> Publish {
    Publish { topic: name.into(), payload: value.into(), ..Publish::default() }
}
