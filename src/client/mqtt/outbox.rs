//! The durable outbox of an MQTT client: publications of QoS 1 and 2 in a file, until the broker
//! has them.
//!
//! ```text
//!             store             sent (QoS 2)           released (QoS 2)
//!  ──────────► waiting ─────────────────────► in flight ─────────────────► PUBREL owed
//!                 │                              │                            │
//!                 └──────────── remove ──────────┴──────────── remove ────────┘
//! ```
//! Each call returns a [`Ticket`], and the report says up to which ticket everything is on disk.
//! The sender waits for it: the packet identifier of a QoS 2 PUBLISH has to be on disk before the
//! PUBLISH is sent, and its PUBREC before its PUBREL. Otherwise, after a kill, the client would not
//! know that the broker may have the message, and would publish it twice. QoS 1 needs no
//! identifier, because it may arrive twice.
//!
//! The queue may be larger than memory: waiting messages are read in pieces, with [`Outbox::load`].
//!
//! Each value of a row has a checksum, and those that are written together share one. A row is
//! verified before anything of it is used: those in flight when the file is opened, those that wait
//! when they are loaded. The structure of the file is checked when it is opened, because a page
//! that is lost takes rows with it that nothing asks for.
//!
//! One client at a time has the file open. Its lock ends with the process, however the process
//! ends.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use rusqlite::types::ValueRef;

pub(super) use self::file::OUTBOX_LIMIT;
pub use self::file::{Found, InFlight, Loaded, OutboxOptions};
use self::file::{
    claim, connect, decode, encode, load, message_sum, packet_id_sum, read, released_sum, session_sum,
};
use forebay_base::clock::wall_ms;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::{Mutex, Rank};
use forebay_mqtt::QoS;
use forebay_mqtt::packet::{PacketId, Publish};
use forebay_sqlite::{Connection, Job, Outcome, Trouble, Writer};

mod file;
pub(super) mod session;

/// Approximate bytes of a row besides its packet.
const ROW: usize = 50;

/// Number of a change, in the order of the calls.
pub type Ticket = u64;

/// Receives a piece of the waiting publications. Called on the outbox's thread.
pub type LoadSink = Box<dyn FnOnce(Result<Loaded>) + Send>;

/// Called on the outbox's thread, tickets in order: everything up to this ticket is on disk, or,
/// with an error, nothing is written from here on.
pub type ReportSink = Box<dyn FnMut(Ticket, Result<()>) + Send>;

/// The open file. After a failure nothing more is written; what was reported stays.
#[derive(Debug)]
pub struct Outbox {
    writer: Writer<Change>,
    submitted: Arc<Mutex<Submitted>>,
    max_bytes: u64,
    /// Declared after the writer, so that the file is closed before another process may open it.
    _lock: Mutex<Connection>,
}

/// Changes that the writer has not reported.
#[derive(Debug, Default)]
struct Submitted {
    /// One entry for each change, in the writer's order.
    changes: VecDeque<Pending>,
    /// Bytes of publications that are to be stored.
    bytes: u64,
    /// Bytes in use by the file after the last commit.
    used: u64,
    last: Ticket,
    failed: Option<Error>,
}

enum Pending {
    /// A change, with the bytes that it stores.
    Change(u64),
    Load(Arc<Mutex<Result<Loaded>>>, LoadSink),
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Change(_) => "Change",
            Self::Load(..) => "Load",
        })
    }
}

impl Outbox {
    /// Opens or creates the file. A broken, foreign or newer file is refused, and so is one that is
    /// open already.
    pub fn open(options: &OutboxOptions, report: ReportSink) -> Result<(Self, Found)> {
        let name = |error: Error| explain(error, &options.path);
        let claim = claim(&options.path).map_err(name)?;
        let connection = connect(options).map_err(name)?;
        let found = read(&connection).map_err(name)?;
        Ok((Self::start(claim, connection, options, report).map_err(name)?, found))
    }

    fn start(
        claim: Connection,
        connection: Connection,
        options: &OutboxOptions,
        mut report: ReportSink,
    ) -> Result<Self> {
        let used = forebay_sqlite::used_bytes(&connection)?;
        let submitted = Arc::new(Mutex::new(Rank::Outbox, Submitted { used, ..Submitted::default() }));
        let (shared, path) = (Arc::clone(&submitted), options.path.clone());
        let mut reported = 0;
        let writer = Writer::start(connection, Trouble::Fail, move |batch: &[Change], outcome: &Outcome| {
            let jobs = batch.len() as u64;
            let outcome = match outcome.clone() {
                Outcome::Written(used) | Outcome::CleaningUp(used) => Ok(used),
                // The outbox leaves nothing for later.
                Outcome::CleanedUp => return,
                Outcome::Rejected(error) | Outcome::Failed(error) | Outcome::Waiting(error) => {
                    Err(explain(error, &path))
                }
            };
            let mut loads = Vec::new();
            {
                let mut submitted = shared.lock();
                for _ in 0..jobs {
                    match submitted.changes.pop_front().expect("it was submitted") {
                        Pending::Change(bytes) => submitted.bytes -= bytes,
                        Pending::Load(loaded, sink) => loads.push((loaded, sink)),
                    }
                }
                match &outcome {
                    Ok(used) => submitted.used = *used,
                    Err(error) => submitted.failed = Some(error.clone()),
                }
            }
            reported += jobs;
            report(reported, outcome.clone().map(drop));
            for (loaded, sink) in loads {
                let loaded = std::mem::replace(&mut *loaded.lock(), Ok(Loaded::default()));
                sink(outcome.clone().and(loaded.map_err(|error| explain(error, &path))));
            }
        })?;
        Ok(Self { writer, submitted, max_bytes: options.max_bytes, _lock: Mutex::leaf(claim) })
    }

    /// Stores a publication. `key` must be above all earlier ones.
    pub fn store(&self, key: u64, publish: &Publish) -> Result<Ticket> {
        debug_assert!(publish.qos != QoS::AtMostOnce, "QoS 0 is not kept");
        let packet = encode(publish)?;
        // A publication that could not be read again must not be accepted.
        if decode(key, &packet).is_err() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a client may not publish this: its topic or one of its properties is not allowed",
            ));
        }
        let expiry = publish.properties.message_expiry_interval();
        let expires_ms = expiry.map(|seconds| wall_ms() as i64 + i64::from(*seconds) * 1000);
        let bytes = weight(packet.len());
        let mut submitted = self.submitted.lock();
        let held = submitted.used + submitted.bytes;
        if held + bytes > self.max_bytes {
            return Err(Error::new(
                ErrorKind::QueueFull,
                format!(
                    "the outbox holds {held} of {} bytes: wait for the broker, or raise its max_bytes",
                    self.max_bytes
                ),
            ));
        }
        self.submit(&mut submitted, Change::Store { key, expires_ms, packet }, Pending::Change(bytes))
    }

    /// A QoS 2 publication has entered the window: to be on disk before it is sent.
    pub fn sent(&self, key: u64, packet_id: PacketId) -> Result<Ticket> {
        self.change(Change::Sent(key, packet_id))
    }

    /// PUBREC has arrived: to be on disk before PUBREL is sent.
    pub fn released(&self, key: u64) -> Result<Ticket> {
        self.change(Change::Released(key))
    }

    /// The broker had lost the session: these publications wait again.
    pub fn requeue(&self, keys: Vec<u64>) -> Result<Ticket> {
        self.change(Change::Requeue(keys))
    }

    /// Removes publications that the broker has or has refused. A kill before this is on disk does
    /// no harm: QoS 1 may arrive twice, and of QoS 2 only the PUBREL would be sent again.
    pub fn remove(&self, keys: Vec<u64>) -> Result<Ticket> {
        self.change(Change::Remove(keys))
    }

    /// Stores the client identifier, without which the packet identifiers mean nothing.
    pub fn set_client_id(&self, client_id: &str) -> Result<Ticket> {
        self.change(Change::ClientId(client_id.into()))
    }

    /// Reads publications without a packet identifier behind the key `after`: up to `max_bytes`, at
    /// least one.
    pub fn load(&self, after: Option<u64>, max_bytes: usize, sink: LoadSink) -> Result<Ticket> {
        let loaded = Arc::new(Mutex::leaf(Ok(Loaded::default())));
        let change = Change::Load { after, max_bytes, loaded: Arc::clone(&loaded) };
        self.submit(&mut self.submitted.lock(), change, Pending::Load(loaded, sink))
    }

    /// Bytes in use, including those about to be stored.
    pub fn bytes(&self) -> u64 {
        let submitted = self.submitted.lock();
        submitted.used + submitted.bytes
    }

    /// The error since which nothing is written.
    pub fn failure(&self) -> Option<Error> {
        self.submitted.lock().failed.clone()
    }

    /// Writes what was submitted, reports it, and closes the file.
    pub fn close(mut self) {
        self.writer.close();
    }

    fn change(&self, change: Change) -> Result<Ticket> {
        self.submit(&mut self.submitted.lock(), change, Pending::Change(0))
    }

    fn submit(&self, submitted: &mut Submitted, change: Change, pending: Pending) -> Result<Ticket> {
        if let Some(error) = &submitted.failed {
            return Err(error.clone());
        }
        if let Pending::Change(bytes) = &pending {
            submitted.bytes += bytes;
        }
        submitted.changes.push_back(pending);
        submitted.last += 1;
        // Under the lock, so that the writer's order is the order of the tickets.
        self.writer.submit(change);
        Ok(submitted.last)
    }
}

#[derive(Debug)]
enum Change {
    Store { key: u64, expires_ms: Option<i64>, packet: BytesMut },
    Sent(u64, PacketId),
    Released(u64),
    Requeue(Vec<u64>),
    Remove(Vec<u64>),
    ClientId(String),
    Load { after: Option<u64>, max_bytes: usize, loaded: Arc<Mutex<Result<Loaded>>> },
}

impl Job for Change {
    fn size(&self) -> usize {
        match self {
            Self::Store { packet, .. } => packet.len() + ROW,
            Self::Remove(keys) | Self::Requeue(keys) => keys.len() * ROW,
            // A read must not delay the writes behind it for long.
            Self::Load { max_bytes, .. } => *max_bytes,
            _ => ROW,
        }
    }

    fn apply_after(&self, db: &Connection, _: &mut usize) -> rusqlite::Result<()> {
        let execute =
            |sql: &str, values: &[&dyn rusqlite::ToSql]| db.prepare_cached(sql)?.execute(values).map(drop);
        match self {
            Self::Store { key, expires_ms, packet } => {
                let key = *key as i64;
                let sum = message_sum(key, (*expires_ms).map_or(ValueRef::Null, ValueRef::Integer), packet);
                execute(
                    "INSERT INTO message VALUES (?1, 0, 0, ?2, ?3, ?4, ?5, ?6)",
                    &[&key, expires_ms, &&packet[..], &sum, &packet_id_sum(key, 0), &released_sum(key, 0)],
                )
            }
            Self::Sent(key, packet_id) => {
                let (key, packet_id) = (*key as i64, packet_id.get());
                execute(
                    "UPDATE message SET packet_id = ?2, packet_id_sum = ?3 WHERE key = ?1",
                    &[&key, &packet_id, &packet_id_sum(key, packet_id.into())],
                )
            }
            Self::Released(key) => {
                let key = *key as i64;
                execute(
                    "UPDATE message SET released = 1, released_sum = ?2 WHERE key = ?1",
                    &[&key, &released_sum(key, 1)],
                )
            }
            Self::Requeue(keys) => keys.iter().try_for_each(|key| {
                let key = *key as i64;
                execute(
                    "UPDATE message SET packet_id = 0, released = 0, packet_id_sum = ?2, released_sum = ?3 \
                     WHERE key = ?1",
                    &[&key, &packet_id_sum(key, 0), &released_sum(key, 0)],
                )
            }),
            Self::Remove(keys) => keys
                .iter()
                .try_for_each(|key| execute("DELETE FROM message WHERE key = ?1", &[&(*key as i64)])),
            Self::ClientId(name) => {
                execute("INSERT OR REPLACE INTO session VALUES (1, ?1, ?2)", &[name, &session_sum(name)])
            }
            Self::Load { after, max_bytes, loaded } => {
                *loaded.lock() = load(db, *after, *max_bytes)?;
                Ok(())
            }
        }
    }
}

/// Bytes of a packet in the file: a row that does not fit into an SQLite page gets pages of its
/// own.
fn weight(packet: usize) -> u64 {
    const PAGE: usize = 4096;
    let row = packet + ROW;
    (if row < PAGE - 100 { row } else { (row / (PAGE - 4) + 2) * PAGE }) as u64
}

fn explain(error: Error, path: &Path) -> Error {
    Error::new(error.kind(), format!("the outbox {}: {}", path.display(), error.message()))
}

#[cfg(test)]
mod tests;
