//! Whether a schema can read what another has written, as Pulsar's broker decides it.

use super::schema::{Kind, NodeId, Schema};
use super::{MAX_CHAIN, MAX_PAIRS};
use crate::random::HashMap;

/// Checks that every value of `writer` can be read with `reader`. The error says what cannot be.
pub fn can_read(reader: &Schema, writer: &Schema) -> Result<(), String> {
    let mut check = Check { reader, writer, known: HashMap::default() };
    check.pair(reader.root(), writer.root(), 0)
}

struct Check<'a> {
    reader: &'a Schema,
    writer: &'a Schema,
    /// Pairs that were compared; those that are being compared count as compatible.
    known: HashMap<(NodeId, NodeId), bool>,
}

impl Check<'_> {
    fn pair(&mut self, reader: NodeId, writer: NodeId, depth: usize) -> Result<(), String> {
        if depth > MAX_CHAIN || self.known.len() > MAX_PAIRS {
            return Err(format!(
                "the schemas are too large to be compared: at most {MAX_PAIRS} pairs of types, {MAX_CHAIN} deep"
            ));
        }
        if let Some(fits) = self.known.get(&(reader, writer)) {
            return if *fits { Ok(()) } else { Err(self.text(reader, writer)) };
        }
        self.known.insert((reader, writer), true);
        let result = self.compare(reader, writer, depth);
        if result.is_err() {
            self.known.insert((reader, writer), false);
        }
        result
    }

    fn text(&self, reader: NodeId, writer: NodeId) -> String {
        let (reader, writer) = (&self.reader.node(reader).kind, &self.writer.node(writer).kind);
        format!("a {} cannot be read as a {}", writer.describe(), reader.describe())
    }

    fn compare(&mut self, reader: NodeId, writer: NodeId, depth: usize) -> Result<(), String> {
        let (target, source) = (self.reader.node(reader), self.writer.node(writer));
        match (&target.kind, &source.kind) {
            (_, Kind::Union(branches)) => {
                branches.iter().try_for_each(|branch| self.pair(reader, *branch, depth + 1))
            }
            (Kind::Union(branches), _) => {
                let mut last = None;
                for branch in branches {
                    match self.pair(*branch, writer, depth + 1) {
                        Ok(()) => return Ok(()),
                        Err(error) => last = Some(error),
                    }
                }
                Err(last.filter(|_| branches.len() == 1).unwrap_or_else(|| self.text(reader, writer)))
            }
            (Kind::Array(target), Kind::Array(source)) | (Kind::Map(target), Kind::Map(source)) => {
                self.pair(*target, *source, depth + 1)
            }
            (Kind::Enum(target), Kind::Enum(source)) => {
                if !target.name.covers(&source.name) {
                    return Err(self.text(reader, writer));
                }
                let missing = source.symbols.iter().find(|symbol| !target.symbols.contains(symbol));
                match missing {
                    Some(symbol) if target.default.is_none() => {
                        Err(format!("the symbol {symbol:?} of {:?} is missing", source.name.full))
                    }
                    _ => Ok(()),
                }
            }
            (Kind::Record(target), Kind::Record(source)) => {
                for field in &target.fields {
                    let named = |name: &String| *name == field.name || field.aliases.contains(name);
                    match source.fields.iter().find(|written| named(&written.name)) {
                        Some(written) => self
                            .pair(field.node, written.node, depth + 1)
                            .map_err(|error| format!("{}: {error}", field.name))?,
                        None if field.default.is_some() => {}
                        None => return Err(format!("the field {:?} is new and has no default", field.name)),
                    }
                }
                Ok(())
            }
            (target, source) => match super::plan::scalar(source, target) {
                Some(_) => Ok(()),
                None => Err(self.text(reader, writer)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: &str) -> Schema {
        let text = format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#);
        Schema::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_field_may_be_added_with_a_default_and_removed() {
        let old = record(r#"{"name": "a", "type": "int"}"#);
        let with = record(r#"{"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": ""}"#);
        let without = record(r#"{"name": "a", "type": "int"}, {"name": "b", "type": "string"}"#);
        assert_eq!(can_read(&with, &old), Ok(()));
        assert_eq!(can_read(&old, &with), Ok(()));
        assert!(can_read(&without, &old).unwrap_err().contains("\"b\" is new and has no default"));
        assert_eq!(can_read(&old, &without), Ok(()));
    }

    #[test]
    fn numbers_may_be_widened() {
        let (int, long) =
            (record(r#"{"name": "a", "type": "int"}"#), record(r#"{"name": "a", "type": "long"}"#));
        assert_eq!(can_read(&long, &int), Ok(()));
        assert_eq!(can_read(&int, &long), Err("a: a long cannot be read as a int".into()));
    }

    #[test]
    fn types_that_contain_each_other_in_many_ways_are_compared_once() {
        let tower = |depth: usize| {
            let mut text = r#"{"type": "record", "name": "R0", "fields": []}"#.to_owned();
            for n in 1..=depth {
                let m = n - 1;
                text = format!(
                    r#"{{"type": "record", "name": "R{n}", "fields": [{{"name": "a", "type": {text}}}, {{"name": "b", "type": "R{m}"}}]}}"#
                );
            }
            Schema::parse(text.as_bytes()).unwrap()
        };
        let (a, b) = (tower(30), tower(30));
        assert_eq!(can_read(&a, &b), Ok(()));
        let list =
            record(r#"{"name": "next", "type": ["null", "R"]}, {"name": "other", "type": ["null", "R"]}"#);
        assert_eq!(can_read(&list, &list.clone()), Ok(()));
    }
}
