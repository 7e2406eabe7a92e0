//! Permissions: which user may read and write which topics, in the three protocols.
//!
//! * `file`: rules from the text of a file; `matching`: comparisons of filters
//! * [`Decisions`]: decisions about the topics that a connection used lately
//!
//! A topic is decided as Mosquitto does it: the rules of the user come first, those of everybody
//! second, and in each of the two a `deny` that matches outweighs all others. What no rule allows
//! is refused. A superuser may do everything.
//!
//! The rules of a user are found through a tree of levels, so their number hardly matters; those
//! that have the name of the client in them are compared one by one. A connection remembers
//! decisions, routes of MQTT hold only the subscribers that may read their topic, and Pulsar
//! decides once for each producer and consumer. New rules replace the old ones as a whole: each
//! protocol forgets its decisions then.
//!
//! Subscriptions of Pulsar and groups of TubeMQ belong to a user. Rules name those that another
//! user may use as well.

use crate::logger::{self, Logger};
use crate::tree::Tree;
use forebay_base::error::Result;
use forebay_base::random::HashMap;
use tracing::Level;

mod decisions;
mod file;
mod matching;

pub use decisions::Decisions;

/// Levels of rules that are compared with one topic. The rules are those of the operator, so they
/// are not meant to use this up; a topic for which they do is refused.
const MATCH_STEPS: usize = 1 << 20;

/// The protocol that a topic belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// MQTT: topic names as clients send them.
    Mqtt,
    /// Pulsar: full names, without the index of a partition.
    Pulsar,
    /// TubeMQ: topic names, which have one level.
    TubeMq,
}

impl Domain {
    /// Name of the protocol.
    fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Pulsar => "pulsar",
            Self::TubeMq => "tubemq",
        }
    }
}

/// Number of [`Domain`]s.
const DOMAINS: usize = 3;

/// Use of a topic by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Receives its messages.
    Read,
    /// Publishes messages.
    Write,
}

/// The client that asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client<'a> {
    /// Its user, if the broker has verified one.
    pub user: Option<&'a str>,
    /// Its client identifier, if the protocol has them.
    pub id: Option<&'a str>,
}

impl<'a> Client<'a> {
    /// The client of a user; without users the name is empty.
    pub fn of_user(user: &'a str) -> Self {
        Self { user: Some(user).filter(|user| !user.is_empty()), id: None }
    }
}

/// Writes to the log that the rules do not allow a client an operation, such as `"publish to"`, on
/// the topic, subscription or group of a name.
pub fn note_denial(domain: Domain, client: Client<'_>, operation: &'static str, name: &str) {
    logger::write_limited(Level::WARN, Logger::Permissions, || {
        let protocol = domain.name();
        let [user, id, name] =
            [client.user.unwrap_or_default(), client.id.unwrap_or_default(), name].map(logger::cut);
        let who = match (&*user, &*id) {
            ("", "") => "a client without a user".to_owned(),
            ("", id) => format!("client {id:?} without a user"),
            (user, "") => format!("user {user:?}"),
            (user, id) => format!("client {id:?} of user {user:?}"),
        };
        logger::about(
            "denied",
            protocol,
            &user,
            &id,
            format!("{protocol}: {who} may not {operation} {name:?}"),
        )
        .with("operation", operation)
        .with("name", name)
    });
}

/// Statement about a topic: that of one rule, or of all that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Grant {
    read: bool,
    write: bool,
    deny: bool,
}

impl Grant {
    fn add(&mut self, other: Self) {
        self.read |= other.read;
        self.write |= other.write;
        self.deny |= other.deny;
    }

    fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.read,
            Access::Write => self.write,
        }
    }

    /// The decision, if there is one.
    fn decision(self, access: Access) -> Option<bool> {
        if self.deny { Some(false) } else { self.allows(access).then_some(true) }
    }
}

/// Rules without names of clients in them.
#[derive(Debug, Default)]
struct Rules {
    tree: Tree<Grant>,
    /// The same rules, for comparisons with filters.
    list: Vec<(Box<str>, Grant)>,
}

impl Rules {
    fn add(&mut self, filter: &str, grant: Grant) {
        self.tree.entry(filter).add(grant);
        self.list.push((filter.into(), grant));
    }

    fn find(&self, topic: &str) -> Grant {
        let mut found = Grant::default();
        let mut steps = MATCH_STEPS;
        let complete = self.tree.matching(topic, &mut steps, &mut |grant| found.add(*grant));
        found.deny |= !complete;
        found
    }
}

/// Rules of one user, of clients without one, or of a role.
#[derive(Debug, Default)]
struct UserRules {
    superuser: bool,
    /// Places in [`Permissions::roles`] of those that the user has.
    roles: Vec<usize>,
    /// Subscriptions and groups of other users that the user may use. With `*` at the end, it is
    /// the beginning of the name.
    subscriptions: Vec<(Domain, Box<str>)>,
    rules: [Rules; DOMAINS],
}

/// Rules of everybody.
#[derive(Debug, Default)]
struct Patterns {
    rules: Rules,
    /// Rules with `%u` or `%c`.
    named: Vec<(Box<str>, Grant)>,
}

/// The rules of a file, as the [module](self) describes.
#[derive(Debug, Default)]
pub struct Permissions {
    anonymous: UserRules,
    users: HashMap<Box<str>, UserRules>,
    /// Rules that several users share. A role has no roles.
    roles: Vec<UserRules>,
    patterns: [Patterns; DOMAINS],
    /// Number of rules.
    len: usize,
}

impl Permissions {
    /// Reads rules in the format of Mosquitto's `acl_file`. An error names the line.
    pub fn parse(text: &str) -> Result<Self> {
        file::parse(text)
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no rule, so that nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The rules of a user, and those of its roles.
    fn of_user(&self, user: Option<&str>) -> impl Iterator<Item = &UserRules> + Clone {
        let own = match user {
            None => Some(&self.anonymous),
            Some(user) => self.users.get(user),
        };
        let roles =
            own.into_iter().flat_map(|own| own.roles.iter().filter_map(|place| self.roles.get(*place)));
        own.into_iter().chain(roles)
    }

    /// Whether the user may do everything, administration included.
    pub fn is_superuser(&self, user: Option<&str>) -> bool {
        self.of_user(user).any(|rules| rules.superuser)
    }

    /// Whether the user may use a subscription or group of this name that belongs to another user.
    pub fn shares(&self, domain: Domain, user: Option<&str>, subscription: &str) -> bool {
        let names = |(of, rule): &(Domain, Box<str>)| {
            *of == domain
                && match rule.strip_suffix('*') {
                    Some(beginning) => subscription.starts_with(beginning),
                    None => **rule == *subscription,
                }
        };
        self.of_user(user).any(|own| own.superuser || own.subscriptions.iter().any(names))
    }

    /// Whether the client may use the topic in this way.
    pub fn permits(&self, domain: Domain, client: Client<'_>, access: Access, topic: &str) -> bool {
        let mut own = Grant::default();
        for rules in self.of_user(client.user) {
            if rules.superuser {
                return true;
            }
            own.add(rules.rules[domain as usize].find(topic));
        }
        if let Some(decision) = own.decision(access) {
            return decision;
        }
        let patterns = &self.patterns[domain as usize];
        let mut found = patterns.rules.find(topic);
        for (pattern, grant) in &patterns.named {
            match matching::matches_named(pattern, client, topic) {
                Some(true) => found.add(*grant),
                Some(false) => {}
                // Its name could make it match topics of another client.
                None => return false,
            }
        }
        found.decision(access).unwrap_or(false)
    }

    /// Whether the client may use some topic below `filter` in this way, as far as it can be seen:
    /// `false` is certain, `true` is not. Each rule that is looked at costs one of `steps`; without
    /// any left, the answer is `true`.
    pub fn permits_some(
        &self,
        domain: Domain,
        client: Client<'_>,
        access: Access,
        filter: &str,
        steps: &mut usize,
    ) -> bool {
        if self.is_superuser(client.user) {
            return true;
        }
        let patterns = &self.patterns[domain as usize];
        let own = self.of_user(client.user).map(|own| &own.rules[domain as usize].list);
        let rules =
            own.clone().map(Vec::len).sum::<usize>() + patterns.rules.list.len() + patterns.named.len();
        let Some(left) = steps.checked_sub(rules) else { return true };
        *steps = left;
        let denied = |rules: &[(Box<str>, Grant)]| {
            rules.iter().any(|(rule, grant)| grant.deny && matching::covers(rule, filter))
        };
        let some = |rules: &[(Box<str>, Grant)]| {
            rules.iter().any(|(rule, grant)| grant.allows(access) && matching::overlap(rule, filter))
        };
        if own.clone().any(|list| denied(list)) {
            return false;
        }
        if own.clone().any(|list| some(list)) {
            return true;
        }
        if denied(&patterns.rules.list) {
            return false;
        }
        some(&patterns.rules.list)
            || patterns.named.iter().any(|(pattern, grant)| {
                let rule = matching::with_names(pattern, client);
                grant.allows(access) && rule.is_some_and(|rule| matching::overlap(&rule, filter))
            })
    }
}

#[cfg(test)]
mod tests;
