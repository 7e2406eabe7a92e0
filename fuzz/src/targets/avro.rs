//! Avro definitions and data of strangers: parsed, compared and decoded within bounds, whatever
//! they are. A value has no more parts than its bytes allow.

use std::sync::Arc;

use forebay_avro::{Builder, Logical, NodeId, Plan, Schema, compatibility::can_read, decode};
use forebay_base::error::{Error, Result};

/// Counts the values that are made.
#[derive(Default)]
struct Count {
    made: usize,
}

impl Count {
    fn one(&mut self) -> Result<usize> {
        self.made += 1;
        Ok(1)
    }
}

impl Builder for Count {
    type Value = usize;
    type Error = Error;

    fn null(&mut self) -> usize {
        self.made += 1;
        1
    }
    fn boolean(&mut self, _: bool) -> Result<usize> {
        self.one()
    }
    fn long(&mut self, _: i64) -> Result<usize> {
        self.one()
    }
    fn double(&mut self, _: f64) -> Result<usize> {
        self.one()
    }
    fn bytes(&mut self, _: &[u8]) -> Result<usize> {
        self.one()
    }
    fn string(&mut self, _: &str) -> Result<usize> {
        self.one()
    }
    fn logical_number(&mut self, _: Logical, _: i64) -> Result<usize> {
        self.one()
    }
    fn logical_bytes(&mut self, _: Logical, _: &[u8]) -> Result<usize> {
        self.one()
    }
    fn symbol(&mut self, _: NodeId, _: u32) -> Result<usize> {
        self.one()
    }
    fn array(&mut self, items: Vec<usize>) -> Result<usize> {
        self.made += 1;
        Ok(1 + items.iter().sum::<usize>())
    }
    fn map(&mut self, entries: Vec<(&str, usize)>) -> Result<usize> {
        self.made += 1;
        Ok(1 + entries.iter().map(|(_, count)| count).sum::<usize>())
    }
    fn record(&mut self, _: NodeId, fields: Vec<usize>) -> Result<usize> {
        self.made += 1;
        Ok(1 + fields.iter().sum::<usize>())
    }
}

/// Plays one input.
pub fn play(input: &[u8]) {
    let Some((head, rest)) = input.split_first_chunk::<4>() else { return };
    let length = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let (writer, rest) = rest.split_at(length(0).min(rest.len()));
    let (reader, data) = rest.split_at(length(2).min(rest.len()));
    let Ok(writer) = Schema::parse(writer) else { return };
    let reader = Schema::parse(reader).unwrap_or_else(|_| writer.clone());
    let _ = can_read(&reader, &writer);
    let (writer, reader) = (Arc::new(writer), Arc::new(reader));
    // A schema reads what it has written itself.
    assert!(can_read(&writer, &writer).is_ok() || writer.len() > 100);
    let Ok(plan) = Plan::new(writer, reader) else { return };
    let mut count = Count::default();
    let limit = data.len() * 8 + (1 << 16);
    if let Ok(value) = decode(&plan, data, &mut count) {
        assert_eq!(value, count.made, "each value that is made is part of the whole");
    }
    assert!(count.made <= limit, "{} values of {} bytes", count.made, data.len());
}
