//! The JSON in the body of an operator's request. Errors say what is wrong with it.

use bytes::Bytes;
use serde_json::Value;

/// Fields of a body, by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields(Value);

impl Fields {
    /// Reads a body.
    pub fn read(body: &Bytes) -> Result<Self, String> {
        serde_json::from_slice(body)
            .map(Self)
            .map_err(|error| format!("the body is not as expected: {error}"))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.value(name) {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            _ => Err(format!("{name} is not a text")),
        }
    }

    /// A text that must be there and not be empty.
    pub fn required(&self, name: &str) -> Result<&str, String> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| format!("{name} is missing"))
    }

    /// Whatever the body has by that name; null if nothing.
    pub fn value(&self, name: &str) -> &Value {
        &self.0[name]
    }
}
