//! Acknowledgements in a subscription's cursor, against a model that keeps a set; and bytes from a
//! store, which decode to a sound cursor or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forebay_broker::log::cursor::{Cursor, MAX_BATCH};
use crate::meter::Meter;
use crate::rule::AFTER;
use crate::script::Script;

/// Entries of the model.
const ENTRIES: u64 = 300;

/// Everything acknowledged, message by message.
#[derive(Clone, Default)]
struct Model {
    below: u64,
    acked: BTreeSet<u64>,
    /// What is left of a batch.
    left: BTreeMap<u64, BTreeSet<u32>>,
}

impl Model {
    fn is_acked(&self, entry: u64) -> bool {
        entry < self.below || self.acked.contains(&entry)
    }

    fn ack(&mut self, entry: u64) {
        if !self.is_acked(entry) {
            self.acked.insert(entry);
            self.left.remove(&entry);
        }
        self.settle();
    }

    fn settle(&mut self) {
        while self.acked.remove(&self.below) {
            self.below += 1;
        }
        self.acked = self.acked.split_off(&self.below);
        self.left = self.left.split_off(&self.below);
    }

    fn ack_partial(&mut self, entry: u64, set: &[i64], count: u32) {
        if self.is_acked(entry) {
            return;
        }
        let kept = |bit: u32| set.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1);
        let left = self.left.entry(entry).or_insert_with(|| (0..count).collect());
        left.retain(|bit| kept(*bit));
        if left.is_empty() {
            self.ack(entry);
        }
    }
}

fn agree(cursor: &Cursor, model: &Model, count: u32, entries: Range<u64>) {
    assert_eq!(cursor.below(), model.below);
    assert_eq!(cursor.acked_past(), model.acked.len() as u64);
    for entry in entries {
        assert_eq!(cursor.is_acked(entry), model.is_acked(entry), "{entry}");
        let next = (entry.max(model.below)..).find(|entry| !model.is_acked(*entry)).unwrap();
        assert_eq!(cursor.next_unacked(entry), next);
        let left = model.left.get(&entry).map_or(count, |left| left.len() as u32);
        if !model.is_acked(entry) {
            assert_eq!(cursor.remaining(entry, count).0, left, "{entry}");
        }
    }
}

fn acknowledged(mut script: Script<'_>) {
    let (mut cursor, mut model) = (Cursor::new(0), Model::default());
    let count = u32::from(script.byte()).clamp(1, 200);
    while let Some(op) = script.next() {
        let entry = u64::from(script.byte()) % ENTRIES;
        match op % 8 {
            0..3 => {
                assert_eq!(cursor.ack(entry), !model.is_acked(entry));
                model.ack(entry);
            }
            3..5 => {
                let set: Vec<i64> = (0..op >> 4).map(|_| script.long() as i64).collect();
                let whole = cursor.ack_partial(entry, &set, count);
                model.ack_partial(entry, &set, count);
                assert_eq!(whole, model.is_acked(entry));
            }
            5 => {
                assert_eq!(cursor.ack_below(entry), entry > model.below);
                model.below = model.below.max(entry);
                model.settle();
            }
            6 => {
                cursor.reset(entry, &[]);
                model = Model { below: entry, ..Model::default() };
            }
            _ => cursor = Cursor::decode(cursor.below(), &cursor.encode()).expect("it was just encoded"),
        }
        agree(&cursor, &model, count, entry.saturating_sub(1)..entry + 2);
    }
    agree(&cursor, &model, count, 0..ENTRIES + 2);
}

/// What a cursor promises, whatever its bytes were.
fn sound(cursor: &mut Cursor, script: &mut Script<'_>) {
    let mut entry = cursor.below();
    assert!(!cursor.is_acked(entry), "the lowest entry that is not acknowledged");
    for _ in 0..40 {
        let next = cursor.next_unacked(entry);
        assert!(next >= entry && !cursor.is_acked(next));
        entry = next.saturating_add(u64::from(script.byte()));
    }
    let again = Cursor::decode(cursor.below(), &cursor.encode()).expect("it was just encoded");
    assert_eq!(again.encode(), cursor.encode());
    for _ in 0..20 {
        // The number of an entry of a topic.
        let entry = script.number() >> 1;
        cursor.ack_partial(entry, &[script.long() as i64], script.number() as u32);
        let (left, _) = cursor.remaining(entry, MAX_BATCH);
        assert!(cursor.is_acked(entry) || left > 0);
        cursor.ack(script.number() >> 1);
        assert!(cursor.below() <= cursor.next_unacked(0));
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    if first & 1 == 1 {
        return acknowledged(script);
    }
    let (below, mut steps) = (script.number() >> 1, Script(script.take(200)));
    let mut meter = Meter::default();
    meter.came(script.0.len());
    if let Ok(mut cursor) = meter.run(|| Cursor::decode(below, script.0)) {
        sound(&mut cursor, &mut steps);
        meter.run(|| drop(cursor));
    }
    meter.check(AFTER, 1);
}
