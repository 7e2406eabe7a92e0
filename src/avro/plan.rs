//! Plans: the way from data of a writer's schema to values of a reader's schema.
//!
//! Both are compared once; what can only be known from the data (the branch of a union, the symbol
//! of an enum) is left to [`decode`](mod@super::decode). Pairs of types that were compared are not
//! compared again, so types that contain themselves end.

use std::sync::Arc;

use super::encode::default_of;
use super::schema::{Kind, Logical, Node, NodeId, Record, Schema};
use super::{MAX_CHAIN, MAX_PAIRS, MAX_WORK};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::{HashMap, HashSet};

/// Index of a step in its plan.
pub(super) type StepId = u32;

/// Steps from data of a writer to values of a reader.
#[derive(Debug)]
pub struct Plan {
    writer: Arc<Schema>,
    pub(super) reader: Arc<Schema>,
    pub(super) steps: Vec<Step>,
    pub(super) root: StepId,
}

/// Kinds of data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Read {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    /// Bytes or a text, with its length.
    Bytes,
    Fixed(usize),
}

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Make {
    Null,
    Boolean,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Logical(Logical),
}

#[derive(Debug)]
pub(super) enum Step {
    /// Being made.
    Pending,
    Scalar(Read, Make),
    Array(StepId),
    Map(StepId),
    /// The branches of the writer's union; those that the reader cannot have with the reason.
    Union(Vec<std::result::Result<StepId, Arc<str>>>),
    /// The reader's type, and its index of each of the writer's symbols.
    Enum(NodeId, Vec<Option<u32>>),
    Record(RecordStep),
    /// As another step: the value of a branch is the value of the reader's union.
    Same(StepId),
    /// Data of a field that the reader does not have.
    Skip(NodeId),
}

#[derive(Debug)]
pub(super) struct RecordStep {
    /// The reader's type.
    pub(super) reader: NodeId,
    /// Number of its fields.
    pub(super) size: usize,
    /// For each of the writer's fields the index of the reader's field, and how it is read.
    pub(super) fields: Vec<(Option<usize>, StepId)>,
    /// The reader's fields that the writer lacks: their defaults in the reader's encoding, and how
    /// these are read.
    pub(super) defaults: Vec<(usize, Arc<[u8]>, StepId)>,
}

impl Plan {
    /// Compares the schemas. The error says what the reader cannot have of the writer.
    pub fn new(writer: Arc<Schema>, reader: Arc<Schema>) -> Result<Self> {
        let mut maker = Maker {
            writer: &writer,
            reader: &reader,
            steps: Vec::new(),
            known: HashMap::default(),
            own: HashMap::default(),
            work: 0,
        };
        let root = maker.step(writer.root(), reader.root(), 0)?;
        let steps = maker.steps;
        Ok(Self { writer, reader, steps, root })
    }

    /// The writer's schema.
    pub fn writer(&self) -> &Arc<Schema> {
        &self.writer
    }

    /// The reader's schema.
    pub fn reader(&self) -> &Arc<Schema> {
        &self.reader
    }
}

struct Maker<'a> {
    writer: &'a Schema,
    reader: &'a Schema,
    steps: Vec<Step>,
    /// Steps by the writer's and the reader's type.
    known: HashMap<(NodeId, NodeId), StepId>,
    /// Steps from the reader's own encoding, for defaults.
    own: HashMap<NodeId, StepId>,
    /// Steps of the comparison so far.
    work: usize,
}

fn mismatch(text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::IncompatibleSchema, text.to_string())
}

/// The way to read a type without parts, and to make a value of it; `None` if one cannot become the
/// other.
pub(super) fn scalar(source: &Kind, target: &Kind) -> Option<(Read, Make)> {
    Some(match (source, target) {
        (Kind::Null, Kind::Null) => (Read::Null, Make::Null),
        (Kind::Boolean, Kind::Boolean) => (Read::Boolean, Make::Boolean),
        (Kind::Int, Kind::Int | Kind::Long) => (Read::Int, Make::Long),
        (Kind::Int, Kind::Float) => (Read::Int, Make::Float),
        (Kind::Int, Kind::Double) => (Read::Int, Make::Double),
        (Kind::Long, Kind::Long) => (Read::Long, Make::Long),
        (Kind::Long, Kind::Float) => (Read::Long, Make::Float),
        (Kind::Long, Kind::Double) => (Read::Long, Make::Double),
        (Kind::Float, Kind::Float) => (Read::Float, Make::Float),
        (Kind::Float, Kind::Double) => (Read::Float, Make::Double),
        (Kind::Double, Kind::Double) => (Read::Double, Make::Double),
        (Kind::Bytes | Kind::String, Kind::Bytes) => (Read::Bytes, Make::Bytes),
        (Kind::Bytes | Kind::String, Kind::String) => (Read::Bytes, Make::String),
        (Kind::Fixed(a), Kind::Fixed(b)) if a.size == b.size && b.name.covers(&a.name) => {
            (Read::Fixed(a.size), Make::Bytes)
        }
        _ => return None,
    })
}

impl<'a> Maker<'a> {
    fn add(&mut self, step: Step) -> Result<StepId> {
        if self.steps.len() >= MAX_PAIRS {
            return Err(mismatch(format_args!("the schemas have more than {MAX_PAIRS} pairs of types")));
        }
        self.steps.push(step);
        Ok(self.steps.len() as StepId - 1)
    }

    fn step(&mut self, writer: NodeId, reader: NodeId, depth: usize) -> Result<StepId> {
        if depth > MAX_CHAIN {
            return Err(mismatch(format_args!(
                "the types of the schemas are nested more than {MAX_CHAIN} deep"
            )));
        }
        if let Some(step) = self.known.get(&(writer, reader)) {
            return Ok(*step);
        }
        self.work += self.writer.node(writer).parts() + self.reader.node(reader).parts();
        if self.work > MAX_WORK {
            return Err(mismatch("the schemas are too large to be compared"));
        }
        let id = self.add(Step::Pending)?;
        self.known.insert((writer, reader), id);
        match self.make(writer, reader, depth) {
            Ok(step) => {
                self.steps[id as usize] = step;
                Ok(id)
            }
            Err(error) => {
                self.known.remove(&(writer, reader));
                Err(error)
            }
        }
    }

    fn make(&mut self, writer: NodeId, reader: NodeId, depth: usize) -> Result<Step> {
        let (source, target): (&'a Node, &'a Node) = (self.writer.node(writer), self.reader.node(reader));
        // Each branch of the writer's union by itself: the data say which one it is.
        if let Kind::Union(branches) = &source.kind {
            let mut steps = Vec::with_capacity(branches.len());
            let mut possible = branches.is_empty();
            for branch in branches {
                match self.step(*branch, reader, depth + 1) {
                    Ok(step) => {
                        possible = true;
                        steps.push(Ok(step));
                    }
                    Err(error) => steps.push(Err(error.message().into())),
                }
            }
            return match steps.into_iter().collect::<Vec<_>>() {
                steps if possible => Ok(Step::Union(steps)),
                mut steps => Err(mismatch(steps.swap_remove(0).err().unwrap_or_default())),
            };
        }
        if let Kind::Union(branches) = &target.kind {
            let same = branches.iter().find(|branch| self.is_same(writer, **branch));
            let mut last = None;
            for branch in same.into_iter().chain(branches) {
                match self.step(writer, *branch, depth + 1) {
                    Ok(step) => return Ok(Step::Same(step)),
                    Err(error) => last = Some(error),
                }
            }
            let none = || mismatch(format_args!("a {} is in no branch of the union", source.kind.describe()));
            return Err(last.filter(|_| branches.len() == 1).unwrap_or_else(none));
        }
        if let Some(scalar) = scalar(&source.kind, &target.kind) {
            let make = match (source.logical, target.logical) {
                (_, None) => scalar.1,
                (None, Some(reader)) => Make::Logical(reader),
                // In the unit of the writer: the value is exact, and the reader's unit is only for
                // what it writes.
                (Some(writer), Some(reader)) if writer.agrees(reader) => Make::Logical(writer),
                (Some(writer), Some(reader)) => {
                    return Err(mismatch(format_args!("a {writer:?} cannot be read as a {reader:?}")));
                }
            };
            return Ok(Step::Scalar(scalar.0, make));
        }
        match (&source.kind, &target.kind) {
            (Kind::Array(source), Kind::Array(target)) => {
                Ok(Step::Array(self.step(*source, *target, depth + 1)?))
            }
            (Kind::Map(source), Kind::Map(target)) => {
                Ok(Step::Map(self.step(*source, *target, depth + 1)?))
            }
            (Kind::Enum(source), Kind::Enum(target)) => {
                let known: HashMap<&String, u32> = target.symbols.iter().zip(0..).collect();
                let symbols =
                    source.symbols.iter().map(|symbol| known.get(symbol).copied().or(target.default));
                Ok(Step::Enum(reader, symbols.collect()))
            }
            (Kind::Record(source), Kind::Record(target)) => self.record(source, reader, target, depth),
            (source, target) => Err(mismatch(format_args!(
                "a {} cannot be read as a {}",
                source.describe(),
                target.describe()
            ))),
        }
    }

    fn record(
        &mut self,
        source: &'a Record,
        reader: NodeId,
        target: &'a Record,
        depth: usize,
    ) -> Result<Step> {
        let mut taken = vec![false; target.fields.len()];
        let by_name: HashMap<&str, usize> =
            target.fields.iter().enumerate().map(|(index, field)| (field.name.as_str(), index)).collect();
        let mut by_alias: HashMap<&str, usize> = HashMap::default();
        for (index, field) in target.fields.iter().enumerate() {
            by_alias.extend(field.aliases.iter().map(|alias| (alias.as_str(), index)));
        }
        let written: HashSet<&String> = source.fields.iter().map(|field| &field.name).collect();
        let mut fields = Vec::with_capacity(source.fields.len());
        for field in &source.fields {
            let name = field.name.as_str();
            // An earlier name is for data that lack the present one.
            let renamed = || by_alias.get(name).filter(|at| !written.contains(&target.fields[**at].name));
            let found = by_name.get(name).or_else(renamed).copied();
            fields.push(match found.filter(|index| !taken[*index]) {
                Some(index) => {
                    taken[index] = true;
                    let step = self.step(field.node, target.fields[index].node, depth + 1);
                    let within = |error: Error| mismatch(format_args!("{name}: {}", error.message()));
                    (Some(index), step.map_err(within)?)
                }
                None => (None, self.add(Step::Skip(field.node))?),
            });
        }
        let mut defaults = Vec::new();
        for (index, field) in target.fields.iter().enumerate().filter(|(index, _)| !taken[*index]) {
            let Some(default) = &field.default else {
                return Err(mismatch(format_args!(
                    "the writer has no field {:?}, and the reader has no default for it",
                    field.name
                )));
            };
            let encoded = default_of(self.reader, field.node, default)?;
            defaults.push((index, encoded.into(), self.own_step(field.node, depth + 1)?));
        }
        Ok(Step::Record(RecordStep { reader, size: target.fields.len(), fields, defaults }))
    }

    /// Whether a type of the writer is this one of the reader, rather than one that can be made of
    /// it.
    fn is_same(&self, writer: NodeId, reader: NodeId) -> bool {
        let (source, target) = (self.writer.node(writer), self.reader.node(reader));
        match (&source.kind, &target.kind) {
            (Kind::Record(a), Kind::Record(b)) => b.name.covers(&a.name),
            (Kind::Enum(a), Kind::Enum(b)) => b.name.covers(&a.name),
            (Kind::Fixed(a), Kind::Fixed(b)) => b.name.covers(&a.name) && a.size == b.size,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Step from the reader's own encoding.
    fn own_step(&mut self, node: NodeId, depth: usize) -> Result<StepId> {
        if depth > MAX_CHAIN {
            return Err(mismatch(format_args!(
                "the types of the reader are nested more than {MAX_CHAIN} deep"
            )));
        }
        if let Some(step) = self.own.get(&node) {
            return Ok(*step);
        }
        let id = self.add(Step::Pending)?;
        self.own.insert(node, id);
        let reader = self.reader;
        let of = reader.node(node);
        let step = match &of.kind {
            Kind::Array(items) => Step::Array(self.own_step(*items, depth + 1)?),
            Kind::Map(values) => Step::Map(self.own_step(*values, depth + 1)?),
            Kind::Union(branches) => {
                let steps = branches.iter().map(|branch| self.own_step(*branch, depth + 1).map(Ok));
                Step::Union(steps.collect::<Result<_>>()?)
            }
            Kind::Enum(of) => Step::Enum(node, (0..of.symbols.len() as u32).map(Some).collect()),
            Kind::Record(record) => {
                let mut fields = Vec::with_capacity(record.fields.len());
                for (index, field) in record.fields.iter().enumerate() {
                    fields.push((Some(index), self.own_step(field.node, depth + 1)?));
                }
                let size = record.fields.len();
                Step::Record(RecordStep { reader: node, size, fields, defaults: Vec::new() })
            }
            kind => {
                let Some((read, make)) = scalar(kind, kind) else {
                    return Err(mismatch("a type cannot be read"));
                };
                Step::Scalar(read, of.logical.map_or(make, Make::Logical))
            }
        };
        self.steps[id as usize] = step;
        Ok(id)
    }
}
