//! Users that groups belong to: a group is its first member's while it has members or offsets.
//! Other users are refused, unless the rules let them, so that they neither take messages from its
//! members nor move its offsets.
//!
//! A group is free for all users if its first member had no user, or if its offsets are from a
//! broker without users. The group of a user that left the file belongs to the next one that comes.
//! The owner is stored with each offset of the group.

use std::sync::Arc;

use super::partition::Refusal;
use super::{Broker, Owners};
use crate::permissions::{Client, Domain, Permissions, note_denial};
use forebay_base::random::HashSet;
use forebay_tubemq::Code;

/// Owners after which those of groups that have ended are looked for, as housekeeping does at its
/// times.
const LOOK: usize = 10_000;

/// Whether the rules let a user use a group of another user. Clients without a user have an empty
/// name.
fn shares(rules: Option<&Arc<Permissions>>, user: &str, group: &str) -> bool {
    let user = Some(user).filter(|user| !user.is_empty());
    rules.is_some_and(|rules| rules.shares(Domain::TubeMq, user, group))
}

/// Whether a user may have a group.
pub(super) fn may_use(owners: &Owners, rules: Option<&Arc<Permissions>>, user: &str, group: &str) -> bool {
    match owners.get(group) {
        Some(Some(owner)) => **owner == *user || shares(rules, user, group),
        _ => true,
    }
}

impl Broker {
    /// Refuses a group of another user, and counts it. The result tells whether the group is to be
    /// [claimed](Self::claim).
    pub(super) fn check_owner(&mut self, user: &str, group: &str) -> Result<bool, Refusal> {
        if !self.settings.owners {
            return Ok(false);
        }
        let owner = match self.owners.get(group) {
            None => return Ok(true),
            Some(Some(owner)) if **owner != *user => owner,
            // A group that has ended may belong to a user again.
            Some(None) if !self.is_used(group) => return Ok(true),
            Some(_) => return Ok(false),
        };
        // Of certificates it is not known which users still get them.
        let users = self.settings.users.as_ref();
        let exists = self.settings.certificates || users.is_some_and(|users| users.contains(owner));
        if !exists || !self.is_used(group) {
            return Ok(true);
        }
        if shares(self.settings.permissions.as_ref(), user, group) {
            return Ok(false);
        }
        self.counters.denied += 1;
        note_denial(Domain::TubeMq, Client::of_user(user), "use the group", group);
        let text = format!("no permission to use group {group}: it belongs to another user");
        Err((Code::ConsumeGroupForbidden, text))
    }

    /// Gives a group to a user.
    pub(super) fn claim(&mut self, user: &Arc<str>, group: &Arc<str>) {
        if self.owners.len() % LOOK == LOOK - 1 {
            // A client may come with one name after the other.
            self.forget_owners();
        }
        let owner = Some(user.clone()).filter(|user| !user.is_empty());
        if self.owners.insert(group.clone(), owner).is_none() {
            return;
        }
        // Its offsets have the former owner.
        let offsets = self.partitions.iter().filter(|(_, partition)| partition.offsets.contains_key(group));
        let partitions: Vec<u64> = offsets.map(|(id, _)| *id).collect();
        partitions.into_iter().for_each(|partition| self.write_offset(partition, group));
    }

    /// Whether a group has members or offsets.
    fn is_used(&self, group: &str) -> bool {
        self.groups.contains_key(group)
            || self.partitions.values().any(|partition| partition.offsets.contains_key(group))
    }

    /// The owner of a group, as it is stored.
    pub(super) fn owner_of(&self, group: &str) -> Option<Arc<str>> {
        self.owners.get(group).cloned().flatten()
    }

    /// Forgets the owners of groups that have neither members nor offsets.
    pub(super) fn forget_owners(&mut self) {
        if self.owners.is_empty() {
            return;
        }
        let offsets = self.partitions.values().flat_map(|partition| partition.offsets.keys());
        let used: HashSet<&Arc<str>> = offsets.chain(self.groups.keys()).collect();
        self.owners.retain(|group, _| used.contains(group));
    }
}
