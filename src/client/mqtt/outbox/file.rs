//! The file of an outbox: its tables and their format, its checksums, and what is read of it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::BytesMut;
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{OpenFlags, OptionalExtension, Row};

use forebay_base::clock::wall_ms;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;
use forebay_mqtt::frame::Decoder;
use forebay_mqtt::packet::{PacketId, Publish};
use forebay_mqtt::{Packet, Property, QoS, Sender, Version};
use forebay_sqlite::sums::sum_of;
use forebay_sqlite::{Connection, Sync, structure};

/// Application id of an outbox: "PsOb".
const APPLICATION: i32 = 0x5073_4F62;
/// Version of the tables. A file of another version is refused. A change of the tables needs the
/// next number.
const FORMAT: i32 = 1;
/// Time to wait for another program that locks the file.
const BUSY: Duration = Duration::from_secs(5);
const SCHEMA: &str = "
CREATE TABLE message (key INTEGER PRIMARY KEY, packet_id INTEGER NOT NULL, released INTEGER NOT NULL,
    expires_ms INTEGER, packet BLOB NOT NULL, sum INTEGER, packet_id_sum INTEGER, released_sum INTEGER);
CREATE INDEX in_flight ON message (packet_id) WHERE packet_id > 0;
CREATE TABLE session (only INTEGER PRIMARY KEY CHECK (only = 1), client_id TEXT NOT NULL, sum INTEGER);
";
/// A message's columns, in the order of [`verify`].
const COLUMNS: &str = "key, expires_ms, packet, packet_id, released, sum, packet_id_sum, released_sum";

/// Bytes of an outbox by default.
pub(in crate::mqtt) const OUTBOX_LIMIT: u64 = 1 << 30;

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
        Self { path: path.into(), max_bytes: OUTBOX_LIMIT, sync: Sync::Full }
    }
}

/// A publication that had a packet identifier when the last process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Key given to [`Outbox::store`](super::Outbox::store).
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
    /// Number of publications without a packet identifier, for
    /// [`Outbox::load`](super::Outbox::load).
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

/// Locks the file for this process, by another one beside it.
pub(super) fn claim(path: &Path) -> Result<Connection> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    forebay_sqlite::claim(Path::new(&lock))?.ok_or_else(|| {
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
        // A power cut may have torn the first page while it was written, and the log still has the
        // whole of it.
        has_log(path)
    };
    if !known {
        return Err(foreign());
    }
    Ok(())
}

fn foreign() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the file exists and is not an outbox: choose another path")
}

/// Refuses the database of another program and leaves it as it is. Its header does not tell one
/// that is in the log beside the file, and a connection that is closed as usual writes the log to
/// the file.
fn require_own(path: &Path) -> Result<()> {
    // An empty file is a new one.
    if !std::fs::metadata(path).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    let db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.busy_timeout(BUSY)?;
    let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    match number("PRAGMA application_id")? {
        id if id == i64::from(APPLICATION) => Ok(()),
        // A process may have been killed before it had made the tables.
        0 if number("PRAGMA user_version")? == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0 => {
            Ok(())
        }
        _ => Err(foreign()),
    }
}

pub(super) fn connect(options: &OutboxOptions) -> Result<Connection> {
    check_header(&options.path)?;
    require_own(&options.path)?;
    let db = forebay_sqlite::open(&options.path, options.sync)?;
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let is_new = match (number("application_id")?, number("user_version")?) {
        (APPLICATION, FORMAT) => false,
        (0, 0) => true,
        (APPLICATION, format) => {
            return Err(Error::new(
                ErrorKind::UnsupportedVersion,
                format!(
                    "the file has outbox format {format}, and this version supports only format {FORMAT}: open the file \
                     with the version that wrote it, or choose another path"
                ),
            ));
        }
        _ => return Err(foreign()),
    };
    require_structure(&db)?;
    if is_new {
        let transaction = db.unchecked_transaction()?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
        transaction.commit()?;
    }
    Ok(db)
}

/// Refuses a file in which SQLite might not find a row, or miss one.
fn require_structure(db: &Connection) -> Result<()> {
    let Some(line) = structure::damage(db, None)? else { return Ok(()) };
    let text =
        format!("the file is damaged: {line}: keep it under another name, and the client begins a new one");
    Err(Error::new(ErrorKind::Persistence, text))
}

pub(super) fn message_sum(key: i64, expires_ms: ValueRef<'_>, packet: &[u8]) -> u32 {
    sum_of("message", &[ValueRef::Integer(key), expires_ms, ValueRef::Blob(packet)])
}

pub(super) fn packet_id_sum(key: i64, packet_id: i64) -> u32 {
    sum_of("message.packet_id_sum", &[ValueRef::Integer(key), ValueRef::Integer(packet_id)])
}

pub(super) fn released_sum(key: i64, released: i64) -> u32 {
    sum_of("message.released_sum", &[ValueRef::Integer(key), ValueRef::Integer(released)])
}

pub(super) fn session_sum(client_id: &str) -> u32 {
    sum_of("session", &[ValueRef::Text(client_id.as_bytes())])
}

/// Verifies a row of [`COLUMNS`], of which nothing may be used otherwise. Returns its key and its
/// packet.
fn verify<'row>(row: &'row Row<'_>) -> rusqlite::Result<Result<(u64, &'row [u8])>> {
    let key = row.get_ref(0)?.as_i64()?;
    let damaged = || {
        let text = format!("its row {} is damaged: its checksum does not match", key as u64);
        Error::new(ErrorKind::Persistence, text)
    };
    let (ValueRef::Blob(packet), ValueRef::Integer(packet_id), ValueRef::Integer(released)) =
        (row.get_ref(2)?, row.get_ref(3)?, row.get_ref(4)?)
    else {
        return Ok(Err(damaged()));
    };
    let sums = [
        message_sum(key, row.get_ref(1)?, packet),
        packet_id_sum(key, packet_id),
        released_sum(key, released),
    ];
    for (at, sum) in (5..).zip(sums) {
        if row.get_ref(at)? != ValueRef::Integer(sum.into()) {
            return Ok(Err(damaged()));
        }
    }
    Ok(Ok((key as u64, packet)))
}

pub(super) fn read(db: &Connection) -> Result<Found> {
    let session = db
        .query_row("SELECT client_id, sum FROM session", [], |row| {
            let name = row.get_ref(0)?.as_str().map(str::to_owned).ok();
            let sum = row.get_ref(1)?;
            Ok(name.filter(|name| sum == ValueRef::Integer(session_sum(name).into())))
        })
        .optional()?;
    let client_id = match session {
        Some(None) => {
            let text = "its client identifier is damaged: its checksum does not match";
            return Err(Error::new(ErrorKind::Persistence, text));
        }
        found => found.flatten(),
    };
    // Not by the index: what the table says is verified.
    let mut statement =
        db.prepare(&format!("SELECT {COLUMNS} FROM message NOT INDEXED WHERE packet_id <> 0 ORDER BY key"))?;
    let mut rows = statement.query([])?;
    let mut in_flight = Vec::new();
    while let Some(row) = rows.next()? {
        let (key, packet) = verify(row)??;
        let packet_id = PacketId::new(row.get(3)?).ok_or_else(|| broken(key))?;
        in_flight.push(InFlight { key, publish: decode(key, packet)?, packet_id, released: row.get(4)? });
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
pub(super) fn load(
    db: &Connection,
    after: Option<u64>,
    max_bytes: usize,
) -> rusqlite::Result<Result<Loaded>> {
    let now = wall_ms() as i64;
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM message WHERE key > ?1 AND packet_id = 0 ORDER BY key"
    ))?;
    let mut rows = statement.query([after.map_or(-1, |key| key as i64)])?;
    let (mut loaded, mut bytes) = (Loaded::default(), 0);
    while let Some(row) = rows.next()? {
        let key = row.get::<_, i64>(0)? as u64;
        // The tree of a damaged file may lead back, and then there is no end.
        if loaded.last.or(after).is_some_and(|before| key <= before) {
            return Ok(Err(broken(key)));
        }
        let packet = match verify(row)? {
            Ok((_, packet)) => packet,
            Err(error) => return Ok(Err(error)),
        };
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

/// Encodes an MQTT 5 packet with an arbitrary identifier; the decoder of the wire reads it back, as
/// strictly.
pub(super) fn encode(publish: &Publish) -> Result<BytesMut> {
    let publish = Publish { packet_id: Some(PacketId::MIN), dup: false, ..publish.clone() };
    let mut out = Transmit::default();
    Packet::Publish(publish).encode(Version::V5, &mut out)?;
    Ok(out.take())
}

pub(super) fn decode(key: u64, packet: &[u8]) -> Result<Publish> {
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
