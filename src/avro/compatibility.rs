//! Whether a schema can read what another has written, as Pulsar's broker decides it.

use super::encode::check_default;
use super::schema::{Kind, NodeId, Schema};
use super::{MAX_CHAIN, MAX_DEFAULTS, MAX_PAIRS, MAX_WORK};
use forebay_base::random::{HashMap, HashSet};

/// Checks that every value of `writer` can be read with `reader`. The error says what cannot be.
pub fn can_read(reader: &Schema, writer: &Schema) -> Result<(), String> {
    let mut check = Check { reader, writer, known: HashMap::default(), work: 0, defaults: MAX_DEFAULTS };
    check.pair(reader.root(), writer.root(), 0)
}

struct Check<'a> {
    reader: &'a Schema,
    writer: &'a Schema,
    /// Pairs that were compared; those that are being compared count as compatible.
    known: HashMap<(NodeId, NodeId), bool>,
    /// Steps so far.
    work: usize,
    /// Values and bytes that the defaults yet to come may stand for.
    defaults: usize,
}

impl Check<'_> {
    fn pair(&mut self, reader: NodeId, writer: NodeId, depth: usize) -> Result<(), String> {
        self.work += self.reader.node(reader).parts() + self.writer.node(writer).parts();
        if depth > MAX_CHAIN || self.known.len() > MAX_PAIRS || self.work > MAX_WORK {
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
                let known: HashSet<&String> = target.symbols.iter().collect();
                let missing = source.symbols.iter().find(|symbol| !known.contains(symbol));
                match missing {
                    Some(symbol) if target.default.is_none() => {
                        Err(format!("the symbol {symbol:?} of {:?} is missing", source.name.full))
                    }
                    _ => Ok(()),
                }
            }
            (Kind::Record(target), Kind::Record(source)) => {
                let written: HashMap<&String, NodeId> =
                    source.fields.iter().map(|field| (&field.name, field.node)).collect();
                for field in &target.fields {
                    let of = |name| written.get(name).copied();
                    // The name goes before the earlier ones.
                    let written = of(&field.name).or_else(|| field.aliases.iter().find_map(of));
                    match (written, &field.default) {
                        (Some(written), _) => self
                            .pair(field.node, written, depth + 1)
                            .map_err(|error| format!("{}: {error}", field.name))?,
                        (None, Some(default)) => {
                            check_default(self.reader, field.node, default, &mut self.defaults)
                                .map_err(|error| format!("{}: {}", field.name, error.message()))?;
                        }
                        (None, None) => {
                            return Err(format!("the field {:?} is new and has no default", field.name));
                        }
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
    fn the_default_of_a_new_field_is_of_its_type() {
        let old = record(r#"{"name": "a", "type": "int"}"#);
        let with = |kind: &str, default: &str| {
            let fields = format!(r#"{{"name": "b", "type": {kind}, "default": {default}}}"#);
            can_read(&record(&fields), &old)
        };
        let union = r#"["null", "string"]"#;
        assert_eq!(with(union, "null"), Ok(()));
        let error = "b: the Avro definition cannot be used: the default \"x\" is no union";
        assert_eq!(with(union, r#""x""#).unwrap_err(), error);
        assert_eq!(with(r#"["string", "null"]"#, r#""x""#), Ok(()));
        assert!(with(r#""int""#, r#""x""#).unwrap_err().contains("is no int"));
        let long = format!("[{}]", vec!["0"; MAX_DEFAULTS + 1].join(","));
        assert!(with(r#"{"type": "array", "items": "int"}"#, &long).unwrap_err().contains("more than"));
    }

    #[test]
    fn defaults_share_a_limit() {
        let array = format!("[{}]", vec!["0"; MAX_DEFAULTS / 4].join(","));
        let fields: Vec<String> = (0..4)
            .map(|n| {
                format!(
                    r#"{{"name": "b{n}", "type": {{"type": "array", "items": "int"}}, "default": {array}}}"#
                )
            })
            .collect();
        let old = record(r#"{"name": "a", "type": "int"}"#);
        assert_eq!(can_read(&record(&fields[0]), &old), Ok(()));
        assert!(can_read(&record(&fields.join(",")), &old).unwrap_err().contains("more than"));
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

    #[test]
    fn the_name_of_a_field_goes_before_its_aliases() {
        let both = record(r#"{"name": "old", "type": "string"}, {"name": "new", "type": "int"}"#);
        let reader = record(r#"{"name": "new", "type": "int", "aliases": ["old"]}"#);
        assert_eq!(can_read(&reader, &both), Ok(()));
    }

    #[test]
    fn what_would_take_long_is_refused() {
        let symbols = |reversed: bool| {
            let mut symbols: Vec<_> = (0..15_000).map(|n| format!("\"s{n}\"")).collect();
            if reversed {
                symbols.reverse();
            }
            let text = format!(r#"{{"type": "enum", "name": "E", "symbols": [{}]}}"#, symbols.join(","));
            Schema::parse(text.as_bytes()).unwrap()
        };
        assert_eq!(can_read(&symbols(false), &symbols(true)), Ok(()));
        // Each branch of one against each of the other, none of which fits.
        let branches = |kind: &str| {
            let of = |n| format!(r#"{{"type": "fixed", "name": "{kind}{n}", "size": 1}}"#);
            let branches: Vec<_> = (0..2000).map(of).collect();
            Schema::parse(format!("[{}]", branches.join(",")).as_bytes()).unwrap()
        };
        let (a, b) = (branches("a"), branches("b"));
        assert!(can_read(&a, &b).is_err());
        assert!(crate::Plan::new(a.into(), b.into()).is_err());
    }
}
