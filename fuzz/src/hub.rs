//! A broker with several connections, without sockets and disk. What its steps cost is measured.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::transmit::Transmit;
use forebay_broker::protocol::Protocol;
use forebay_sqlite::{Job as _, Outcome, Report};

use crate::meter::Meter;
use crate::rule::{Limit, READ};
use crate::script::Script;

/// Turns of one connection after some input, at most. The rest waits for its next input.
const TURNS: usize = 64;
/// Bytes that steps may have which say something many times: each of them, and all of an input.
const MANY: usize = 64 << 10;
const ALL: usize = 192 << 10;
/// Both, in an input that says so. There are few of them: each takes as long as many others.
const LARGE: usize = 2 << 20;

/// One connection.
#[derive(Debug)]
pub struct Peer {
    /// Its number at the broker.
    pub id: u64,
    /// What the broker has read and not handled, and what it has not read.
    input: BytesMut,
    socket: BytesMut,
}

/// A broker and its connections.
#[derive(Debug)]
pub struct Hub<B> {
    pub broker: B,
    pub now: Instant,
    pub meter: Meter,
    pub peers: Vec<Peer>,
    /// Changes without a report.
    changes: u64,
    /// Bytes that were received by connection since they were asked for.
    heard: Vec<BytesMut>,
    /// Connections so far.
    dialled: usize,
    /// What each step that says something many times may have, and what is left for all of them.
    each: usize,
    left: usize,
}

/// How a turn of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There may be more to do.
    Busy,
    /// It waits for input, or for another connection.
    Idle,
    /// The broker ends the connection.
    Ended,
}

/// A broker with what a script can do to it.
pub trait World {
    type Broker: Protocol;

    fn hub(&mut self) -> &mut Hub<Self::Broker>;

    /// Says what a new connection says first.
    fn present(&mut self, _index: usize) {}

    /// Decodes what a connection has received.
    fn listen(&mut self, index: usize);

    /// Goes on after the broker has ended a connection and there is a new one.
    fn ended(&mut self, _index: usize) {}

    /// Sends bytes on a connection, and decodes the answers of each turn.
    fn feed(&mut self, index: usize, bytes: &[u8]) {
        self.hub().push(index, bytes);
        for _ in 0..TURNS {
            let turn = self.hub().turn(index);
            self.listen(index);
            match turn {
                Turn::Busy => {}
                Turn::Idle => break,
                Turn::Ended => {
                    self.hub().redial(index);
                    self.ended(index);
                    break;
                }
            }
        }
    }

    /// A step of this protocol. `kind` is 3 to 63.
    fn step(&mut self, index: usize, kind: u8, script: &mut Script<'_>);
}

/// Does the steps of a script, and writes what is left to write. Each step begins with a byte for
/// its kind and one of three connections.
pub fn play<W: World>(world: &mut W, script: &mut Script<'_>) {
    while let Some(op) = script.next() {
        let index = usize::from(op & 3) % 3;
        match op >> 2 {
            0 => {
                world.hub().redial(index);
                world.present(index);
            }
            1 => world.hub().write(),
            2 => world.hub().wait(Duration::from_secs(7)),
            kind => world.step(index, kind, script),
        }
    }
    world.hub().write();
    (0..3).for_each(|index| world.listen(index));
}

impl<B: Protocol> Hub<B> {
    /// Connects three times. Steps that say something many times are `large` or not.
    pub fn new(broker: B, now: Instant, large: bool) -> Self {
        let count = 3;
        // Connections take turns: what one of them may take at once is limited, not what all may
        // take together.
        let mut meter = Meter::default();
        meter.turns = true;
        let heard = vec![BytesMut::new(); count];
        let (each, left) = if large { (LARGE, LARGE) } else { (MANY, ALL) };
        let mut hub =
            Self { broker, now, meter, peers: Vec::new(), changes: 0, heard, dialled: 0, each, left };
        for _ in 0..count {
            let peer = hub.connect();
            hub.peers.push(peer);
        }
        hub
    }

    fn connect(&mut self) -> Peer {
        let (broker, now) = (&mut self.broker, self.now);
        self.dialled += 1;
        let id = self.meter.run(|| broker.connect(now, "10.9.8.7:1"));
        Peer { id, input: BytesMut::new(), socket: BytesMut::new() }
    }

    /// Bytes that a step may have which says something many times.
    pub fn room(&self) -> usize {
        self.left.min(self.each)
    }

    /// Notes the bytes of such a step.
    pub fn charge(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Ends a connection and makes a new one in its place.
    pub fn redial(&mut self, index: usize) {
        let (broker, now, id) = (&mut self.broker, self.now, self.peers[index].id);
        self.meter.run(|| broker.disconnect(now, id));
        self.settle();
        let next = self.connect();
        let last = std::mem::replace(&mut self.peers[index], next);
        self.meter.run(move || drop(last));
        self.heard[index].clear();
    }

    /// Gives a connection bytes to send.
    pub fn push(&mut self, index: usize, bytes: &[u8]) {
        self.meter.came(bytes.len());
        self.meter.run(|| self.peers[index].socket.extend_from_slice(bytes));
    }

    /// Hands the broker bytes of a connection as its driver would, and takes the answers.
    pub fn turn(&mut self, index: usize) -> Turn {
        let (broker, peer, now) = (&mut self.broker, &mut self.peers[index], self.now);
        let before = (peer.input.len(), peer.socket.len());
        let ended = self.meter.turn(|| {
            if broker.may_read(peer.id) && !peer.socket.is_empty() {
                let size = peer.socket.len().min(READ);
                let piece = peer.socket.split_to(size);
                peer.input.extend_from_slice(&piece);
            }
            let waiting = peer.input.len();
            let ended =
                broker.handle_input(now, peer.id, &mut peer.input).is_err() || broker.finished(peer.id);
            (ended, waiting - peer.input.len())
        });
        self.settle();
        let heard = self.hear(index);
        if ended {
            return Turn::Ended;
        }
        let due = self.broker.poll_timeout().is_some_and(|at| at <= self.now);
        if due {
            let (broker, now) = (&mut self.broker, self.now);
            self.meter.run(|| broker.handle_timeout(now));
            self.settle();
        }
        let peer = &self.peers[index];
        if due || heard || before != (peer.input.len(), peer.socket.len()) { Turn::Busy } else { Turn::Idle }
    }

    /// Whether the broker waits for the rest of a frame, or is not ready to read.
    pub fn is_amid(&self, index: usize) -> bool {
        !self.peers[index].input.is_empty() || !self.peers[index].socket.is_empty()
    }

    /// Takes the broker's changes.
    pub fn settle(&mut self) {
        let (broker, mut count, mut largest) = (&mut self.broker, 0, 0);
        self.meter.run(|| {
            while let Some(op) = broker.poll_op() {
                count += 1;
                largest = largest.max(op.size());
            }
            while broker.poll_wake().is_some() {}
            while let Some(work) = broker.poll_work() {
                broker.handle_work(self.now, work.id, false);
            }
        });
        self.meter.changed(largest);
        self.changes += count;
    }

    /// Reports the changes so far as written.
    pub fn write(&mut self) {
        while self.changes > 0 {
            let jobs = std::mem::take(&mut self.changes);
            let (broker, now) = (&mut self.broker, self.now);
            self.meter.run(|| {
                let outcome = Outcome::Written(broker.used_bytes());
                broker.handle_report(now, Report { jobs, outcome });
            });
            self.settle();
        }
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        let (broker, now) = (&mut self.broker, self.now);
        self.meter.run(|| broker.handle_timeout(now));
        self.settle();
        for index in 0..self.peers.len() {
            let (broker, id) = (&mut self.broker, self.peers[index].id);
            if broker.session_timeout(id).is_some_and(|at| at <= now)
                && self.meter.run(|| broker.handle_session_timeout(now, id)).is_err()
            {
                self.hear(index);
                self.redial(index);
            }
        }
    }

    /// Receives what is queued for a connection. Returns whether there was something.
    fn hear(&mut self, index: usize) -> bool {
        let (broker, now, id) = (&mut self.broker, self.now, self.peers[index].id);
        let output = self.meter.run(|| {
            let mut output = Transmit::default();
            broker.take_output(now, id, &mut output);
            output
        });
        self.settle();
        self.meter.went(output.len());
        let output = self.meter.run(move || {
            let mut output = output;
            output.take()
        });
        self.heard[index].extend_from_slice(&output);
        let some = !output.is_empty();
        self.meter.run(move || drop(output));
        some
    }

    /// What a connection has received since the last call.
    pub fn listen(&mut self, index: usize) -> BytesMut {
        while self.hear(index) {}
        std::mem::take(&mut self.heard[index])
    }

    /// Panics if more was spent than the bytes and the connections explain.
    pub fn check(&self, limit: Limit) {
        self.meter.check(limit, self.dialled);
    }
}
