//! Definitions of schemas.

use serde_json::{Map, Value};

use super::{MAX_DEFINITION, MAX_DEPTH, MAX_NAME, MAX_NAMES, MAX_NODES};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;

/// Index of a type in its schema.
pub type NodeId = u32;

/// A parsed definition. Types refer to each other by index, so a type that contains itself is
/// finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    nodes: Vec<Node>,
    root: NodeId,
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its structure.
    pub kind: Kind,
    /// Meaning of its values, if that is more than the structure says.
    pub logical: Option<Logical>,
    /// Largest number of digits of a decimal; 0 for all others.
    pub precision: u32,
}

/// Structure of a type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the Avro specification")]
pub enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Array(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record(Record),
    Enum(Enum),
    Fixed(Fixed),
}

/// A name with its namespace, and the full names that it had before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Name {
    /// Name with the namespace.
    pub full: String,
    /// Earlier full names.
    pub aliases: Vec<String>,
}

impl Name {
    /// Whether data of a type of this other name are those of this type: the names are equal
    /// without their namespaces, or it is an earlier one.
    pub fn covers(&self, other: &Self) -> bool {
        self.full.rsplit('.').next() == other.full.rsplit('.').next() || self.aliases.contains(&other.full)
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Name of the type.
    pub name: Name,
    /// Fields in their order.
    pub fields: Vec<Field>,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Earlier names.
    pub aliases: Vec<String>,
    /// Its type.
    pub node: NodeId,
    /// Value for data that lack the field.
    pub default: Option<Value>,
}

/// An enumeration.
#[derive(Clone, Debug, PartialEq)]
pub struct Enum {
    /// Name of the type.
    pub name: Name,
    /// Symbols in their order.
    pub symbols: Vec<String>,
    /// Index of the symbol that stands for those that the reader does not know.
    pub default: Option<u32>,
}

/// Bytes of a fixed size.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// Name of the type.
    pub name: Name,
    /// Number of bytes.
    pub size: usize,
}

/// Meaning of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the Avro specification")]
pub enum Logical {
    Date,
    TimeMillis,
    TimeMicros,
    TimestampMillis,
    TimestampMicros,
    LocalTimestampMillis,
    LocalTimestampMicros,
    /// An integer of the bytes, divided by ten to the power of this.
    Decimal(u32),
    Uuid,
}

impl Logical {
    /// Whether values of the two can stand for the same things, in whatever unit.
    pub fn agrees(self, other: Self) -> bool {
        use Logical::{
            Date, Decimal, LocalTimestampMicros, LocalTimestampMillis, TimeMicros, TimeMillis,
            TimestampMicros, TimestampMillis, Uuid,
        };
        matches!(
            (self, other),
            (Date, Date)
                | (Uuid, Uuid)
                | (Decimal(_), Decimal(_))
                | (TimeMillis | TimeMicros, TimeMillis | TimeMicros)
                | (TimestampMillis | TimestampMicros, TimestampMillis | TimestampMicros)
                | (LocalTimestampMillis | LocalTimestampMicros, LocalTimestampMillis | LocalTimestampMicros)
        )
    }
}

impl Kind {
    /// Name of the type in errors.
    pub fn describe(&self) -> &str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Union(_) => "union",
            Self::Record(record) => &record.name.full,
            Self::Enum(of) => &of.name.full,
            Self::Fixed(fixed) => &fixed.name.full,
        }
    }
}

impl Node {
    /// Number of names, fields, symbols or branches that a comparison may look at; at least 1.
    pub(super) fn parts(&self) -> usize {
        1 + match &self.kind {
            Kind::Union(branches) => branches.len(),
            Kind::Enum(of) => of.symbols.len() + of.name.aliases.len(),
            Kind::Fixed(fixed) => fixed.name.aliases.len(),
            Kind::Record(record) => {
                let fields = record.fields.iter().map(|field| 1 + field.aliases.len());
                record.name.aliases.len() + fields.sum::<usize>()
            }
            _ => 0,
        }
    }
}

/// The error of a definition that cannot be used.
pub(super) fn refused(text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Schema, format!("the Avro definition cannot be used: {text}"))
}

impl Schema {
    /// Parses a definition. Defaults are not checked before they are needed, as by Pulsar's broker.
    pub fn parse(definition: &[u8]) -> Result<Self> {
        if definition.len() > MAX_DEFINITION {
            return Err(refused(format_args!(
                "it has {} bytes, and at most {MAX_DEFINITION} are supported",
                definition.len()
            )));
        }
        // The parser of JSON bounds its own depth.
        let json: Value =
            serde_json::from_slice(definition).map_err(|error| refused(format_args!("{error}")))?;
        let mut parser = Parser { nodes: Vec::new(), names: HashMap::default(), parts: 0, name_bytes: 0 };
        let root = parser.parse(&json, "", 0)?;
        Ok(Self { nodes: parser.nodes, root })
    }

    /// The outermost type.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// A type.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    /// Number of types.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no type, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The named types, with their indexes.
    pub fn named(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.nodes.iter().zip(0..).filter_map(|(node, id)| match &node.kind {
            Kind::Record(record) => Some((id, record.name.full.as_str())),
            Kind::Enum(of) => Some((id, of.name.full.as_str())),
            Kind::Fixed(fixed) => Some((id, fixed.name.full.as_str())),
            _ => None,
        })
    }

    /// Whether a type has values of any of these structures or meanings, wherever in it.
    pub fn any(&self, is: impl Fn(&Node) -> bool) -> bool {
        self.nodes.iter().any(is)
    }
}

struct Parser {
    nodes: Vec<Node>,
    names: HashMap<String, NodeId>,
    /// Fields, symbols and aliases so far.
    parts: usize,
    /// Length of the full names so far.
    name_bytes: usize,
}

impl Parser {
    fn add_meant(
        &mut self,
        kind: Kind,
        logical: Option<Logical>,
        object: &Map<String, Value>,
    ) -> Result<NodeId> {
        let id = self.add(kind, logical)?;
        if let (Some(Logical::Decimal(_)), Some(digits)) = (logical, object.get("precision")) {
            // At most 10,000, or it were no decimal.
            self.nodes[id as usize].precision = digits.as_u64().unwrap_or(0) as u32;
        }
        Ok(id)
    }

    fn add(&mut self, kind: Kind, logical: Option<Logical>) -> Result<NodeId> {
        if self.nodes.len() >= MAX_NODES {
            return Err(refused(format_args!("it has more than {MAX_NODES} types")));
        }
        self.nodes.push(Node { kind, logical, precision: 0 });
        Ok(self.nodes.len() as NodeId - 1)
    }

    /// Counts fields, symbols or aliases.
    fn count(&mut self, more: usize) -> Result<()> {
        self.parts += more;
        if self.parts > MAX_NODES {
            return Err(refused(format_args!("it has more than {MAX_NODES} fields, symbols and aliases")));
        }
        Ok(())
    }

    fn full_name(&mut self, name: &str, namespace: &str) -> Result<String> {
        if name.len() > MAX_NAME || namespace.len() > MAX_NAME {
            return Err(refused(format_args!("one of its names has more than {MAX_NAME} bytes")));
        }
        let full = full_name(name, namespace);
        self.name_bytes += full.len();
        if self.name_bytes > MAX_NAMES {
            return Err(refused(format_args!("its names have more than {MAX_NAMES} bytes together")));
        }
        Ok(full)
    }

    fn parse(&mut self, json: &Value, namespace: &str, depth: usize) -> Result<NodeId> {
        if depth > MAX_DEPTH {
            return Err(refused(format_args!("its types are nested more than {MAX_DEPTH} deep")));
        }
        match json {
            Value::String(name) => self.by_name(name, namespace),
            Value::Array(branches) => self.union(branches, namespace, depth),
            Value::Object(object) => self.complex(object, namespace, depth),
            other => Err(refused(format_args!("{} is no type", short(other)))),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str) -> Result<NodeId> {
        if let Some(kind) = primitive(name) {
            return self.add(kind, None);
        }
        let full = self.full_name(name, namespace)?;
        let found = self.names.get(&full).or_else(|| self.names.get(name));
        found.copied().ok_or_else(|| refused(format_args!("the type {full:?} is not defined")))
    }

    fn union(&mut self, branches: &[Value], namespace: &str, depth: usize) -> Result<NodeId> {
        let mut ids = Vec::with_capacity(branches.len());
        for branch in branches {
            let id = self.parse(branch, namespace, depth + 1)?;
            if matches!(self.nodes[id as usize].kind, Kind::Union(_)) {
                return Err(refused("a union is a branch of a union"));
            }
            ids.push(id);
        }
        self.add(Kind::Union(ids), None)
    }

    fn complex(&mut self, object: &Map<String, Value>, namespace: &str, depth: usize) -> Result<NodeId> {
        let kind = object.get("type").ok_or_else(|| refused("a type has no \"type\""))?;
        let Value::String(kind) = kind else {
            return self.parse(kind, namespace, depth + 1);
        };
        match kind.as_str() {
            "record" | "error" => self.record(object, namespace, depth),
            "enum" => self.enumeration(object, namespace),
            "fixed" => {
                let name = self.name(object, namespace)?;
                let size = object.get("size").and_then(Value::as_u64);
                let size = size.filter(|size| *size <= u32::MAX.into()).ok_or_else(|| {
                    refused(format_args!("the size of {:?} is missing or too large", name.full))
                })?;
                let full = name.full.clone();
                let logical = logical(object, &Kind::Bytes, Some(size as usize));
                let id = self.add_meant(Kind::Fixed(Fixed { name, size: size as usize }), logical, object)?;
                self.names.insert(full, id);
                Ok(id)
            }
            "array" => {
                let items = object.get("items").ok_or_else(|| refused("an array has no \"items\""))?;
                let items = self.parse(items, namespace, depth + 1)?;
                self.add(Kind::Array(items), None)
            }
            "map" => {
                let values = object.get("values").ok_or_else(|| refused("a map has no \"values\""))?;
                let values = self.parse(values, namespace, depth + 1)?;
                self.add(Kind::Map(values), None)
            }
            name => match primitive(name) {
                Some(kind) => {
                    let logical = logical(object, &kind, None);
                    self.add_meant(kind, logical, object)
                }
                None => self.by_name(name, namespace),
            },
        }
    }

    fn record(&mut self, object: &Map<String, Value>, namespace: &str, depth: usize) -> Result<NodeId> {
        let name = self.name(object, namespace)?;
        let inner = name.full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        let full = name.full.clone();
        let id = self.add(Kind::Record(Record { name: name.clone(), fields: Vec::new() }), None)?;
        // Before its fields, which may contain it.
        self.names.insert(full.clone(), id);
        let list = object.get("fields").and_then(Value::as_array);
        let list = list.ok_or_else(|| refused(format_args!("the record {full:?} has no list of fields")))?;
        self.count(list.len())?;
        let mut fields = Vec::with_capacity(list.len());
        let mut seen = HashMap::default();
        for field in list {
            let named = field.get("name").and_then(Value::as_str);
            let named =
                named.ok_or_else(|| refused(format_args!("a field of the record {full:?} has no name")))?;
            if seen.insert(named, ()).is_some() {
                return Err(refused(format_args!("the record {full:?} has two fields {named:?}")));
            }
            let kind = field
                .get("type")
                .ok_or_else(|| refused(format_args!("the field {named:?} of {full:?} has no type")))?;
            let aliases = texts(field.get("aliases"));
            self.count(aliases.len())?;
            fields.push(Field {
                name: named.to_owned(),
                aliases,
                node: self.parse(kind, &inner, depth + 1)?,
                default: field.get("default").cloned(),
            });
        }
        self.nodes[id as usize].kind = Kind::Record(Record { name, fields });
        Ok(id)
    }

    fn enumeration(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<NodeId> {
        let name = self.name(object, namespace)?;
        let full = name.full.clone();
        let list = object.get("symbols").and_then(Value::as_array);
        let list = list.ok_or_else(|| refused(format_args!("the enum {full:?} has no symbols")))?;
        self.count(list.len())?;
        let mut symbols = Vec::with_capacity(list.len());
        let mut seen = HashMap::default();
        for symbol in list {
            let symbol = symbol.as_str();
            let symbol =
                symbol.ok_or_else(|| refused(format_args!("a symbol of the enum {full:?} is no text")))?;
            if seen.insert(symbol, ()).is_some() {
                return Err(refused(format_args!("the enum {full:?} has two symbols {symbol:?}")));
            }
            symbols.push(symbol.to_owned());
        }
        let default = object.get("default").and_then(Value::as_str);
        let default = default.and_then(|default| symbols.iter().position(|s| s == default)).map(|n| n as u32);
        let id = self.add(Kind::Enum(Enum { name, symbols, default }), None)?;
        self.names.insert(full, id);
        Ok(id)
    }

    fn name(&mut self, object: &Map<String, Value>, namespace: &str) -> Result<Name> {
        let name = object.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| refused("a record, enum or fixed has no name"))?;
        let namespace = object.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let full = self.full_name(name, namespace)?;
        if self.names.contains_key(&full) {
            return Err(refused(format_args!("the type {full:?} is defined twice")));
        }
        let inner = full.rsplit_once('.').map_or("", |(namespace, _)| namespace);
        let aliases = texts(object.get("aliases"));
        self.count(aliases.len())?;
        let aliases = aliases.iter().map(|alias| self.full_name(alias, inner)).collect::<Result<_>>()?;
        Ok(Name { full: full.clone(), aliases })
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

/// The logical type of an object. As the specification says, one that does not fit is ignored.
/// `fixed` is the size of a fixed.
fn logical(object: &Map<String, Value>, kind: &Kind, fixed: Option<usize>) -> Option<Logical> {
    let number = |name: &str| object.get(name).and_then(Value::as_u64);
    match (object.get("logicalType")?.as_str()?, kind) {
        ("date", Kind::Int) => Some(Logical::Date),
        ("time-millis", Kind::Int) => Some(Logical::TimeMillis),
        ("time-micros", Kind::Long) => Some(Logical::TimeMicros),
        ("timestamp-millis", Kind::Long) => Some(Logical::TimestampMillis),
        ("timestamp-micros", Kind::Long) => Some(Logical::TimestampMicros),
        ("local-timestamp-millis", Kind::Long) => Some(Logical::LocalTimestampMillis),
        ("local-timestamp-micros", Kind::Long) => Some(Logical::LocalTimestampMicros),
        ("uuid", Kind::String) => Some(Logical::Uuid),
        ("uuid", Kind::Bytes) if fixed == Some(16) => Some(Logical::Uuid),
        ("decimal", Kind::Bytes) => {
            let (precision, scale) = (number("precision")?, number("scale").unwrap_or(0));
            let fits = precision > 0 && scale <= precision && precision <= 10_000;
            fits.then_some(Logical::Decimal(scale as u32))
        }
        _ => None,
    }
}

fn short(json: &Value) -> String {
    json.to_string().chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(definition: &str) -> String {
        Schema::parse(definition.as_bytes()).unwrap_err().message().to_owned()
    }

    #[test]
    fn a_record_may_contain_itself() {
        let list =
            r#"{"type": "record", "name": "a.List", "fields": [{"name": "next", "type": ["null", "List"]}]}"#;
        let schema = Schema::parse(list.as_bytes()).unwrap();
        let Kind::Record(record) = &schema.node(schema.root()).kind else { panic!() };
        let Kind::Union(branches) = &schema.node(record.fields[0].node).kind else { panic!() };
        assert_eq!(branches[1], schema.root());
    }

    #[test]
    fn what_is_no_definition_is_refused_with_the_reason() {
        for (definition, reason) in [
            ("", "EOF"),
            ("5", "5 is no type"),
            (r#""Order""#, "\"Order\" is not defined"),
            (r#"{"name": "x"}"#, "no \"type\""),
            (r#"{"type": "record", "fields": []}"#, "no name"),
            (r#"{"type": "record", "name": "R"}"#, "no list of fields"),
            (
                r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}"#,
                "two fields",
            ),
            (r#"["null", ["int"]]"#, "branch of a union"),
            (r#"{"type": "enum", "name": "E", "symbols": ["A", "A"]}"#, "two symbols"),
            (
                r#"[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 1}]"#,
                "twice",
            ),
            (r#"{"type": "fixed", "name": "F", "size": -1}"#, "missing or too large"),
        ] {
            let text = fails(definition);
            assert!(text.contains(reason), "{definition}: {text}");
        }
    }

    #[test]
    fn deep_wide_and_long_definitions_are_refused() {
        let deep = format!("{}\"int\"{}", r#"{"type": "array", "items": "#.repeat(80), "}".repeat(80));
        assert!(fails(&deep).contains("nested more than 64 deep"));
        let deeper = "[".repeat(100_000);
        assert!(fails(&deeper).contains("recursion limit"));
        let wide = format!("[{}\"int\"]", "\"int\",".repeat(MAX_NODES + 1));
        assert!(fails(&wide).contains("more than 20000 types"));
        assert!(fails(&" ".repeat(MAX_DEFINITION + 1)).contains("bytes"));
        let name = "n".repeat(MAX_NAME);
        assert!(
            fails(&format!(r#"{{"type": "fixed", "name": "{name}n", "size": 1}}"#)).contains("1024 bytes")
        );
        // Each name repeats the namespace.
        let named = |n: usize| format!(r#"{{"type": "fixed", "name": "F{n}", "size": 1}}"#);
        let many: Vec<_> =
            (0..3000).map(|n| format!(r#"{{"name": "f{n}", "type": {}}}"#, named(n))).collect();
        let many = many.join(",");
        let record =
            format!(r#"{{"type": "record", "name": "R", "namespace": "{name}", "fields": [{many}]}}"#);
        assert!(fails(&record).contains("names"));
        let symbols: Vec<_> = (0..=MAX_NODES).map(|n| format!("\"{n}\"")).collect();
        let symbols = symbols.join(",");
        let wide = format!(r#"{{"type": "enum", "name": "E", "symbols": [{symbols}]}}"#);
        assert!(fails(&wide).contains("symbols"), "{}", fails(&wide));
        assert!(fails(r#"[{"type": ["null"]}]"#).contains("a union is a branch of a union"));
    }
}
