//! Comparisons of filters with topics and with each other, level by level.

use std::borrow::Cow;

use super::Client;

/// Stand for the user and the client identifier in a pattern.
pub(super) const USER: &str = "%u";
pub(super) const CLIENT_ID: &str = "%c";

/// A name as it may stand in a filter. One that has a slash or a wildcard could reach what belongs
/// to another.
fn insertable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '+', '#'])
}

/// Names that stand in the place of `%u` and `%c`. `None` if the client has no such name.
enum Names<'a> {
    Missing,
    /// It has one that may not stand in a filter.
    Dangerous,
    Good(Client<'a>),
}

fn names<'a>(pattern: &str, client: Client<'a>) -> Names<'a> {
    for (place, name) in [(USER, client.user), (CLIENT_ID, client.id)] {
        if pattern.contains(place) {
            match name {
                None => return Names::Missing,
                Some(name) if !insertable(name) => return Names::Dangerous,
                Some(_) => {}
            }
        }
    }
    Names::Good(client)
}

/// A level of a pattern with the names of the client in it.
fn level<'p>(pattern: &'p str, client: Client<'_>) -> Cow<'p, str> {
    if !pattern.contains('%') {
        return pattern.into();
    }
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let (name, length) = match &rest[at..] {
            place if place.starts_with(USER) => (client.user.unwrap_or_default(), USER.len()),
            place if place.starts_with(CLIENT_ID) => (client.id.unwrap_or_default(), CLIENT_ID.len()),
            _ => ("%", 1),
        };
        text.push_str(name);
        rest = &rest[at + length..];
    }
    text.push_str(rest);
    text.into()
}

/// Whether a pattern with the names of the client in it matches a topic; `None` if one of them may
/// not stand there.
pub(super) fn matches_named(pattern: &str, client: Client<'_>, topic: &str) -> Option<bool> {
    match names(pattern, client) {
        Names::Missing => return Some(false),
        Names::Dangerous => return None,
        Names::Good(_) => {}
    }
    if topic.starts_with('$') && !pattern.starts_with('$') {
        return Some(false);
    }
    let mut levels = topic.split('/');
    for wanted in pattern.split('/') {
        if wanted == "#" {
            return Some(true);
        }
        match levels.next() {
            Some(found) if wanted == "+" || *level(wanted, client) == *found => {}
            _ => return Some(false),
        }
    }
    Some(levels.next().is_none())
}

/// A pattern with the names of the client in it, if it has them and they may stand there.
pub(super) fn with_names(pattern: &str, client: Client<'_>) -> Option<String> {
    let Names::Good(client) = names(pattern, client) else { return None };
    Some(level(pattern, client).into_owned())
}

/// Whether a topic can match both filters.
pub(super) fn overlap(one: &str, other: &str) -> bool {
    // Wildcards in the first level do not match topics that begin with `$` [MQTT-4.7.2-1].
    if one.starts_with('$') != other.starts_with('$') {
        return false;
    }
    let (mut one, mut other) = (one.split('/'), other.split('/'));
    loop {
        match (one.next(), other.next()) {
            (Some("#"), _) | (_, Some("#")) => return true,
            (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
            (Some(level), Some(found)) if level == found => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Whether every topic that matches `filter` matches `rule`.
pub(super) fn covers(rule: &str, filter: &str) -> bool {
    if rule.starts_with('$') != filter.starts_with('$') {
        return false;
    }
    let (mut rule, mut filter) = (rule.split('/'), filter.split('/'));
    loop {
        match (rule.next(), filter.next()) {
            (Some("#"), _) => return true,
            (Some("+"), Some(level)) if level != "#" => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use forebay_mqtt::topic::matches;

    fn path(names: &'static [&'static str], open: bool) -> impl Strategy<Value = String> {
        let levels = proptest::collection::vec(proptest::sample::select(names), 1..4);
        (levels, any::<bool>()).prop_map(move |(levels, hash)| {
            let text = levels.join("/");
            if open && hash { format!("{text}/#") } else { text }
        })
    }

    /// All topics of up to four levels of these names.
    fn topics() -> Vec<String> {
        let names = ["a", "b", "", "$x"];
        let mut all: Vec<String> = names.map(str::to_owned).into();
        let mut last = all.clone();
        for _ in 0..3 {
            last = last.iter().flat_map(|path| names.map(|name| format!("{path}/{name}"))).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    proptest! {
        #[test]
        fn filters_overlap_and_cover_as_their_topics_say(
            one in path(&["a", "b", "", "+", "$x"], true),
            other in path(&["a", "b", "", "+", "$x"], true),
        ) {
            let topics = topics();
            let both = topics.iter().any(|topic| matches(&one, topic) && matches(&other, topic));
            prop_assert_eq!(overlap(&one, &other), both);
            let all = topics.iter().all(|topic| matches(&one, topic) || !matches(&other, topic));
            prop_assert_eq!(covers(&one, &other), all);
        }
    }

    #[test]
    fn names_stand_in_their_places() {
        let client = Client { user: Some("ann"), id: Some("%u") };
        let matches = |pattern, topic| matches_named(pattern, client, topic);
        assert_eq!(matches("%u/x", "ann/x"), Some(true));
        assert_eq!(matches("a/x%u%c%/+/#", "a/xann%u%/y"), Some(true), "what was put in is not read again");
        assert_eq!(matches("%c", "ann"), Some(false));
        assert_eq!(matches("%u", "$SYS"), Some(false));
        assert_eq!(with_names("a/%u/%c/#", client).as_deref(), Some("a/ann/%u/#"));
    }

    #[test]
    fn a_name_that_reaches_further_than_its_level_matches_nothing() {
        for name in ["+", "#", "a/b", "a+", ""] {
            let client = Client { user: Some(name), id: Some("c") };
            assert_eq!(matches_named("dev/%u", client, "dev/a"), None, "{name}");
            assert_eq!(with_names("dev/%u", client), None);
            assert_eq!(matches_named("dev/%c", client, "dev/c"), Some(true), "the other name is good");
        }
        assert_eq!(matches_named("dev/%u", Client::default(), "dev/"), Some(false));
    }
}
