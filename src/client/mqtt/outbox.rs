//! The durable outbox of an MQTT client: publications of QoS 1 and 2 in a file, until the broker has them.
//!
//! ```text
//!             store             sent (QoS 2)           released (QoS 2)
//!  ──────────► waiting ─────────────────────► in flight ─────────────────► PUBREL owed
//!                 │                              │                            │
//!                 └──────────── remove ──────────┴──────────── remove ────────┘
//! ```
//! Each call returns a [`Ticket`], and the report says up to which ticket everything is on disk. The sender waits for
//! it: the packet identifier of a QoS 2 PUBLISH has to be on disk before the PUBLISH is sent, and its PUBREC before
//! its PUBREL. Otherwise, after a kill, the client would not know that the broker may have the message, and would
//! publish it twice. QoS 1 needs no identifier, because it may arrive twice.
//!
//! The queue may be larger than memory: waiting messages are read in pieces, with [`Outbox::load`].
//!
//! One client at a time has the file open. Its lock ends with the process, however the process ends.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use rusqlite::OptionalExtension;

use crate::clock::wall_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::mqtt::frame::Decoder;
use crate::mqtt::packet::{PacketId, Publish};
use crate::mqtt::{Packet, Property, QoS, Sender, Version};
use crate::sqlite::{self, Connection, Job, Outcome, Sync, Trouble, Writer};
use crate::sync::{Mutex, Rank};
use crate::transmit::Transmit;

pub(super) mod session;

/// Application id of an outbox: "PsOb".
const APPLICATION: i32 = 0x5073_4F62;
/// Version of the tables.
const FORMAT: i32 = 1;
/// Approximate bytes of a row besides its packet.
const ROW: usize = 32;

const SCHEMA: &str = "
CREATE TABLE message (key INTEGER PRIMARY KEY, packet_id INTEGER NOT NULL, released INTEGER NOT NULL,
    expires_ms INTEGER, packet BLOB NOT NULL);
CREATE INDEX in_flight ON message (packet_id) WHERE packet_id > 0;
CREATE TABLE session (only INTEGER PRIMARY KEY CHECK (only = 1), client_id TEXT NOT NULL);
";

/// Path and limits of an outbox.
#[derive(Clone, Debug)]
pub struct OutboxOptions {
    /// The file; created if it does not exist, readable by its owner only.
    pub path: PathBuf,
    /// Limit on the bytes in use, give or take a page; more is refused with `QueueFull`.
    pub max_bytes: u64,
    /// When a message counts as stored.
    pub sync: Sync,
}

impl OutboxOptions {
    /// An outbox of at most 1 GiB at `path`, whose messages count as stored once they are on disk.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), max_bytes: 1 << 30, sync: Sync::Full }
    }
}

/// Number of a change, in the order of the calls.
pub type Ticket = u64;

/// A publication that had a packet identifier when the last process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Key given to [`Outbox::store`].
    pub key: u64,
    /// The publication as it was stored, without its identifier.
    pub publish: Publish,
    /// Identifier under which the broker may know it.
    pub packet_id: PacketId,
    /// Whether PUBREC had arrived: PUBREL is owed, and the message itself is not sent again.
    pub released: bool,
}

/// Contents of the file when it was opened.
#[derive(Debug, Default)]
pub struct Found {
    /// Client identifier of the session, if one was stored.
    pub client_id: Option<String>,
    /// Publications in flight, in the order of their keys.
    pub in_flight: Vec<InFlight>,
    /// Number of publications without a packet identifier, for [`Outbox::load`].
    pub waiting: u64,
    /// Lowest key that was never used.
    pub next_key: u64,
}

/// A piece of the waiting publications.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Publications in the order of their keys, with the rest of their message expiry interval.
    pub messages: Vec<(u64, Publish)>,
    /// Keys of publications that expired meanwhile and were removed.
    pub expired: Vec<u64>,
    /// Whether there may be more behind the last key.
    pub more: bool,
    /// The last key that was read.
    pub last: Option<u64>,
}

/// Receives a piece of the waiting publications. Called on the outbox's thread.
pub type LoadSink = Box<dyn FnOnce(Result<Loaded>) + Send>;

/// Called on the outbox's thread, tickets in order: everything up to this ticket is on disk, or, with an error,
/// nothing is written from here on.
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
    /// Opens or creates the file. A broken, foreign or newer file is refused, and so is one that is open already.
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
        let used = sqlite::used_bytes(&connection)?;
        let submitted = Arc::new(Mutex::new(Rank::Outbox, Submitted { used, ..Submitted::default() }));
        let (shared, path) = (Arc::clone(&submitted), options.path.clone());
        let mut reported = 0;
        let writer = Writer::start(connection, Trouble::Fail, move |batch: &[Change], outcome: &Outcome| {
            let jobs = batch.len() as u64;
            let outcome = match outcome.clone() {
                Outcome::Written(used) => Ok(used),
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

    /// Removes publications that the broker has or has refused. A kill before this is on disk does no harm: QoS 1 may
    /// arrive twice, and of QoS 2 only the PUBREL would be sent again.
    pub fn remove(&self, keys: Vec<u64>) -> Result<Ticket> {
        self.change(Change::Remove(keys))
    }

    /// Stores the client identifier, without which the packet identifiers mean nothing.
    pub fn set_client_id(&self, client_id: &str) -> Result<Ticket> {
        self.change(Change::ClientId(client_id.into()))
    }

    /// Reads publications without a packet identifier behind the key `after`: up to `max_bytes`, at least one.
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
            Self::Store { key, expires_ms, packet } => execute(
                "INSERT INTO message VALUES (?1, 0, 0, ?2, ?3)",
                &[&(*key as i64), expires_ms, &&packet[..]],
            ),
            Self::Sent(key, packet_id) => execute(
                "UPDATE message SET packet_id = ?2 WHERE key = ?1",
                &[&(*key as i64), &packet_id.get()],
            ),
            Self::Released(key) => {
                execute("UPDATE message SET released = 1 WHERE key = ?1", &[&(*key as i64)])
            }
            Self::Requeue(keys) => keys.iter().try_for_each(|key| {
                execute("UPDATE message SET packet_id = 0, released = 0 WHERE key = ?1", &[&(*key as i64)])
            }),
            Self::Remove(keys) => keys
                .iter()
                .try_for_each(|key| execute("DELETE FROM message WHERE key = ?1", &[&(*key as i64)])),
            Self::ClientId(name) => execute("INSERT OR REPLACE INTO session VALUES (1, ?1)", &[name]),
            Self::Load { after, max_bytes, loaded } => {
                *loaded.lock() = load(db, *after, *max_bytes)?;
                Ok(())
            }
        }
    }
}

/// Locks the file for this process, by another one beside it.
fn claim(path: &Path) -> Result<Connection> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    sqlite::claim(Path::new(&lock))?.ok_or_else(|| {
        let text = "another client has it open: give each client a file of its own";
        Error::new(ErrorKind::InvalidArgument, text)
    })
}

/// Whether there is a log beside the file, which SQLite applies to it first.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let mut magic = [0; 4];
    // The last bit tells the byte order of the log's checksums.
    File::open(log).is_ok_and(|mut log| log.read_exact(&mut magic).is_ok())
        && u32::from_be_bytes(magic) & !1 == 0x377f_0682
}

/// Checks the file's header before SQLite may change a file that is not an outbox.
fn check_header(path: &Path) -> Result<()> {
    let mut header = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(100).read_to_end(&mut header)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if header.is_empty() {
        return Ok(());
    }
    let word = |at: usize| header.get(at..at + 4).map(|w| i32::from_be_bytes([w[0], w[1], w[2], w[3]]));
    // A process may have been killed when only the first page had been written.
    let new = word(68) == Some(0) && word(28).is_some_and(|pages| pages <= 1);
    let known = if header.starts_with(b"SQLite format 3\0") {
        new || word(68) == Some(APPLICATION)
    } else {
        // A power cut may have torn the first page while it was written, and the log still has the whole of it.
        has_log(path)
    };
    if !known {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "the file exists and is not an outbox: choose another path",
        ));
    }
    Ok(())
}

fn connect(options: &OutboxOptions) -> Result<Connection> {
    check_header(&options.path)?;
    let db = sqlite::open(&options.path, options.sync)?;
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION, FORMAT) => {}
        (0, 0) => {
            let transaction = db.unchecked_transaction()?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
            transaction.execute_batch(SCHEMA)?;
            transaction.commit()?;
        }
        (APPLICATION, version) => {
            return Err(Error::new(
                ErrorKind::UnsupportedVersion,
                format!(
                    "it has format {version}, and this version supports up to {FORMAT}: use the version that wrote the \
                     file"
                ),
            ));
        }
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the file exists and is not an outbox: choose another path",
            ));
        }
    }
    Ok(db)
}

fn read(db: &Connection) -> Result<Found> {
    let client_id = db.query_row("SELECT client_id FROM session", [], |row| row.get(0)).optional()?;
    let mut statement =
        db.prepare("SELECT key, packet_id, released, packet FROM message WHERE packet_id > 0 ORDER BY key")?;
    let mut rows = statement.query([])?;
    let mut in_flight = Vec::new();
    while let Some(row) = rows.next()? {
        let key = row.get::<_, i64>(0)? as u64;
        let packet_id = PacketId::new(row.get(1)?).ok_or_else(|| broken(key))?;
        let publish = decode(key, row.get_ref(3)?.as_blob().map_err(|_| broken(key))?)?;
        in_flight.push(InFlight { key, publish, packet_id, released: row.get(2)? });
    }
    let (waiting, first, last): (i64, Option<i64>, Option<i64>) = db.query_row(
        "SELECT count(*) FILTER (WHERE packet_id = 0), min(key), max(key) FROM message",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    // Keys are numbers that were counted, with more to come.
    if let Some(key) = first.filter(|key| *key < 0).or(last.filter(|key| *key > i64::MAX / 2)) {
        return Err(broken(key as u64));
    }
    let next_key = last.map_or(1, |last| last as u64 + 1);
    Ok(Found { client_id, in_flight, waiting: waiting as u64, next_key })
}

/// The inner result is about the contents of the rows, which do not affect the file.
fn load(db: &Connection, after: Option<u64>, max_bytes: usize) -> rusqlite::Result<Result<Loaded>> {
    let now = wall_ms() as i64;
    let mut statement = db.prepare_cached(
        "SELECT key, expires_ms, packet FROM message WHERE key > ?1 AND packet_id = 0 ORDER BY key",
    )?;
    let mut rows = statement.query([after.map_or(-1, |key| key as i64)])?;
    let (mut loaded, mut bytes) = (Loaded::default(), 0);
    while let Some(row) = rows.next()? {
        let key = row.get::<_, i64>(0)? as u64;
        // The tree of a damaged file may lead back, and then there is no end.
        if loaded.last.or(after).is_some_and(|before| key <= before) {
            return Ok(Err(broken(key)));
        }
        let Ok(packet) = row.get_ref(2)?.as_blob() else { return Ok(Err(broken(key))) };
        if bytes > 0 && bytes + packet.len() > max_bytes {
            loaded.more = true;
            break;
        }
        loaded.last = Some(key);
        let left = row.get::<_, Option<i64>>(1)?.map(|expires| expires.saturating_sub(now));
        if left.is_some_and(|left| left <= 0) {
            loaded.expired.push(key);
            continue;
        }
        bytes += packet.len().max(1);
        let mut publish = match decode(key, packet) {
            Ok(publish) => publish,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(left) = left {
            publish.properties.retain(|property| !matches!(property, Property::MessageExpiryInterval(_)));
            let seconds = u32::try_from(left.saturating_add(999) / 1000).unwrap_or(u32::MAX);
            publish.properties.push(Property::MessageExpiryInterval(seconds));
        }
        loaded.messages.push((key, publish));
    }
    drop(rows);
    for key in &loaded.expired {
        db.prepare_cached("DELETE FROM message WHERE key = ?1")?.execute([*key as i64])?;
    }
    Ok(Ok(loaded))
}

/// Bytes of a packet in the file: a row that does not fit into an SQLite page gets pages of its own.
fn weight(packet: usize) -> u64 {
    const PAGE: usize = 4096;
    let row = packet + ROW;
    (if row < PAGE - 100 { row } else { (row / (PAGE - 4) + 2) * PAGE }) as u64
}

/// Encodes an MQTT 5 packet with an arbitrary identifier; the decoder of the wire reads it back, as strictly.
fn encode(publish: &Publish) -> Result<BytesMut> {
    let publish = Publish { packet_id: Some(PacketId::MIN), dup: false, ..publish.clone() };
    let mut out = Transmit::default();
    Packet::Publish(publish).encode(Version::V5, &mut out)?;
    Ok(out.take())
}

fn decode(key: u64, packet: &[u8]) -> Result<Publish> {
    let mut input = BytesMut::from(packet);
    let Ok(Some(frame)) = Decoder::new(usize::MAX).next(&mut input) else { return Err(broken(key)) };
    match Packet::decode(&frame, Version::V5, Sender::Client) {
        Ok(Packet::Publish(publish)) if publish.qos != QoS::AtMostOnce && input.is_empty() => {
            Ok(Publish { packet_id: None, ..publish })
        }
        _ => Err(broken(key)),
    }
}

fn broken(key: u64) -> Error {
    Error::new(ErrorKind::Persistence, format!("its row {key} is not a publication: the file is damaged"))
}

fn explain(error: Error, path: &Path) -> Error {
    Error::new(error.kind(), format!("the outbox {}: {}", path.display(), error.message()))
}

#[cfg(test)]
mod tests;
