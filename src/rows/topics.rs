//! The topic of each row of a frame: a column, or a template with columns in it.

use arrow_array::builder::StringBuilder;
use arrow_array::{Array, StringArray};

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;
use forebay_mqtt::topic::{MAX_LENGTH, check_name};
use forebay_pulsar::topic::TopicName;

/// Rules for the names of topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// A name that is no filter of MQTT, sent as it is.
    #[default]
    Plain,
    /// Pulsar's. A topic has several spellings, of which the full one is used.
    Pulsar,
}

/// Source of a row's topic.
#[derive(Debug, PartialEq, Eq)]
pub enum Topics {
    /// The name of the column.
    Column(String),
    /// `shop/{till}/sales`: text, and columns in braces; `{{` and `}}` are literal braces.
    Template(Vec<Part>),
}

/// Piece of a template.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Literal text.
    Text(String),
    /// The name of a column.
    Column(String),
}

impl Topics {
    /// Parses the name of a column or, if it contains braces, a template.
    pub fn parse(text: &str) -> Result<Self> {
        if text.contains(['{', '}']) { Self::parse_template(text) } else { Ok(Self::Column(text.to_owned())) }
    }

    /// Parses a template.
    pub fn parse_template(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            let hint = "write columns in braces, as in shop/{till}/sales, and literal braces twice";
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{text:?} is not a template of topics: {why}; {hint}"),
            )
        };
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (brace, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err(bad("a closing brace has no opening brace"));
            }
            let (column, after) = after.split_once('}').ok_or_else(|| bad("a brace is not closed"))?;
            if column.is_empty() || column.contains('{') {
                return Err(bad("a pair of braces must contain the name of a column"));
            }
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Column(column.to_owned()));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        for part in &parts {
            if let Part::Text(text) = part
                && let Some(why) = flaw(text)
            {
                let text = format!("{text:?} cannot be a part of a topic: {why}");
                return Err(Error::new(ErrorKind::InvalidTopic, text));
            }
        }
        Ok(Self::Template(parts))
    }

    /// The columns that it names, in order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let (column, parts) = match self {
            Self::Column(name) => (Some(name.as_str()), &[][..]),
            Self::Template(parts) => (None, parts.as_slice()),
        };
        column.into_iter().chain(parts.iter().filter_map(|part| match part {
            Part::Column(name) => Some(name.as_str()),
            Part::Text(_) => None,
        }))
    }

    /// The topics of a batch of `rows` rows, each of them valid by the rules of `naming`. `column`
    /// returns a column as text. Errors name the row, counted from `first_row`, and the column.
    pub fn of(
        &self,
        naming: Naming,
        rows: usize,
        first_row: u64,
        column: impl Fn(&str) -> Result<StringArray>,
    ) -> Result<StringArray> {
        enum Piece<'a> {
            Text(&'a str),
            Column(&'a str, StringArray),
        }
        let pieces: Vec<Piece<'_>> = match self {
            Self::Column(name) => vec![Piece::Column(name, column(name)?)],
            Self::Template(parts) => parts
                .iter()
                .map(|part| match part {
                    Part::Text(text) => Ok(Piece::Text(text)),
                    Part::Column(name) => Ok(Piece::Column(name, column(name)?)),
                })
                .collect::<Result<_>>()?,
        };
        let names = || self.columns().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        let mut full_names: HashMap<String, String> = HashMap::default();
        let mut built = StringBuilder::new();
        let mut topic = String::new();
        for row in 0..rows {
            let number = first_row + row as u64;
            let refuse = |why: String| Error::new(ErrorKind::InvalidTopic, format!("row {number} {why}"));
            topic.clear();
            for piece in &pieces {
                match piece {
                    Piece::Text(text) => topic.push_str(text),
                    Piece::Column(name, values) if values.is_null(row) => {
                        return Err(refuse(format!("has no topic: column {name:?} is null")));
                    }
                    Piece::Column(name, values) => {
                        let value = values.value(row);
                        if let Some(why) = flaw(value).filter(|_| naming == Naming::Plain) {
                            let shown: String = value.chars().take(80).collect();
                            let text = format!(
                                "has {shown:?} in column {name:?}, which cannot be a part of a topic: {why}"
                            );
                            return Err(refuse(text));
                        }
                        topic.push_str(value);
                    }
                }
            }
            if naming == Naming::Pulsar {
                if !full_names.contains_key(&topic) {
                    let name = TopicName::parse(&topic).map_err(|error| {
                        refuse(format!("has no valid topic in column {}: {}", names(), error.message()))
                    })?;
                    full_names.insert(topic.clone(), name.to_string());
                }
                built.append_value(&full_names[&topic]);
                continue;
            }
            if topic.len() > MAX_LENGTH {
                return Err(refuse(format!("has a topic of {} bytes; 65,535 are possible", topic.len())));
            }
            if check_name(&topic).is_err() {
                return Err(refuse(format!("has an empty topic, made of column {}", names())));
            }
            built.append_value(&topic);
        }
        Ok(built.finish())
    }
}

/// Why a text cannot be a part of a topic name; empty it may be (4.7.1, 4.7.3).
fn flaw(text: &str) -> Option<&'static str> {
    if text.contains('\0') {
        Some("it holds the character U+0000")
    } else if text.contains(['+', '#']) {
        Some("+ and # are for filters only")
    } else {
        None
    }
}
