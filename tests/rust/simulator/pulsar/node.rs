//! A client: one connection at a time, and the producers and consumers that outlive it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::error::{Error, ErrorKind};
use forebay_base::machine::{Machine, earliest};
use forebay_pulsar::command::Command;
use forebay_pulsar::connection::{Config, Connection, Event};
use forebay_pulsar::consumer::Consumer;
use forebay_pulsar::pb::command_subscribe::{InitialPosition, SubType};
use forebay_pulsar::producer::Producer;
use forebay_pulsar::{Message, MessageId, pb};

use super::disk::Name;
use crate::support::chance::Chance;

pub(crate) const TOPIC: &str = "persistent://public/default/simulated";
pub(crate) const SUBSCRIPTION: &str = "s";

/// Whether a producer or consumer is known to the broker.
#[derive(Debug)]
pub(crate) struct Opening {
    request: Option<u64>,
    again: Option<Instant>,
    pub(crate) attached: bool,
    /// Counts the connections that are over.
    pub(crate) generation: u64,
}

impl Opening {
    pub(crate) fn new(now: Instant) -> Self {
        Self { request: None, again: Some(now), attached: false, generation: 0 }
    }

    fn lost(&mut self, now: Instant, chance: &mut Chance) {
        self.request = None;
        self.attached = false;
        self.generation += 1;
        self.again = Some(now + chance.micros(50_000));
    }

    fn due(&self, now: Instant) -> bool {
        self.request.is_none() && self.again.is_some_and(|at| at <= now)
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) machine: Producer,
    pub(crate) opening: Opening,
    pub(crate) id: u64,
    pub(crate) who: u8,
    /// Number of the next message.
    pub(crate) next: u64,
    /// Number of messages to push.
    pub(crate) quota: u64,
    /// Messages without an outcome: name and bytes.
    pub(crate) pending: VecDeque<(Name, usize)>,
    pub(crate) stored: Vec<Name>,
    pub(crate) failed: usize,
}

#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) machine: Consumer,
    pub(crate) opening: Opening,
    pub(crate) id: u64,
    pub(crate) kind: SubType,
    /// The last id delivered on this connection, by key where only keys are ordered.
    pub(crate) last: BTreeMap<String, MessageId>,
    /// The target of a seek, whether it is inclusive, and the request.
    pub(crate) seeking: Option<(MessageId, bool, u64)>,
    /// Unacknowledged messages, and the generation of each.
    pub(crate) held: Vec<(MessageId, Name, u64)>,
}

/// A client with its connection, producers and consumers.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) connection: Option<Connection>,
    pub(crate) writers: Vec<Writer>,
    pub(crate) readers: Vec<Reader>,
    /// When to connect again.
    pub(crate) again: Option<Instant>,
    pub(crate) input: BytesMut,
    ready: bool,
    max_message_size: usize,
    /// Requests without an outcome.
    open: BTreeSet<u64>,
}

impl Node {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            connection: None,
            writers: Vec::new(),
            readers: Vec::new(),
            again: Some(now),
            input: BytesMut::new(),
            ready: false,
            max_message_size: 0,
            open: BTreeSet::new(),
        }
    }

    pub(crate) fn connect(&mut self, now: Instant) {
        let config = Config {
            keep_alive: Duration::from_secs(2),
            handshake_timeout: Duration::from_secs(2),
            operation_timeout: Duration::from_secs(3),
            ..Config::default()
        };
        self.connection = Some(Connection::new(config, now));
        self.again = None;
        self.input.clear();
        self.ready = false;
    }

    /// The connection has ended, on either side.
    pub(crate) fn disconnected(&mut self, now: Instant, chance: &mut Chance) -> Result<(), String> {
        if let Some(mut connection) = self.connection.take() {
            connection.fail_requests(&Error::new(ErrorKind::Disconnected, "cut"));
            while let Some(event) = connection.poll_event() {
                if let Event::Response { request_id, .. } = event
                    && !self.open.remove(&request_id)
                {
                    return Err(format!("request {request_id} ended twice"));
                }
            }
            if !self.open.is_empty() {
                return Err(format!("requests {:?} never ended", self.open));
            }
        }
        self.ready = false;
        for writer in &mut self.writers {
            writer.machine.detach();
            writer.opening.lost(now, chance);
        }
        for reader in &mut self.readers {
            reader.lost(now, chance);
        }
        self.again = Some(now + chance.micros(200_000));
        Ok(())
    }

    /// Decodes received bytes. An error ends the connection.
    pub(crate) fn read(&mut self, now: Instant, chance: &mut Chance) -> Result<Result<(), Error>, String> {
        let Some(connection) = &mut self.connection else { return Ok(Ok(())) };
        let result = connection.handle_input(now, &mut self.input);
        self.events(now, chance)?;
        Ok(result)
    }

    fn events(&mut self, now: Instant, chance: &mut Chance) -> Result<(), String> {
        while let Some(event) = self.connection.as_mut().and_then(Machine::poll_event) {
            match event {
                Event::Ready(info) => {
                    self.ready = true;
                    self.max_message_size = info.max_message_size;
                }
                Event::Response { request_id, result } => self.answered(now, request_id, result, chance)?,
                Event::Command(command) => self.command(now, command, chance)?,
                Event::Entry { delivery, payload } => {
                    let id = delivery.consumer_id;
                    if let Some(reader) = self.readers.iter_mut().find(|r| r.id == id && r.opening.attached) {
                        reader.machine.handle_message(now, delivery, payload).map_err(|e| e.to_string())?;
                    }
                }
                Event::Queued { .. } | Event::Challenge { .. } => return Err(format!("unasked: {event:?}")),
            }
        }
        Ok(())
    }

    fn answered(
        &mut self,
        now: Instant,
        request: u64,
        result: forebay_base::error::Result<Command>,
        chance: &mut Chance,
    ) -> Result<(), String> {
        if !self.open.remove(&request) {
            return Err(format!("request {request} ended twice"));
        }
        let sought = |reader: &Reader| reader.seeking.is_some_and(|(_, _, id)| id == request);
        if let Some(reader) = self.readers.iter_mut().find(|reader| sought(reader)) {
            result.map_err(|e| format!("SEEK: {e}"))?;
            if let Some((target, inclusive, _)) = reader.seeking.take() {
                reader.machine.end_seek(Some(target), inclusive);
            }
        } else if let Some(writer) = self.writers.iter_mut().find(|w| w.opening.request == Some(request)) {
            writer.opening.request = None;
            match result {
                Ok(Command::ProducerSuccess(success)) => {
                    let last = success.last_sequence_id();
                    writer.machine.attach(&success.producer_name, last, self.max_message_size);
                    writer.opening.attached = true;
                }
                Ok(other) => return Err(format!("PRODUCER was answered by {other:?}")),
                Err(_) => {
                    writer.opening.again = Some(now + Duration::from_millis(20) + chance.micros(200_000))
                }
            }
        } else if let Some(reader) = self.readers.iter_mut().find(|r| r.opening.request == Some(request)) {
            reader.opening.request = None;
            match result {
                Ok(Command::Success(_)) => {
                    reader.machine.attach();
                    reader.opening.attached = true;
                }
                Ok(other) => return Err(format!("SUBSCRIBE was answered by {other:?}")),
                Err(_) => {
                    reader.opening.again = Some(now + Duration::from_millis(20) + chance.micros(200_000))
                }
            }
        }
        Ok(())
    }

    fn command(&mut self, now: Instant, command: Command, chance: &mut Chance) -> Result<(), String> {
        match command {
            Command::SendReceipt(receipt) => {
                let writer = self
                    .writers
                    .iter_mut()
                    .find(|w| w.id == receipt.producer_id)
                    .ok_or("a stranger's receipt")?;
                writer.machine.handle_receipt(&receipt).map_err(|e| e.to_string())
            }
            Command::CloseProducer(close) => {
                for writer in self.writers.iter_mut().filter(|w| w.id == close.producer_id) {
                    writer.machine.detach();
                    writer.opening.lost(now, chance);
                }
                Ok(())
            }
            Command::CloseConsumer(close) => {
                for reader in self.readers.iter_mut().filter(|r| r.id == close.consumer_id) {
                    reader.lost(now, chance);
                }
                Ok(())
            }
            Command::ActiveConsumerChange(_) => Ok(()),
            other => Err(format!("the broker says {other:?}")),
        }
    }

    /// Does what is due and fills the connection's transmit.
    pub(crate) fn turn(&mut self, now: Instant, chance: &mut Chance) -> Result<Result<(), Error>, String> {
        let mut result = Ok(());
        if let Some(connection) = &mut self.connection {
            result = connection.handle_timeout(now);
            self.events(now, chance)?;
        }
        if self.ready && result.is_ok() {
            self.open_parts(now);
        }
        for writer in &mut self.writers {
            writer.machine.handle_timeout(now);
            if let Some(connection) = &mut self.connection {
                // Small turns, so that several are needed.
                while writer.machine.poll_transmit(connection.transmit(), 200) {}
            }
        }
        for reader in &mut self.readers {
            reader.machine.handle_timeout(now);
            if let Some(connection) = &mut self.connection {
                reader.machine.poll_transmit(connection.transmit());
            }
        }
        Ok(result)
    }

    fn open_parts(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else { return };
        for writer in self.writers.iter_mut().filter(|w| w.opening.due(now)) {
            let request = connection.request(now, |request_id| {
                Command::Producer(Box::new(pb::CommandProducer {
                    topic: TOPIC.into(),
                    producer_id: writer.id,
                    request_id,
                    producer_name: Some(format!("p{}", writer.who)),
                    user_provided_producer_name: Some(true),
                    epoch: Some(writer.opening.generation),
                    ..Default::default()
                }))
            });
            self.open.insert(request);
            writer.opening.request = Some(request);
            writer.opening.again = None;
        }
        for reader in self.readers.iter_mut().filter(|r| r.opening.due(now) && r.seeking.is_none()) {
            let request = connection.request(now, |request_id| {
                Command::Subscribe(Box::new(pb::CommandSubscribe {
                    topic: TOPIC.into(),
                    subscription: SUBSCRIPTION.into(),
                    sub_type: reader.kind as i32,
                    consumer_id: reader.id,
                    request_id,
                    consumer_name: Some(format!("c{}", reader.id)),
                    durable: Some(true),
                    initial_position: Some(InitialPosition::Earliest as i32),
                    ..Default::default()
                }))
            });
            self.open.insert(request);
            reader.opening.request = Some(request);
            reader.opening.again = None;
        }
    }

    /// Moves the subscription of its first consumer, which is attached.
    pub(crate) fn seek(&mut self, now: Instant, target: MessageId, inclusive: bool) {
        let (Some(connection), Some(reader)) = (&mut self.connection, self.readers.first_mut()) else {
            return;
        };
        reader.machine.begin_seek();
        let request = connection.request(now, |request_id| {
            Command::Seek(Box::new(pb::CommandSeek {
                consumer_id: reader.id,
                request_id,
                message_id: Some(target.into()),
                ..Default::default()
            }))
        });
        self.open.insert(request);
        reader.seeking = Some((target, inclusive, request));
    }

    /// When something is due here.
    pub(crate) fn next(&self) -> Option<Instant> {
        let mut next = self.again.filter(|_| self.connection.is_none());
        next = earliest(next, self.connection.as_ref().and_then(Machine::poll_timeout));
        for writer in &self.writers {
            next = earliest(next, writer.machine.poll_timeout());
            next = earliest(next, writer.opening.again.filter(|_| self.ready));
        }
        for reader in &self.readers {
            next = earliest(next, reader.machine.poll_timeout());
            next = earliest(next, reader.opening.again.filter(|_| self.ready && reader.seeking.is_none()));
        }
        next
    }
}

impl Reader {
    fn lost(&mut self, now: Instant, chance: &mut Chance) {
        self.machine.detach();
        self.opening.lost(now, chance);
        self.last.clear();
    }

    /// Messages whose order on one connection is guaranteed.
    pub(crate) fn order_of(&self, message: &Message) -> Option<String> {
        match self.kind {
            SubType::Exclusive | SubType::Failover => Some(String::new()),
            SubType::KeyShared => message.key.as_deref().map(str::to_owned),
            SubType::Shared => None,
        }
    }
}
