//! Decisions of administrators about a topic: whether it takes messages and consumers, and which groups may
//! consume it. The web service of the master changes it.
//!
//! In the store, a record is kept as properties of cursors of the topic's own row, which has no entries: one without a name
//! for the topic, and one for each group that was named. A topic whose record was never changed has none of these rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::broker::log::cursor::Properties;
use crate::broker::store::StoredCursor;

/// Limit on the groups that are named for a topic: each has a row in the store.
pub(super) const MAX_GRANTS: usize = 1000;

/// Names of the properties.
const STATUS: &str = "status";
const PUBLISH: &str = "acceptPublish";
const SUBSCRIBE: &str = "acceptSubscribe";
const RESTRICTED: &str = "enableAuthControl";
const ENABLED: &str = "consumeEnable";
const REASON: &str = "reason";
/// Beginnings of the names of properties that hold an [`Edit`].
const CREATE: &str = "create";
const MODIFY: &str = "modify";
const CONTROL_CREATE: &str = "controlCreate";
const CONTROL_MODIFY: &str = "controlModify";

/// Status of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Status {
    /// In use.
    #[default]
    Normal,
    /// Kept with its messages, but out of use until it is restored or removed.
    SoftDeleted,
}

impl Status {
    /// Number of the status in the web service.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Normal => 0,
            Self::SoftDeleted => 1,
        }
    }
}

/// A user's change, as the caller of the web service states it: it is not verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Edit {
    /// Name of the user; empty if no call has stated one.
    pub(super) user: Box<str>,
    /// Date as `yyyyMMddHHmmss`; empty if no call has set it.
    pub(super) date: Box<str>,
}

impl Edit {
    fn put(&self, name: &str, to: &mut Properties) {
        for (part, value) in [("User", &self.user), ("Date", &self.date)] {
            to.push((format!("{name}{part}").into(), value.clone()));
        }
    }

    fn find(name: &str, of: &Properties) -> Self {
        let part = |part: &str| text(of, &format!("{name}{part}")).unwrap_or_default().into();
        Self { user: part("User"), date: part("Date") }
    }
}

/// Makers of something: the first one, and the one that changed it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    pub(super) created: Edit,
    pub(super) modified: Edit,
}

impl History {
    pub(super) fn new(edit: &Edit) -> Self {
        Self { created: edit.clone(), modified: edit.clone() }
    }
}

/// Whether a group may consume a restricted topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) enabled: bool,
    /// Why it was last changed.
    pub(super) reason: Box<str>,
    pub(super) history: History,
}

/// The record of a topic, as the [module](self) describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) status: Status,
    /// Whether producers may send to the topic.
    pub(super) accept_publish: bool,
    /// Whether consumers may take its partitions.
    pub(super) accept_subscribe: bool,
    /// Whether only groups with an enabled grant may consume it.
    pub(super) restricted: bool,
    pub(super) history: History,
    /// Makers of the change of `restricted`.
    pub(super) control: History,
    pub(super) grants: BTreeMap<Arc<str>, Grant>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            status: Status::Normal,
            accept_publish: true,
            accept_subscribe: true,
            restricted: false,
            history: History::default(),
            control: History::default(),
            grants: BTreeMap::new(),
        }
    }
}

impl Record {
    /// Whether the group may consume the topic.
    pub(super) fn admits(&self, group: &str) -> bool {
        !self.restricted || self.grants.get(group).is_some_and(|grant| grant.enabled)
    }

    /// Restores what [`Broker::write_record`] and [`Broker::write_grant`] have written.
    pub(super) fn restore(rows: Vec<StoredCursor>) -> Self {
        let mut record = Self::default();
        for StoredCursor { subscription, properties, .. } in rows {
            if subscription.is_empty() {
                record.read(&properties);
            } else {
                record.grants.insert(subscription, Grant::read(&properties));
            }
        }
        record
    }

    fn read(&mut self, from: &Properties) {
        if text(from, STATUS) == Some("1") {
            self.status = Status::SoftDeleted;
        }
        self.accept_publish = flag(from, PUBLISH, true);
        self.accept_subscribe = flag(from, SUBSCRIBE, true);
        self.restricted = flag(from, RESTRICTED, false);
        self.history = History { created: Edit::find(CREATE, from), modified: Edit::find(MODIFY, from) };
        self.control =
            History { created: Edit::find(CONTROL_CREATE, from), modified: Edit::find(CONTROL_MODIFY, from) };
    }

    pub(super) fn properties(&self) -> Properties {
        let mut all = vec![
            (STATUS.into(), self.status.number().to_string().into()),
            (PUBLISH.into(), self.accept_publish.to_string().into()),
            (SUBSCRIBE.into(), self.accept_subscribe.to_string().into()),
            (RESTRICTED.into(), self.restricted.to_string().into()),
        ];
        self.history.created.put(CREATE, &mut all);
        self.history.modified.put(MODIFY, &mut all);
        self.control.created.put(CONTROL_CREATE, &mut all);
        self.control.modified.put(CONTROL_MODIFY, &mut all);
        all
    }
}

impl Grant {
    fn read(from: &Properties) -> Self {
        Self {
            enabled: flag(from, ENABLED, false),
            reason: text(from, REASON).unwrap_or_default().into(),
            history: History { created: Edit::find(CREATE, from), modified: Edit::find(MODIFY, from) },
        }
    }

    pub(super) fn properties(&self) -> Properties {
        let mut all =
            vec![(ENABLED.into(), self.enabled.to_string().into()), (REASON.into(), self.reason.clone())];
        self.history.created.put(CREATE, &mut all);
        self.history.modified.put(MODIFY, &mut all);
        all
    }
}

fn text<'p>(of: &'p Properties, name: &str) -> Option<&'p str> {
    of.iter().find(|(key, _)| &**key == name).map(|(_, value)| &**value)
}

fn flag(of: &Properties, name: &str, default: bool) -> bool {
    text(of, name).map_or(default, |value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::log::cursor::Cursor;

    fn row(subscription: &str, properties: Properties) -> StoredCursor {
        let (subscription, cursor) = (subscription.into(), Cursor::new(0));
        StoredCursor { subscription, kind: 0, cursor, properties, touched_ms: 0, owner: None }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let edit = |user: &str| Edit { user: user.into(), date: "20260102030405".into() };
        let history = History { created: edit("ann"), modified: edit("bob") };
        let grant = Grant { enabled: true, reason: "why".into(), history: history.clone() };
        let record = Record {
            status: Status::SoftDeleted,
            accept_publish: false,
            accept_subscribe: false,
            restricted: true,
            control: History::new(&edit("eve")),
            history,
            grants: BTreeMap::from([("g".into(), grant.clone()), ("h".into(), Grant::default())]),
        };
        let rows = vec![
            row("g", grant.properties()),
            row("h", Grant::default().properties()),
            row("", record.properties()),
        ];
        assert_eq!(Record::restore(rows), record);
        assert!(record.admits("g") && !record.admits("h") && !record.admits("other"));
    }

    #[test]
    fn a_topic_without_a_record_is_in_use_and_open() {
        assert_eq!(Record::restore(Vec::new()), Record::default());
        assert_eq!(Record::restore(vec![row("", vec![("later".into(), "x".into())])]), Record::default());
        assert!(Record::default().admits("any"));
    }
}
