//! Topic names, topic filters and matching (4.7), shared subscriptions (4.8.2).

use bytestring::ByteString;

use forebay_base::error::{Error, ErrorKind, Result, shown};

/// Maximum length of a topic name or filter in bytes.
pub const MAX_LENGTH: usize = u16::MAX as usize;

const SHARE: &str = "$share/";

/// A validated topic filter, possibly of a shared subscription.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    text: ByteString,
    /// Length of the group name in `$share/group/filter`.
    group: Option<usize>,
}

impl Filter {
    /// Parses `filter` or `$share/group/filter`.
    pub fn parse(text: impl Into<ByteString>) -> Result<Self> {
        let text = text.into();
        let bad = |why: &str| {
            Error::new(ErrorKind::InvalidTopic, format!("{} is not a topic filter: {why}", shown(&text)))
        };
        let mut group = None;
        let mut filter = &text[..];
        if let Some(rest) = text.strip_prefix(SHARE) {
            let (name, inner) = rest.split_once('/').ok_or_else(|| bad("expected $share/group/filter"))?;
            if name.is_empty() || name.contains(['+', '#']) {
                return Err(bad(
                    "the group of a shared subscription must be a non-empty name without wildcards",
                ));
            }
            group = Some(name.len());
            filter = inner;
        }
        check_text(filter).map_err(bad)?;
        if text.len() > MAX_LENGTH {
            return Err(bad("it is longer than 65,535 bytes"));
        }
        let mut levels = filter.split('/').peekable();
        while let Some(level) = levels.next() {
            if level.contains('+') && level != "+" {
                return Err(bad("+ must be a whole level"));
            }
            if level.contains('#') && (level != "#" || levels.peek().is_some()) {
                return Err(bad("# must be a whole level and the last one"));
            }
        }
        Ok(Self { text, group })
    }

    /// The filter as sent, including `$share/group/`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The filter as sent, sharing its memory.
    pub fn text(&self) -> ByteString {
        self.text.clone()
    }

    /// Group name of a shared subscription.
    pub fn group(&self) -> Option<&str> {
        self.group.map(|length| &self.text[SHARE.len()..SHARE.len() + length])
    }

    /// The filter without `$share/group/`.
    pub fn pattern(&self) -> &str {
        &self.text[self.group.map_or(0, |length| SHARE.len() + length + 1)..]
    }

    /// Whether the filter contains a wildcard.
    pub fn has_wildcard(&self) -> bool {
        self.pattern().contains(['+', '#'])
    }

    /// Whether a message published to `topic` matches the filter.
    pub fn matches(&self, topic: &str) -> bool {
        matches(self.pattern(), topic)
    }
}

/// Validates a topic name for publishing.
pub fn check_name(name: &str) -> Result<()> {
    let bad = |why: &str| {
        Error::new(ErrorKind::InvalidTopic, format!("{} is not a topic name: {why}", shown(name)))
    };
    check_text(name).map_err(bad)?;
    if name.contains(['+', '#']) {
        return Err(bad("+ and # are for filters only"));
    }
    if name.len() > MAX_LENGTH {
        return Err(bad("it is longer than 65,535 bytes"));
    }
    Ok(())
}

fn check_text(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.contains('\0') {
        return Err("it contains the character U+0000");
    }
    Ok(())
}

/// Whether some topic matches both patterns, valid filters without `$share/group/`.
pub fn overlap(one: &str, other: &str) -> bool {
    let (mut ones, mut others) = (one.split('/'), other.split('/'));
    loop {
        match (ones.next(), others.next()) {
            // Also matches the parent level: `sport/#` matches `sport` (4.7.1.2).
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some(level), Some(another)) if level == another || level == "+" || another == "+" => {}
            _ => return false,
        }
    }
}

/// Whether `topic` matches `pattern`, a valid filter without `$share/group/`. A wildcard in the
/// first level does not match a topic that starts with `$` [MQTT-4.7.2-1].
pub fn matches(pattern: &str, topic: &str) -> bool {
    if topic.starts_with('$') && pattern.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in pattern.split('/') {
        if wanted == "#" {
            // Also matches the parent level: `sport/#` matches `sport` (4.7.1.2).
            return true;
        }
        match levels.next() {
            Some(level) if wanted == "+" || wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}
