//! A simulated TCP connection: bytes arrive in order, late, in pieces of any size. After a cut only
//! a part of the bytes in flight arrives. The two ends learn of a cut at different times, or never.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::chance::Chance;

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    under_way: VecDeque<(Instant, Bytes)>,
    cut: bool,
}

impl Pipe {
    /// Sends `bytes`, in pieces.
    pub(crate) fn write(&mut self, now: Instant, mut bytes: Bytes, slowness: usize, chance: &mut Chance) {
        let mut at = self.under_way.back().map_or(now, |(at, _)| (*at).max(now));
        while !bytes.is_empty() && !self.cut {
            let piece = if chance.percent(70) { bytes.len() } else { chance.within(1, bytes.len() + 1) };
            at = at.max(now + chance.micros(slowness));
            self.under_way.push_back((at, bytes.split_to(piece)));
        }
    }

    /// Bytes that have arrived.
    pub(crate) fn read(&mut self, now: Instant, into: &mut BytesMut) -> bool {
        let mut any = false;
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, bytes)) = self.under_way.pop_front() else { break };
            into.extend_from_slice(&bytes);
            any = true;
        }
        any
    }

    /// Time at which the next piece arrives.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.under_way.front().map(|(at, _)| *at)
    }

    fn cut(&mut self, chance: &mut Chance) {
        self.cut = true;
        let pieces = chance.below(self.under_way.len() + 1);
        self.under_way.truncate(pieces);
        if let Some((_, last)) = self.under_way.back_mut() {
            last.truncate(chance.within(1, last.len() + 1));
        }
    }
}

/// A connection between a client and the broker.
#[derive(Debug)]
pub(crate) struct Link {
    /// The client's node, while it holds this link.
    pub(crate) node: usize,
    /// The broker's session, and the run of the broker that it belongs to.
    pub(crate) session: (u64, u64),
    /// Direction to the broker.
    pub(crate) up: Pipe,
    /// Direction to the client.
    pub(crate) down: Pipe,
    /// Time at which the client learns of the end.
    pub(crate) client_end: Option<Instant>,
    /// Time at which the broker learns of the end.
    pub(crate) broker_end: Option<Instant>,
    /// Whether the client has dropped it.
    pub(crate) client_gone: bool,
    /// Whether the broker has dropped it.
    pub(crate) broker_gone: bool,
    /// Bytes that the broker has not decoded.
    pub(crate) input: BytesMut,
}

impl Link {
    pub(crate) fn new(node: usize, session: (u64, u64)) -> Self {
        Self {
            node,
            session,
            up: Pipe::default(),
            down: Pipe::default(),
            client_end: None,
            broker_end: None,
            client_gone: false,
            broker_gone: false,
            input: BytesMut::new(),
        }
    }

    /// The network cuts it. Either end may have to detect that by keep-alive.
    pub(crate) fn cut(&mut self, now: Instant, chance: &mut Chance) {
        self.up.cut(chance);
        self.down.cut(chance);
        if chance.percent(90) {
            self.client_end.get_or_insert(now + chance.micros(300_000));
        }
        if chance.percent(90) {
            self.broker_end.get_or_insert(now + chance.micros(1_500_000));
        }
    }

    /// The client closes it; all or part of its written bytes still arrive.
    pub(crate) fn close_client(&mut self, now: Instant, chance: &mut Chance) {
        self.client_gone = true;
        self.down.cut(chance);
        self.up.cut = true;
        self.broker_end.get_or_insert(now + Duration::from_millis(5) + chance.micros(300_000));
    }

    /// The broker closes it; its written bytes still arrive.
    pub(crate) fn close_broker(&mut self, now: Instant, chance: &mut Chance) {
        self.broker_gone = true;
        self.up.cut(chance);
        self.down.cut = true;
        let last = self.down.under_way.back().map_or(now, |(at, _)| *at);
        self.client_end.get_or_insert(last.max(now) + chance.micros(50_000));
    }

    /// Whether the network cut it, so that a keep-alive may go unanswered.
    pub(crate) fn is_broken(&self) -> bool {
        self.up.cut || self.down.cut
    }

    /// Time of the next event on it.
    pub(crate) fn next(&self) -> Option<Instant> {
        let up = self.up.next().filter(|_| !self.broker_gone);
        let down = self.down.next().filter(|_| !self.client_gone);
        let broker = self.broker_end.filter(|_| !self.broker_gone);
        let client = self.client_end.filter(|_| !self.client_gone);
        [up, down, broker, client].into_iter().flatten().min()
    }
}
