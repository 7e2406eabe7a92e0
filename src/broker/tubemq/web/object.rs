//! JSON objects whose members keep their order, as in the answers of the real master: scripts look for texts in them.

use std::fmt::Write as _;

use serde_json::Value;

use crate::broker::tubemq::records::History;

/// A JSON object in the making.
#[derive(Debug, Default)]
pub(super) struct Object(String);

impl Object {
    /// Adds a number, a text or a boolean.
    #[must_use]
    pub(super) fn with(self, name: &str, value: impl Into<Value>) -> Self {
        let value: Value = value.into();
        self.raw(name, &value.to_string())
    }

    /// Adds an object.
    #[must_use]
    pub(super) fn object(self, name: &str, value: &Self) -> Self {
        self.raw(name, &value.text())
    }

    /// Adds an array.
    #[must_use]
    pub(super) fn list(self, name: &str, items: &[Self]) -> Self {
        let items: Vec<String> = items.iter().map(Self::text).collect();
        self.raw(name, &format!("[{}]", items.join(",")))
    }

    /// Adds all members of another object.
    #[must_use]
    pub(super) fn and(mut self, other: &Self) -> Self {
        if !self.0.is_empty() && !other.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(&other.0);
        self
    }

    fn raw(mut self, name: &str, json: &str) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        let _ = write!(self.0, "{comma}{}:{json}", Value::from(name));
        self
    }

    /// The object as JSON.
    pub(super) fn text(&self) -> String {
        format!("{{{}}}", self.0)
    }
}

/// The members that tell who made and changed something.
pub(super) fn dated(history: &History) -> Object {
    let History { created, modified } = history;
    Object::default()
        .with("createUser", &*created.user)
        .with("createDate", &*created.date)
        .with("modifyUser", &*modified.user)
        .with("modifyDate", &*modified.date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_texts_are_escaped() {
        let inner = Object::default().with("z", true).and(&Object::default());
        let object = Object::default()
            .with("b", 1)
            .with("a", "x\"\n\u{e9}")
            .list("l", &[Object::default().and(&inner), Object::default()])
            .object("o", &inner)
            .and(&inner);
        assert_eq!(object.text(), r#"{"b":1,"a":"x\"\né","l":[{"z":true},{}],"o":{"z":true},"z":true}"#);
    }
}
