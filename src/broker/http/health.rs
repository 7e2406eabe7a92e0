//! Health checks: `/healthz` tells that the broker answers, `/readyz` that it takes messages. They
//! need no token, and tell no more than that.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::message::Answer;
use crate::free_space::Room;
use crate::stats::Stats;

/// The beginning of 2025: a calendar before that was never set.
const EPOCH_MS: u64 = 1_735_689_600_000;

/// Whether a path is answered without a token.
pub(super) fn is_open(path: &str) -> bool {
    ["/healthz", "/readyz"].contains(&path)
}

/// The answer to `/healthz`.
pub(super) fn alive() -> Answer {
    Answer::new("text/plain; charset=utf-8", "ok\n")
}

/// The state of the broker.
pub(super) struct State<'a> {
    pub(super) stats: &'a Stats,
    /// Limit on the bytes of the store: `max_store`, or less if the disk has no room for it.
    pub(super) limit: u64,
    /// Whether the limit is reached and is the disk's.
    pub(super) disk_is_full: bool,
    /// The disk; without a store `None`.
    pub(super) room: Option<Room>,
    /// Number of the store's transactions, and the time that they have taken.
    pub(super) commits: (u64, Duration),
    /// Milliseconds since 1970.
    pub(super) wall_ms: u64,
}

impl State<'_> {
    /// Why the store accepts nothing.
    fn store(&self) -> Option<&'static str> {
        let any = |is: fn(&crate::stats::ProtocolStats) -> bool| {
            self.stats.protocols.iter().any(|(_, stats)| is(stats))
        };
        if any(|stats| stats.failure.is_some()) {
            return Some("the store has failed: restart the broker");
        }
        if any(|stats| stats.stalled.is_some()) {
            return Some("the store cannot be written to at the moment");
        }
        (self.stats.store_bytes >= self.limit && !self.disk_is_full)
            .then_some("the store is full: consume or delete messages, or raise max_store")
    }

    fn disk(&self) -> Option<&'static str> {
        match self.room? {
            _ if self.disk_is_full => Some("the disk has less than min_disk_free left"),
            Room::Silent => Some("the disk does not answer"),
            Room::Free(_) | Room::Unknown => None,
        }
    }

    fn clock(&self) -> Option<&'static str> {
        (self.wall_ms < EPOCH_MS).then_some("the calendar was never set: it shows a time before 2025")
    }

    /// Whether the store takes messages.
    pub(super) fn is_writable(&self) -> bool {
        self.store().is_none() && !self.disk_is_full
    }

    /// The answer to `/readyz`.
    pub(super) fn ready(&self) -> Answer {
        let checks = [("store", self.store()), ("disk", self.disk()), ("clock", self.clock())];
        let ready = checks.iter().all(|(_, wrong)| wrong.is_none());
        let mut report: Map<String, Value> =
            checks.into_iter().map(|(name, wrong)| (name.into(), wrong.unwrap_or("ok").into())).collect();
        report.insert("ready".into(), ready.into());
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Answer { status, ..Answer::json(&report.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ProtocolStats;

    #[test]
    fn a_broker_that_cannot_take_messages_is_not_ready_and_says_why() {
        let failed = ProtocolStats { failure: Some("secret path".into()), ..ProtocolStats::default() };
        let stalled = ProtocolStats { stalled: Some("secret path".into()), ..ProtocolStats::default() };
        let good = ProtocolStats::default;
        let free = Some(Room::Free(1));
        for (stats, bytes, disk_is_full, room, wall_ms, wrong) in [
            (good(), 0, false, free, EPOCH_MS, None),
            (good(), 0, false, None, EPOCH_MS, None),
            (good(), 0, false, Some(Room::Unknown), EPOCH_MS, None),
            (failed, 0, false, free, EPOCH_MS, Some("store")),
            (stalled, 0, false, free, EPOCH_MS, Some("store")),
            (good(), 100, false, free, EPOCH_MS, Some("store")),
            (good(), 100, true, free, EPOCH_MS, Some("disk")),
            (good(), 0, false, Some(Room::Silent), EPOCH_MS, Some("disk")),
            (good(), 0, false, free, EPOCH_MS - 1, Some("clock")),
        ] {
            let stats = Stats { protocols: vec![("pulsar", good()), ("mqtt", stats)], store_bytes: bytes };
            let answer =
                State { stats: &stats, limit: 100, disk_is_full, room, commits: Default::default(), wall_ms }
                    .ready();
            assert_eq!(answer.status.as_u16(), if wrong.is_some() { 503 } else { 200 }, "{wrong:?}");
            let report: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(report["ready"], wrong.is_none());
            for name in ["store", "disk", "clock"] {
                assert_eq!(report[name] == "ok", wrong != Some(name), "{report}");
            }
            assert!(!report.to_string().contains("secret"));
        }
    }
}
