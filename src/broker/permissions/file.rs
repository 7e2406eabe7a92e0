//! Rules from the text of a file, in the format of Mosquitto's `acl_file`:
//!
//! ```text
//! # Clients without a user.
//! topic read news/#
//! # Ann, until the next such line.
//! user ann
//! topic readwrite home/#
//! topic write persistent://public/default/orders
//! topic read tubemq:orders
//! # Subscriptions of Pulsar and groups of TubeMQ that belong to another user.
//! subscription billing
//! subscription tubemq:till-*
//! # Everybody.
//! pattern write devices/%c/state
//! # Everything, administration included.
//! user root
//! superuser
//! ```
//! The names of Pulsar's and TubeMQ's topics and the words `subscription` and `superuser` are not Mosquitto's.

use super::matching::{CLIENT_ID, USER};
use super::{Domain, Grant, Permissions, UserRules};
use crate::broker::tree;
use crate::error::{Error, ErrorKind, Result};
use crate::mqtt::topic::Filter;

/// Prefixes of Pulsar's and TubeMQ's topics.
const PULSAR: [&str; 2] = ["persistent://", "non-persistent://"];
const TUBEMQ: &str = "tubemq:";
/// Words before a topic.
const ACCESSES: [&str; 4] = ["read", "write", "readwrite", "deny"];

/// A rule: the topics it is about, and what it says about them.
struct Rule<'t> {
    domain: Domain,
    filter: &'t str,
    grant: Grant,
}

pub(super) fn parse(text: &str) -> Result<Permissions> {
    let mut permissions = Permissions::default();
    let mut user = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        parse_line(line, &mut user, &mut permissions).map_err(|why| {
            Error::new(ErrorKind::InvalidArgument, format!("acl_file, line {}: {why}", number + 1))
        })?;
    }
    Ok(permissions)
}

fn parse_line<'t>(
    line: &'t str,
    user: &mut Option<&'t str>,
    to: &mut Permissions,
) -> std::result::Result<(), String> {
    let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let rest = rest.trim_start();
    match word {
        "user" if rest.is_empty() => return Err("a name is missing behind user".into()),
        "user" => *user = Some(rest),
        "superuser" if !rest.is_empty() => {
            return Err(format!("{rest:?} behind superuser: put it behind the user line of its user, alone"));
        }
        "superuser" => {
            of_user(to, *user).superuser = true;
            to.len += 1;
        }
        "topic" => {
            let Rule { domain, filter, grant } = parse_rule(rest)?;
            of_user(to, *user).rules[domain as usize].add(filter, grant);
            to.len += 1;
        }
        "subscription" => {
            let (domain, name) = match rest.strip_prefix(TUBEMQ) {
                Some(name) => (Domain::TubeMq, name),
                None => (Domain::Pulsar, rest),
            };
            if name.is_empty() {
                return Err("the name of a subscription is missing".into());
            }
            of_user(to, *user).subscriptions.push((domain, name.into()));
            to.len += 1;
        }
        "pattern" => {
            let Rule { domain, filter, grant } = parse_rule(rest)?;
            if filter.contains(CLIENT_ID) && domain != Domain::Mqtt {
                return Err(
                    "%c stands for MQTT's client identifier, which this topic's clients do not have: use %u"
                        .into(),
                );
            }
            let patterns = &mut to.patterns[domain as usize];
            match filter.contains(USER) || filter.contains(CLIENT_ID) {
                true => patterns.named.push((filter.into(), grant)),
                false => patterns.rules.add(filter, grant),
            }
            to.len += 1;
        }
        _ => return Err(format!("{word:?} is not one of user, topic, subscription, pattern, superuser")),
    }
    Ok(())
}

fn of_user<'p>(to: &'p mut Permissions, user: Option<&str>) -> &'p mut UserRules {
    match user {
        None => &mut to.anonymous,
        Some(user) => to.users.entry(user.into()).or_default(),
    }
}

/// Reads `[read|write|readwrite|deny] topic`. A topic may contain spaces if the word before it is there.
fn parse_rule(text: &str) -> std::result::Result<Rule<'_>, String> {
    let (access, topic) = match text.split_once([' ', '\t']) {
        Some((access, topic)) => (access, topic.trim_start()),
        None => ("readwrite", text),
    };
    let grant = match access {
        "read" => Grant { read: true, ..Grant::default() },
        "write" => Grant { write: true, ..Grant::default() },
        "readwrite" => Grant { read: true, write: true, deny: false },
        "deny" => Grant { deny: true, ..Grant::default() },
        _ => return Err(format!("{access:?} is not one of {}", ACCESSES.join(", "))),
    };
    // Mosquitto takes a single word for a topic. These are mistakes.
    if topic.is_empty() || access == "readwrite" && topic == text && ACCESSES.contains(&topic) {
        return Err("the topic is missing".into());
    }
    let (domain, filter) = match topic.strip_prefix(TUBEMQ) {
        Some(name) => (Domain::TubeMq, name),
        None if PULSAR.iter().any(|prefix| topic.starts_with(prefix)) => (Domain::Pulsar, topic),
        None => (Domain::Mqtt, topic),
    };
    let parsed = Filter::parse(filter).map_err(|error| error.message().to_owned())?;
    if !tree::fits(filter) {
        return Err(format!("{filter:?} has more than {} levels", tree::MAX_LEVELS));
    }
    if domain == Domain::Mqtt && parsed.group().is_some() {
        return Err(format!("name the topics of the shared subscription: {:?}", parsed.pattern()));
    }
    if domain == Domain::TubeMq && filter.contains('/') {
        return Err(format!("{filter:?} is not the name of a TubeMQ topic, nor # or +"));
    }
    if domain == Domain::Pulsar && filter.split('/').count() > 5 {
        return Err(format!("{filter:?} is not of the form persistent://tenant/namespace/topic"));
    }
    Ok(Rule { domain, filter, grant })
}
