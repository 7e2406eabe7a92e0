//! Changes of the store.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use super::entries::{
    StoredProducer, entry_key, epoch_sum, insert_entry, insert_topic, keys_of, remove_entries,
    set_partitions, trim_sum,
};
use super::mqtt;
use super::rows::{long, number, put};
use crate::log::Entry;
use forebay_sqlite::Job;

const PUT_PRODUCER: &str = "INSERT OR REPLACE INTO producer VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const PUT_CURSOR: &str = "INSERT OR REPLACE INTO cursor \
     (topic, subscription, kind, below, state, touched_ms, owner, sum) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// A change of the store. Changes are applied in the order in which they were issued.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Creates a topic, a partition or, with `partitions`, the parent of partitions.
    CreateTopic {
        /// A new id.
        id: u64,
        /// The protocol that the topic belongs to.
        domain: &'static str,
        /// Full name.
        name: Arc<str>,
        /// Number of partitions; 0 for a topic that has entries itself.
        partitions: u32,
    },
    /// Sets the number of partitions of a parent.
    Partitions {
        /// Id of the parent.
        id: u64,
        /// The protocol that it belongs to.
        domain: &'static str,
        /// Full name.
        name: Arc<str>,
        /// The new number.
        partitions: u32,
    },
    /// Deletes a topic with its entries, cursors and producers.
    DeleteTopic {
        /// Id of the topic.
        id: u64,
    },
    /// Sets the epoch of the exclusive producer.
    Epoch {
        /// Id of the topic.
        topic: u64,
        /// The epoch.
        epoch: u64,
    },
    /// Notes that a topic is terminated: no entry follows. It is kept as a producer without a name,
    /// which no other has.
    Terminate {
        /// Id of the topic.
        topic: u64,
    },
    /// Appends an entry, with the sequence id that deduplication needs.
    Append {
        /// Id of the topic.
        topic: u64,
        /// The numbered entry.
        entry: Entry,
        /// The producer's name and highest sequence id.
        producer: Option<StoredProducer>,
    },
    /// Removes the entries below `first`.
    Trim {
        /// Id of the topic.
        topic: u64,
        /// Oldest entry that stays.
        first: u64,
        /// Number of the next entry, which must survive the removal of the last one.
        next: u64,
        /// Number of the next message.
        next_index: u64,
    },
    /// Stores the acknowledgements of a subscription.
    Cursor {
        /// Id of the topic.
        topic: u64,
        /// Name of the subscription.
        subscription: Arc<str>,
        /// Type of the subscription, as a number that its protocol defines.
        kind: i32,
        /// Everything below this entry is acknowledged.
        below: u64,
        /// The result of `Cursor::encode`.
        state: Vec<u8>,
        /// How long brokers had run on the store when the change was issued, in milliseconds.
        touched_ms: u64,
        /// The user that the subscription belongs to.
        owner: Option<Arc<str>>,
    },
    /// Deletes a subscription.
    DropCursor {
        /// Id of the topic.
        topic: u64,
        /// Name of the subscription.
        subscription: Arc<str>,
    },
    /// Deletes the sequence id of a producer.
    DropProducer {
        /// Id of the topic.
        topic: u64,
        /// Name of the producer.
        name: Arc<str>,
    },
    /// Notes how long brokers have run on the store, in milliseconds.
    Run(u64),
    /// Stores a version of a schema.
    Schema {
        /// Name of the topic without partition.
        name: Arc<str>,
        /// Version, from 0.
        version: u64,
        /// Serialised `Schema`.
        data: Bytes,
    },
    /// Deletes all versions of a schema.
    DropSchema {
        /// Name of the topic without partition.
        name: Arc<str>,
    },
    /// Changes of MQTT's tables that are written together.
    Mqtt(Vec<mqtt::Op>),
}

impl Job for Op {
    fn size(&self) -> usize {
        match self {
            Self::Append { entry, .. } => entry.body.len() + 64,
            Self::Cursor { state, .. } => state.len() + 64,
            Self::Schema { data, .. } => data.len() + 64,
            Self::Mqtt(ops) => ops.iter().map(mqtt::Op::size).sum(),
            _ => 64,
        }
    }

    fn clean_up(db: &Connection) -> rusqlite::Result<bool> {
        super::entries::remove_garbage(db)
    }

    fn stands_alone(&self) -> bool {
        // The broker goes on with what it has in memory. A missing entry would be a gap in its log,
        // and MQTT's changes name each other's rows.
        matches!(
            self,
            Self::Epoch { .. } | Self::Cursor { .. } | Self::DropCursor { .. } | Self::Schema { .. }
        )
    }

    fn apply_after(&self, db: &Connection, removed: &mut usize) -> rusqlite::Result<()> {
        match self {
            Self::CreateTopic { id, domain, name, partitions } => {
                insert_topic(db, *id, domain, name, *partitions)?;
            }
            Self::Partitions { id, domain, name, partitions } => {
                set_partitions(db, *id, domain, name, *partitions)?;
            }
            Self::DeleteTopic { id } => delete_topic(db, *id, removed)?,
            Self::Epoch { topic, epoch } => set_epoch(db, *topic, *epoch)?,
            Self::Terminate { topic } => {
                // Without a time, since the latest time of all producers tells how long brokers
                // have run.
                let values = [long(*topic), "".into(), number(0), number(0), ValueRef::Null];
                put(db, PUT_PRODUCER, "producer", &values)?;
            }
            Self::Append { topic, entry, producer } => {
                insert_entry(db, *topic, entry)?;
                if let Some(StoredProducer { name, last, owner }) = producer {
                    let values = [
                        long(*topic),
                        (&**name).into(),
                        number(*last),
                        long(entry.run_ms),
                        owner.as_deref().map_or(ValueRef::Null, Into::into),
                    ];
                    put(db, PUT_PRODUCER, "producer", &values)?;
                }
            }
            Self::Trim { topic, first, next, next_index } => {
                set_trim(db, *topic, *first, *next, *next_index)?;
                remove_entries(db, entry_key(*topic, 0), entry_key(*topic, *first), removed)?;
            }
            Self::Cursor { topic, subscription, kind, below, state, touched_ms, owner } => {
                let values = [
                    long(*topic),
                    (&**subscription).into(),
                    number(*kind),
                    long(*below),
                    (&state[..]).into(),
                    long(*touched_ms),
                    owner.as_deref().map_or(ValueRef::Null, Into::into),
                ];
                put(db, PUT_CURSOR, "cursor", &values)?;
            }
            Self::DropCursor { topic, subscription } => {
                db.prepare_cached("DELETE FROM cursor WHERE topic = ?1 AND subscription = ?2")?
                    .execute(params![*topic as i64, subscription])?;
            }
            Self::DropProducer { topic, name } => {
                db.prepare_cached("DELETE FROM producer WHERE topic = ?1 AND name = ?2")?
                    .execute(params![*topic as i64, name])?;
            }
            Self::Run(run_ms) => super::entries::set_run_ms(db, *run_ms)?,
            Self::Schema { name, version, data } => {
                let values = [(&**name).into(), long(*version), (&data[..]).into()];
                put(db, "INSERT OR REPLACE INTO schema VALUES (?1, ?2, ?3, ?4)", "schema", &values)?;
            }
            Self::DropSchema { name } => {
                db.execute("DELETE FROM schema WHERE name = ?1", [name])?;
            }
            Self::Mqtt(ops) => ops.iter().try_for_each(|op| op.apply(db))?,
        }
        Ok(())
    }
}

/// Applies [`Op::DeleteTopic`].
fn delete_topic(db: &Connection, topic: u64, removed: &mut usize) -> rusqlite::Result<()> {
    let id = topic as i64;
    db.execute("DELETE FROM topic WHERE id = ?1", [id])?;
    db.execute("DELETE FROM producer WHERE topic = ?1", [id])?;
    db.execute("DELETE FROM cursor WHERE topic = ?1", [id])?;
    let [from, to] = keys_of(topic);
    remove_entries(db, from, to, removed)
}

/// Applies [`Op::Epoch`].
fn set_epoch(db: &Connection, topic: u64, epoch: u64) -> rusqlite::Result<()> {
    db.execute(
        "UPDATE topic SET epoch = ?2, epoch_sum = ?3 WHERE id = ?1",
        params![topic as i64, epoch as i64, epoch_sum(topic, epoch)],
    )
    .map(drop)
}

/// Sets the numbers that must survive the removal of a topic's entries.
fn set_trim(db: &Connection, topic: u64, first: u64, next: u64, next_index: u64) -> rusqlite::Result<()> {
    let sum = trim_sum(topic, first, next, next_index);
    db.prepare_cached("UPDATE topic SET first = ?2, next = ?3, next_index = ?4, trim_sum = ?5 WHERE id = ?1")?
        .execute(params![topic as i64, first as i64, next as i64, next_index as i64, sum])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::entry;

    fn cursor(state: Vec<u8>) -> Op {
        Op::Cursor {
            topic: 1,
            subscription: "s".into(),
            kind: 0,
            below: 0,
            state,
            touched_ms: 0,
            owner: None,
        }
    }

    #[test]
    fn a_change_is_as_large_as_what_it_writes() {
        let will = |len| mqtt::SessionRow {
            id: 1,
            client_id: "c".into(),
            expiry: 0,
            ends_ms: None,
            will: Some(Bytes::from(vec![0; len])),
            will_delay: 0,
            owner: None,
        };
        let of = |len: usize| {
            let body = Bytes::from(vec![0; len]);
            let entry = Entry { body: body.clone(), ..entry(1, 1) };
            [
                Op::Append { topic: 1, entry: entry.clone(), producer: None },
                cursor(body.to_vec()),
                Op::Schema { name: "t".into(), version: 0, data: body },
                Op::Mqtt(vec![mqtt::Op::Append(1, entry)]),
                Op::Mqtt(vec![mqtt::Op::Session(will(len))]),
                Op::Mqtt(vec![mqtt::Op::Subscribe(1, "f".repeat(len).into(), 0, None)]),
            ]
        };
        for (small, large) in of(0).into_iter().zip(of(5000)) {
            assert!((1..1000).contains(&small.size()), "a row of its own: {}", small.size());
            assert_eq!(large.size(), small.size() + 5000);
        }
        assert!(Op::Run(1).size() > 0 && mqtt::Op::Dequeue(1, 1).size() > 0);
        let both = Op::Mqtt(vec![mqtt::Op::Dequeue(1, 1), mqtt::Op::Dequeue(1, 2)]);
        assert_eq!(both.size(), 2 * mqtt::Op::Dequeue(1, 1).size());
    }

    #[test]
    fn only_what_nothing_else_refers_to_may_fail_alone() {
        let name: Arc<str> = "t".into();
        for op in [
            Op::Epoch { topic: 1, epoch: 1 },
            cursor(vec![]),
            Op::DropCursor { topic: 1, subscription: "s".into() },
            Op::Schema { name: name.clone(), version: 0, data: Bytes::new() },
        ] {
            assert!(op.stands_alone(), "{op:?}");
        }
        for op in [
            Op::CreateTopic { id: 1, domain: "pulsar", name, partitions: 0 },
            Op::Append { topic: 1, entry: entry(1, 1), producer: None },
            Op::Trim { topic: 1, first: 0, next: 0, next_index: 0 },
            Op::Mqtt(vec![mqtt::Op::Dequeue(1, 1)]),
        ] {
            assert!(!op.stands_alone(), "{op:?}");
        }
    }
}
