//! The repair of a damaged store while no broker runs.
//!
//! Every row is read from the damaged database and verified, and those that are sound are written to a new one, which takes
//! its place: the structure of the new one is sound whatever the old one's was. Around a page that cannot be read, rows are
//! reached from both sides. What goes with a damaged row is what cannot be reached without it: the subscriptions and entries
//! of a topic whose name is unknown, the queue of a session, the place of a message in a queue.
//!
//! A log has no gaps, so a damaged entry becomes one without messages ([`Entry::count`] is 0), which consumers do not see.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, params};

use super::check;
use super::database::{Directory, prepare};
use super::entries::{
    self, Stored, entry_key, epoch_sum, insert_entry, sequence_of, set_meta, set_run_ms, trim_sum,
};
use super::mqtt::DOMAIN;
use super::rows::{self, Row, long, number, sum_of};
use crate::broker::log::cursor::Cursor;
use crate::broker::log::{Entry, Source as _};
use crate::error::{Error, ErrorKind, Result};
use crate::sqlite::{self, Sync};

/// Entries, and their bytes, that are read at a time.
const READ: (usize, usize) = (256, 1 << 20);
/// Bytes of one transaction, give or take one entry.
const WRITE: usize = 4 << 20;
/// Entries in a row that cannot be read before a log is taken to end, if its end is unknown.
const BLIND: u64 = 10_000;

/// The result of a [`repair`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The file as it was; `None` if it is sound, and then it was not touched.
    pub copy: Option<PathBuf>,
    /// Losses, one line each.
    pub lost: Vec<String>,
}

/// Takes what is damaged out of the store in `path`, and keeps the file as it was beside it. No broker may use the store
/// meanwhile.
pub fn repair(path: &Path) -> Result<Repaired> {
    check::require_store(path)?;
    let directory = Directory::open(path)?;
    let old = directory.connect(Sync::Full)?;
    match check::check_in(&directory) {
        Ok(checked) if checked.damage.is_empty() => return Ok(Repaired::default()),
        Ok(_) => {}
        Err(error) if !rows::has_sums(&old) || rows::has_sound_format(&old) => return Err(error),
        // Without its format the store is taken for one of another version.
        Err(_) => {}
    }
    let (damaged, making) = (path.join("broker.db"), path.join("broker.db.repairing"));
    remove_database(&making)?;
    let new = sqlite::open(&making, Sync::Full)?;
    prepare(&new)?;
    let mut repair = Repair {
        old: &old,
        new: &new,
        lost: Vec::new(),
        told: BTreeSet::new(),
        names: BTreeMap::new(),
        written: 0,
    };
    repair.run(Stored::new(directory.connect(Sync::Full)?))?;
    let lost = std::mem::take(&mut repair.lost);
    let left = check::check_open(&new, sqlite::open(&making, Sync::Full)?)?.damage;
    if let Some(line) = left.first() {
        let text = format!(
            "the store cannot be repaired, because the new one would be damaged as well: {line}. It stays as it is: restore the \
             folder from a backup"
        );
        return Err(Error::new(ErrorKind::Persistence, text));
    }
    close(new, &making)?;
    close(old, &damaged)?;
    let copy = keep(&damaged)?;
    std::fs::rename(&making, &damaged)?;
    #[cfg(unix)]
    std::fs::File::open(path)?.sync_all()?;
    Ok(Repaired { copy: Some(copy), lost })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes what an interrupted repair has left.
fn remove_database(path: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        match std::fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Closes a database so that all of it is in one file: the log of one must not be taken for that of the other.
fn close(db: Connection, path: &Path) -> Result<()> {
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    db.close().map_err(|(_, error)| error)?;
    if beside(path, "-wal").exists() {
        let text = format!("another program has {} open: end it, and repair the store again", path.display());
        return Err(Error::new(ErrorKind::Persistence, text));
    }
    Ok(())
}

/// Gives the file another name besides its own, and returns that.
fn keep(database: &Path) -> Result<PathBuf> {
    for count in 1.. {
        let suffix = if count == 1 { ".damaged".to_owned() } else { format!(".damaged-{count}") };
        let copy = beside(database, &suffix);
        if copy.exists() {
            continue;
        }
        if std::fs::hard_link(database, &copy).is_err() {
            // Not every file system has links. No database is open now, so that no lock is lost with the descriptor.
            sqlite::create_new(&copy)?;
            std::fs::copy(database, &copy)?;
            std::fs::File::open(&copy)?.sync_all()?;
        }
        return Ok(copy);
    }
    unreachable!("there is always another number")
}

struct Repair<'a> {
    old: &'a Connection,
    new: &'a Connection,
    lost: Vec<String>,
    /// The same, to tell of each thing once.
    told: BTreeSet<String>,
    /// Domains and names of the topics, by their number.
    names: BTreeMap<u64, String>,
    /// Bytes in the open transaction.
    written: usize,
}

/// Positions of a log, if they are known.
type Trim = Option<(u64, u64, u64)>;

impl Repair<'_> {
    fn run(&mut self, mut stored: Stored) -> Result<()> {
        self.new.execute_batch("BEGIN")?;
        let (mut next_topic, run_ms) = self.meta()?;
        let logs = self.topics()?;
        let topics: Vec<i64> = self.names.keys().map(|id| *id as i64).collect();
        self.of_topics(&topics)?;
        self.scan("schema", &[], |this, row| {
            if row.is_sound() {
                return this.insert(&row);
            }
            this.lose(format!("version {} of the schema of {}", row.text(1), row.text(0)));
            Ok(())
        })?;
        let sessions = self.sessions()?;
        self.of_sessions(&sessions)?;
        for (topic, is_mqtt, trim) in logs {
            if !is_mqtt {
                self.log(&mut stored, topic, trim)?;
            }
        }
        self.messages()?;
        let highest: Option<i64> = self.new.query_row("SELECT max(id) FROM topic", [], |row| row.get(0))?;
        let entry = self.old.query_row("SELECT max(id) FROM entry", [], |row| row.get::<_, Option<i64>>(0));
        let entry = entry.ok().flatten().map_or(0, |key| (key >> 40).clamp(0, 1 << 23));
        next_topic = next_topic.max(highest.unwrap_or(0) + 1).max(entry + 1);
        set_meta(self.new, "next_topic", next_topic)?;
        let run_ms = run_ms.max(entries::run_ms(self.new)? as i64);
        set_run_ms(self.new, run_ms as u64)?;
        Ok(self.new.execute_batch("COMMIT")?)
    }

    fn lose(&mut self, line: String) {
        if self.told.insert(line.clone()) {
            self.lost.push(line);
        }
    }

    /// Reads a table of the old store. Tells of rows that cannot even be read.
    fn scan(
        &mut self,
        table: &str,
        groups: &[i64],
        mut each: impl FnMut(&mut Self, Row) -> Result<()>,
    ) -> Result<()> {
        let old = self.old;
        let hidden = rows::scan(old, table, groups, &mut |row| each(self, row))?;
        if let Some(error) = hidden {
            self.lose(format!("rows of table {table} that cannot be read: {}", error.message()));
        }
        Ok(())
    }

    fn insert(&mut self, row: &Row) -> Result<()> {
        let marks = vec!["?"; row.columns.len()].join(", ");
        let sql =
            format!("INSERT OR IGNORE INTO {} ({}) VALUES ({marks})", row.table, row.columns.join(", "));
        self.new.prepare_cached(&sql)?.execute(rusqlite::params_from_iter(&row.values))?;
        self.wrote(100)
    }

    fn wrote(&mut self, bytes: usize) -> Result<()> {
        self.written += bytes;
        if self.written > WRITE {
            self.written = 0;
            self.new.execute_batch("COMMIT; BEGIN")?;
        }
        Ok(())
    }

    /// The first unused number of a topic, and how long brokers have run, as far as they are known.
    fn meta(&mut self) -> Result<(i64, i64)> {
        let (mut next_topic, mut run_ms) = (1, 0);
        self.scan("meta", &[], |_, row| {
            match (row.is_sound(), row.text(0).as_str(), row.integer(2)) {
                (true, "next_topic", value) => next_topic = value,
                (true, "run_ms", value) => run_ms = value,
                // What is damaged is found again in the other tables.
                _ => {}
            }
            Ok(())
        })?;
        Ok((next_topic, run_ms))
    }

    fn topics(&mut self) -> Result<Vec<(u64, bool, Trim)>> {
        let mut logs = Vec::new();
        self.scan("topic", &[], |this, row| {
            let id = row.integer(0) as u64;
            let (domain, name) = (row.text(2), row.text(3));
            let [identity, has_epoch, has_trim] = row.sound[..] else { unreachable!("three checksums") };
            // There is one such topic, and its number is covered by the others as well.
            let is_mqtt = (domain == DOMAIN || name == DOMAIN) && (identity || has_epoch || has_trim);
            if !identity && !is_mqtt {
                this.lose(format!(
                    "{domain} {name} (number {id}): the topic with all that belongs to it: its name, number or partitions are damaged"
                ));
                return Ok(());
            }
            let (domain, name) = if is_mqtt { (DOMAIN, DOMAIN) } else { (&domain[..], &name[..]) };
            let partitions = if is_mqtt { 0 } else { row.integer(4) };
            let title = format!("{domain} {name}");
            if !has_epoch {
                this.lose(format!("{title}: the epoch of its exclusive producer: it begins again with 0"));
            }
            let epoch = if has_epoch { row.integer(6) as u64 } else { 0 };
            let [first, next, next_index] =
                [8, 9, 10].map(|i| if has_trim { row.integer(i) as u64 } else { 0 });
            let sum = sum_of("topic", &[long(id), domain.into(), name.into(), number(partitions)]);
            this.new
                .prepare_cached("INSERT OR IGNORE INTO topic VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?
                .execute(params![
                    id as i64,
                    domain,
                    name,
                    partitions,
                    epoch as i64,
                    first as i64,
                    next as i64,
                    next_index as i64,
                    sum,
                    epoch_sum(id, epoch),
                    trim_sum(id, first, next, next_index),
                ])?;
            this.names.insert(id, title);
            if partitions == 0 {
                logs.push((id, is_mqtt, has_trim.then_some((first, next, next_index))));
            }
            Ok(())
        })?;
        Ok(logs)
    }

    /// Subscriptions and producers.
    fn of_topics(&mut self, topics: &[i64]) -> Result<()> {
        self.scan("cursor", topics, |this, row| {
            let subscription = row.text(1);
            let Some(topic) = this.names.get(&(row.integer(0) as u64)) else {
                this.lose(format!(
                    "topic number {}, which is lost: subscription {subscription:?}",
                    row.text(0)
                ));
                return Ok(());
            };
            let decoded = match &row.values[5] {
                Value::Blob(state) => Cursor::decode_with(row.integer(4) as u64, state).is_ok(),
                _ => false,
            };
            if row.is_sound() && decoded {
                return this.insert(&row);
            }
            this.lose(format!("{topic}: subscription {subscription:?}, whose position is damaged"));
            Ok(())
        })?;
        self.scan("producer", topics, |this, row| {
            let topic = this.names.get(&(row.integer(0) as u64));
            if row.is_sound() && topic.is_some() {
                return this.insert(&row);
            }
            let topic =
                topic.cloned().unwrap_or_else(|| format!("topic number {}, which is lost", row.text(0)));
            this.lose(format!("{topic}: the last sequence id of producer {:?}", row.text(1)));
            Ok(())
        })
    }

    /// Names of the clients by their session.
    fn sessions(&mut self) -> Result<BTreeMap<i64, String>> {
        let mut sessions = BTreeMap::new();
        self.scan("session", &[], |this, row| {
            let client = format!("client {}", row.text(2));
            if row.is_sound() {
                sessions.insert(row.integer(0), client);
                return this.insert(&row);
            }
            this.lose(format!(
                "mqtt, {client}: the session (number {}) with all that belongs to it",
                row.text(0)
            ));
            Ok(())
        })?;
        Ok(sessions)
    }

    /// Subscriptions and queues of MQTT, and retained topics.
    fn of_sessions(&mut self, sessions: &BTreeMap<i64, String>) -> Result<()> {
        let ids: Vec<i64> = sessions.keys().copied().collect();
        // Rows of a session that is lost have been told of with it, unless their number is that of no session because it is
        // damaged itself.
        let client = |row: &Row| match sessions.get(&row.integer(0)) {
            Some(client) => Some(client.clone()),
            None => (!row.is_sound()).then(|| format!("a client (session {})", row.text(0))),
        };
        self.scan("subscription", &ids, |this, row| {
            let Some(client) = client(&row) else { return Ok(()) };
            if row.is_sound() {
                return this.insert(&row);
            }
            this.lose(format!("mqtt, {client}: the subscription to {}", row.text(1)));
            Ok(())
        })?;
        self.scan("queue", &ids, |this, mut row| {
            let Some(client) = client(&row) else { return Ok(()) };
            let [message, state] = row.sound[..] else { unreachable!("two checksums") };
            if !message || !sessions.contains_key(&row.integer(0)) {
                this.lose(format!("mqtt, {client}: the message at place {} of its queue", row.text(1)));
                return Ok(());
            }
            if !state {
                this.lose(format!(
                    "mqtt, {client}: whether it has the message at place {} of its queue: it may get it again",
                    row.text(1)
                ));
                let key = [long(row.integer(0) as u64), long(row.integer(1) as u64)];
                let sum = sum_of("queue.state_sum", &[key[0], key[1], number(0), number(0)]);
                row.values[6] = i64::from(sum).into();
                (row.values[7], row.values[8]) = (0.into(), 0.into());
            }
            this.insert(&row)
        })?;
        self.scan("inflight", &ids, |this, row| {
            let Some(client) = client(&row) else { return Ok(()) };
            if row.is_sound() {
                return this.insert(&row);
            }
            this.lose(format!(
                "mqtt, {client}: that its message with packet identifier {} has come: it may be taken again",
                row.text(1)
            ));
            Ok(())
        })?;
        self.scan("retained", &[], |this, row| {
            if row.is_sound() {
                return this.insert(&row);
            }
            this.lose(format!("mqtt: the retained message of {}", row.text(0)));
            Ok(())
        })
    }

    /// The messages that MQTT's queues and retained topics name.
    fn messages(&mut self) -> Result<()> {
        let log = self.new.query_row("SELECT id FROM topic WHERE domain = ?1", [DOMAIN], |row| row.get(0));
        let log = log.map_or(0, |id: i64| id as u64);
        let needed: BTreeSet<i64> = {
            let sql = "SELECT sequence FROM queue UNION SELECT sequence FROM retained";
            let mut statement = self.new.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<_>>()?
        };
        for sequence in needed {
            if let Ok(entry) = Stored::read_one(self.old, log, sequence as u64) {
                insert_entry(self.new, log, &entry)?;
                self.wrote(entry.body.len() + 100)?;
                continue;
            }
            let mut users = self.new.prepare_cached(
                "SELECT 'client ' || client_id || ': message ' || sequence || ' of its queue'
                 FROM queue JOIN session ON session = id WHERE sequence = ?1
                 UNION ALL SELECT 'the retained message of ' || topic FROM retained WHERE sequence = ?1",
            )?;
            let users: Vec<String> =
                users.query_map([sequence], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            users.into_iter().for_each(|user| self.lose(format!("mqtt, {user}")));
            for table in ["queue", "retained"] {
                self.new.execute(&format!("DELETE FROM {table} WHERE sequence = ?1"), [sequence])?;
            }
        }
        Ok(())
    }

    /// The entries of a log.
    fn log(&mut self, stored: &mut Stored, topic: u64, trim: Trim) -> Result<()> {
        let ends = [entry_key(topic, 0), entry_key(topic + 1, 0)];
        let edge = |which: &str| {
            let sql = format!("SELECT {which}(id) FROM entry WHERE id >= ?1 AND id < ?2");
            self.old.query_row(&sql, ends, |row| row.get::<_, Option<i64>>(0))
        };
        let oldest = edge("min").ok().flatten().map_or(0, sequence_of);
        let newest = edge("max").map(|key| key.map_or(0, |key| sequence_of(key) + 1));
        let acknowledged: Option<i64> =
            self.new.query_row("SELECT max(below) FROM cursor WHERE topic = ?1", [topic as i64], |row| {
                row.get(0)
            })?;
        let (start, mut end, mut next_index) = trim.unwrap_or((oldest, 0, 0));
        end = end.max(acknowledged.unwrap_or(0) as u64).max(newest.as_ref().copied().unwrap_or(0));

        let (mut first, mut last): (Option<u64>, Option<Entry>) = (None, None);
        let (mut next, mut blind) = (start, 0);
        // Entries up to `next` that are lost.
        let mut gap = start;
        loop {
            if next >= end && (newest.is_ok() || blind >= BLIND) {
                break;
            }
            match stored.read(topic, next, READ.0, READ.1) {
                Ok(found) if found.is_empty() => break,
                Ok(found) => {
                    blind = 0;
                    for entry in found {
                        self.fill(topic, gap..entry.sequence, last.as_ref())?;
                        first.get_or_insert(entry.sequence);
                        insert_entry(self.new, topic, &entry)?;
                        self.wrote(entry.body.len() + 100)?;
                        next = entry.sequence + 1;
                        gap = next;
                        last = Some(Entry { body: Default::default(), ..entry });
                    }
                }
                Err(_) => (next, blind) = (next + 1, blind + 1),
            }
        }
        end = end.max(gap);
        self.fill(topic, gap..end, last.as_ref())?;
        if let Some(last) = last {
            next_index = next_index.max(last.last_index + 1);
        }
        let first = first.unwrap_or(end);
        if trim.is_none_or(|(known, ..)| known != first) {
            let sum = trim_sum(topic, first, end, next_index);
            self.new.execute(
                "UPDATE topic SET first = ?2, next = ?3, next_index = ?4, trim_sum = ?5 WHERE id = ?1",
                params![topic as i64, first as i64, end as i64, next_index as i64, sum],
            )?;
        }
        Ok(())
    }

    /// Tells of lost entries. Behind one that is there, their numbers are used by entries without messages.
    fn fill(&mut self, topic: u64, lost: Range<u64>, last: Option<&Entry>) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let more = lost.end - lost.start - 1;
        let more = if more > 0 { format!(" and {more} after it") } else { String::new() };
        let line = format!("{}: entry {}{more}", self.names[&topic], lost.start);
        self.lose(line);
        let Some(last) = last else { return Ok(()) };
        for sequence in lost {
            let none = Entry {
                sequence,
                deliver_ms: 0,
                count: 0,
                flags: 0,
                hash: 0,
                checksum: None,
                ..last.clone()
            };
            insert_entry(self.new, topic, &none)?;
            self.wrote(100)?;
        }
        Ok(())
    }
}
