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
//! # A role: rules that several users share. Bob and Carol have it.
//! role kitchen
//! topic readwrite kitchen/#
//! user bob
//! member kitchen
//! user carol
//! member kitchen
//! # Everybody.
//! pattern write devices/%c/state
//! # Everything, administration included.
//! user root
//! superuser
//! ```
//! The names of Pulsar's and TubeMQ's topics and the words `subscription`, `role`, `member` and
//! `superuser` are not Mosquitto's.

use super::matching::{CLIENT_ID, USER};
use super::{Domain, Grant, Permissions, UserRules};
use crate::lines::{self, mistake};
use crate::tree;
use forebay_base::error::{Result, shown};
use forebay_base::random::HashMap;
use forebay_mqtt::topic::Filter;

/// Option that names the file.
const OPTION: &str = "acl_file";
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

/// The subject of the lines that follow.
#[derive(Clone, Copy)]
enum Section<'t> {
    /// Clients without a user.
    Anonymous,
    User(&'t str),
    /// The place of a role.
    Role(usize),
}

/// The roles that were named so far, by their places.
#[derive(Default)]
struct Roles<'t> {
    places: HashMap<&'t str, usize>,
    /// Name of each, and the line of its first member until its own line has been read.
    missing: Vec<(&'t str, Option<usize>)>,
}

impl<'t> Roles<'t> {
    /// The place of a role, which the number of a line names: its section, or else a member's.
    fn place(&mut self, name: &'t str, member: Option<usize>, to: &mut Permissions) -> usize {
        let place = *self.places.entry(name).or_insert_with(|| {
            self.missing.push((name, member));
            to.roles.push(UserRules::default());
            to.roles.len() - 1
        });
        if member.is_none() {
            self.missing[place].1 = None;
        }
        place
    }
}

pub(super) fn parse(text: &str) -> Result<Permissions> {
    let mut permissions = Permissions::default();
    let (mut section, mut roles) = (Section::Anonymous, Roles::default());
    lines::each(OPTION, text, |number, line| {
        parse_line(line.trim_end(), number, &mut section, &mut roles, &mut permissions)
    })?;
    let unknown = roles.missing.iter().find_map(|(name, member)| Some((name, (*member)?)));
    match unknown {
        None => Ok(permissions),
        Some((name, number)) => Err(mistake(OPTION, number, &format!("there is no role {}", shown(name)))),
    }
}

fn parse_line<'t>(
    line: &'t str,
    number: usize,
    section: &mut Section<'t>,
    roles: &mut Roles<'t>,
    to: &mut Permissions,
) -> std::result::Result<(), String> {
    let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let rest = rest.trim_start();
    match word {
        "user" if rest.is_empty() => return Err("a name is missing behind user".into()),
        "user" => *section = Section::User(rest),
        "role" if rest.is_empty() => return Err("a name is missing behind role".into()),
        "role" => *section = Section::Role(roles.place(rest, None, to)),
        "member" if rest.is_empty() => return Err("the name of a role is missing behind member".into()),
        "member" if matches!(section, Section::Role(_)) => {
            return Err("a role has no roles: put member behind the line of a user".into());
        }
        "member" => {
            let place = roles.place(rest, Some(number), to);
            let has = &mut of_section(to, *section).roles;
            if !has.contains(&place) {
                has.push(place);
            }
        }
        "superuser" if !rest.is_empty() => {
            let rest = shown(rest);
            return Err(format!("{rest} behind superuser: put it behind the user line of its user, alone"));
        }
        "superuser" => {
            of_section(to, *section).superuser = true;
            to.len += 1;
        }
        "topic" => {
            let Rule { domain, filter, grant } = parse_rule(rest)?;
            of_section(to, *section).rules[domain as usize].add(filter, grant);
            to.len += 1;
        }
        "subscription" => {
            let (domain, name) = parse_subscription(rest)?;
            of_section(to, *section).subscriptions.push((domain, name.into()));
            to.len += 1;
        }
        "pattern" if matches!(section, Section::Role(_)) => {
            return Err("a pattern is for everybody: put it before the first line of a user or a role".into());
        }
        "pattern" => {
            add_pattern(parse_rule(rest)?, to)?;
            to.len += 1;
        }
        _ => {
            let words = "user, role, member, topic, subscription, pattern, superuser";
            return Err(format!("{} is not one of {words}", shown(word)));
        }
    }
    Ok(())
}

/// Reads `[tubemq:]name`.
fn parse_subscription(text: &str) -> std::result::Result<(Domain, &str), String> {
    let (domain, name) = match text.strip_prefix(TUBEMQ) {
        Some(name) => (Domain::TubeMq, name),
        None => (Domain::Pulsar, text),
    };
    if name.is_empty() {
        return Err("the name of a subscription is missing".into());
    }
    Ok((domain, name))
}

/// Adds a rule that is for everybody.
fn add_pattern(
    Rule { domain, filter, grant }: Rule<'_>,
    to: &mut Permissions,
) -> std::result::Result<(), String> {
    if filter.contains(CLIENT_ID) && domain != Domain::Mqtt {
        return Err(
            "%c stands for MQTT's client identifier, which this topic's clients do not have: use %u".into()
        );
    }
    let patterns = &mut to.patterns[domain as usize];
    match filter.contains(USER) || filter.contains(CLIENT_ID) {
        true => patterns.named.push((filter.into(), grant)),
        false => patterns.rules.add(filter, grant),
    }
    Ok(())
}

fn of_section<'p>(to: &'p mut Permissions, section: Section<'_>) -> &'p mut UserRules {
    match section {
        Section::Anonymous => &mut to.anonymous,
        Section::User(user) => to.users.entry(user.into()).or_default(),
        Section::Role(place) => &mut to.roles[place],
    }
}

/// Reads `[read|write|readwrite|deny] topic`. A topic may contain spaces if the word before it is
/// there.
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
        _ => return Err(format!("{} is not one of {}", shown(access), ACCESSES.join(", "))),
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
        return Err(format!("{} has more than {} levels", shown(filter), tree::MAX_LEVELS));
    }
    if domain == Domain::Mqtt && parsed.group().is_some() {
        return Err(format!("name the topics of the shared subscription: {}", shown(parsed.pattern())));
    }
    if domain == Domain::TubeMq && filter.contains('/') {
        return Err(format!("{} is not the name of a TubeMQ topic, nor # or +", shown(filter)));
    }
    if domain == Domain::Pulsar && filter.split('/').count() > 5 {
        return Err(format!("{} is not of the form persistent://tenant/namespace/topic", shown(filter)));
    }
    Ok(Rule { domain, filter, grant })
}
