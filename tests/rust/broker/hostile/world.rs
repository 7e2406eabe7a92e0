//! One protocol's broker without socket, disk and clock, and a visitor whose bytes are measured.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::error::Result;
use forebay_base::transmit::Transmit;
use forebay_broker::protocol::Protocol;
use forebay_sqlite::{Job as _, Outcome, Report};

pub(crate) use crate::support::settings::WALL_MS;

/// Time within which a stranger's connection ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that the broker may hold for a stranger's connection.
pub(crate) const HELD: usize = 64 << 10;

/// A broker and its time. Its changes are reported as written at once.
pub(crate) struct World<B> {
    pub(crate) broker: B,
    pub(crate) now: Instant,
    /// Changes for the store.
    pub(crate) changes: u64,
    /// Bytes of the largest of them.
    pub(crate) largest: usize,
}

/// What came of a visitor's bytes.
#[derive(Debug)]
pub(crate) struct Visit {
    /// Bytes that were sent back.
    pub(crate) output: Vec<u8>,
    /// Whether the connection ended, at the latest after [`PATIENCE`].
    pub(crate) ended: bool,
    /// Changes for the store.
    pub(crate) changes: u64,
    /// Bytes that stayed allocated, and received bytes that wait.
    pub(crate) held: usize,
}

impl<B: Protocol + Debug> World<B> {
    pub(crate) fn new(broker: B, now: Instant) -> Self {
        Self { broker, now, changes: 0, largest: 0 }
    }

    pub(crate) fn connect(&mut self, address: &str) -> u64 {
        self.broker.connect(self.now, address)
    }

    /// Hands bytes over; what stays in `input` waits for more.
    pub(crate) fn feed(&mut self, id: u64, input: &mut BytesMut) -> Result<()> {
        let result = self.broker.handle_input(self.now, id, input);
        self.settle();
        result
    }

    pub(crate) fn tell(&mut self, id: u64, bytes: &[u8]) -> Result<()> {
        self.feed(id, &mut BytesMut::from(bytes))
    }

    /// Bytes for the connection since the last call.
    pub(crate) fn hear(&mut self, id: u64) -> BytesMut {
        let mut heard = BytesMut::new();
        loop {
            let mut output = Transmit::default();
            self.broker.take_output(self.now, id, &mut output);
            self.settle();
            if output.is_empty() {
                return heard;
            }
            heard.extend_from_slice(&output.take());
        }
    }

    /// Takes what is queued for the connection and gives its length.
    pub(crate) fn hear_once(&mut self, id: u64) -> usize {
        let mut output = Transmit::default();
        self.broker.take_output(self.now, id, &mut output);
        self.settle();
        output.len()
    }

    pub(crate) fn settle(&mut self) {
        loop {
            let mut jobs = 0;
            while let Some(op) = self.broker.poll_op() {
                jobs += 1;
                self.largest = self.largest.max(op.size());
            }
            if jobs == 0 {
                break;
            }
            self.changes += jobs;
            self.broker.handle_report(self.now, Report { jobs, outcome: Outcome::Written(0) });
        }
        while self.broker.poll_wake().is_some() {}
    }

    /// Whether the connection ends by itself within `patience`.
    pub(crate) fn ends(&mut self, id: u64, patience: Duration) -> bool {
        let until = self.now + patience;
        for _ in 0..16 {
            if self.broker.finished(id) {
                return true;
            }
            let Some(at) = self.broker.session_timeout(id).filter(|at| *at <= until) else { return false };
            self.now = self.now.max(at);
            if self.broker.handle_session_timeout(self.now, id).is_err() {
                return true;
            }
        }
        false
    }

    /// Sends `bytes` on a connection of their own, and watches it until its end. Then the
    /// connection is gone.
    pub(crate) fn visit(&mut self, address: &str, bytes: &[u8]) -> Visit {
        let (before, connection) = (self.changes, self.connect(address));
        let mut input = BytesMut::from(bytes);
        let mut result = Ok(());
        let heap = allocation_counter::measure(|| result = self.feed(connection, &mut input));
        // Received bytes, too, are held as long as they wait. Those behind an error go with the
        // connection.
        let waiting = if result.is_ok() { input.len() } else { 0 };
        let held = usize::try_from(heap.bytes_current).unwrap_or_default() + waiting;
        let output = self.hear(connection).to_vec();
        let ended = result.is_err() || self.ends(connection, PATIENCE);
        self.broker.disconnect(self.now, connection);
        self.settle();
        Visit { output, ended, changes: self.changes - before, held }
    }

    /// Everything that the broker knows, without the named fields: those that count connections or
    /// follow the time.
    pub(crate) fn state(&self, apart: &[&str]) -> String {
        let text = format!("{:#?}", self.broker);
        let mut kept = true;
        let mut lines = Vec::new();
        for line in text.lines() {
            // A field of the broker itself.
            if let Some(field) =
                line.strip_prefix("    ").filter(|rest| !rest.starts_with([' ', '}', ']', ')']))
            {
                let name = field.split(':').next().unwrap_or_default();
                kept = !apart.contains(&name);
            }
            if kept {
                lines.push(line);
            }
        }
        assert!(lines.len() > 20, "the state was not read: {text}");
        lines.join("\n")
    }
}

/// The first difference of two states, for a message.
pub(crate) fn difference(before: &str, after: &str) -> String {
    let differ = |(a, b): &(&str, &str)| a != b;
    match before.lines().zip(after.lines()).enumerate().find(|(_, pair)| differ(pair)) {
        Some((number, (a, b))) => format!("line {number}: {a:?} became {b:?}"),
        None => format!("{} lines became {}", before.lines().count(), after.lines().count()),
    }
}
