//! Permissions of clients. The master names producers the topics that they may send to, and takes
//! consumers for topics that they may read; the broker decides for each message, and the connection
//! remembers that, and for each partition that a consumer takes. A producer with other topics, too,
//! is registered: they would be of no use to it otherwise.

use std::sync::Arc;

use super::owners::may_use;
use super::partition::Refusal;
use super::{Broker, CallId};
use crate::permissions::{Access, Client, Domain, Permissions, note_denial};
use forebay_tubemq::Code;

/// Whether the rules, if there are some, allow it.
fn permit(rules: Option<&Arc<Permissions>>, user: &str, access: Access, topic: &str) -> bool {
    rules.is_none_or(|rules| rules.permits(Domain::TubeMq, Client::of_user(user), access, topic))
}

/// [`permit`] that writes a denial to the log.
fn permit_noted(rules: Option<&Arc<Permissions>>, user: &str, access: Access, topic: &str) -> bool {
    let permitted = permit(rules, user, access, topic);
    if !permitted {
        let operation = if access == Access::Read { "consume" } else { "send to" };
        note_denial(Domain::TubeMq, Client::of_user(user), operation, topic);
    }
    permitted
}

fn refusal(access: Access, topic: &str) -> Refusal {
    match access {
        Access::Read => (Code::ConsumeGroupForbidden, format!("no permission to consume topic {topic}")),
        Access::Write => (Code::CertificateFailure, format!("no permission to send to topic {topic}")),
    }
}

impl Broker {
    /// Refuses what the rules do not allow, and counts it.
    pub(super) fn check_topic(&mut self, user: &str, access: Access, topic: &str) -> Result<(), Refusal> {
        if permit_noted(self.settings.permissions.as_ref(), user, access, topic) {
            return Ok(());
        }
        self.counters.denied += 1;
        Err(refusal(access, topic))
    }

    /// [`Self::check_topic`] for all topics of a consumer.
    pub(super) fn check_topics(&mut self, user: Arc<str>, topics: &[String]) -> Result<Arc<str>, Refusal> {
        topics.iter().try_for_each(|topic| self.check_topic(&user, Access::Read, topic))?;
        Ok(user)
    }

    /// The topics that a producer may send to, of those that it names. The log tells of the others
    /// when it comes, not at each of its heartbeats.
    pub(super) fn writable(&mut self, user: &str, topics: Vec<String>, comes: bool) -> Vec<String> {
        let rules = self.settings.permissions.clone();
        let permit = if comes { permit_noted } else { permit };
        let all = topics.len();
        let topics: Vec<String> =
            topics.into_iter().filter(|topic| permit(rules.as_ref(), user, Access::Write, topic)).collect();
        self.counters.denied += (all - topics.len()) as u64;
        topics
    }

    /// [`Self::check_topic`] for the topics of a group, and whether the user may still have the
    /// group. A member that may not leaves it.
    pub(super) fn check_group(&mut self, user: &str, client: &str, group: &str) -> Result<(), Refusal> {
        let topics = self.groups.get(group).map(|group| group.topics().clone()).unwrap_or_default();
        let checked = topics.iter().try_for_each(|topic| self.check_topic(user, Access::Read, topic));
        let checked = checked.and_then(|()| self.check_owner(user, group).map(drop));
        if checked.is_err() {
            self.leave(client, group);
        }
        checked
    }

    /// [`Self::check_topic`] for a message.
    pub(super) fn check_send(
        &mut self,
        call_id: CallId,
        user: &Arc<str>,
        topic: &str,
    ) -> Result<(), Refusal> {
        let rules = self.settings.permissions.as_ref();
        let Some(connection) = self.connections.get_mut(&call_id.connection).filter(|_| rules.is_some())
        else {
            return Ok(());
        };
        let (of, decisions) = &mut connection.decisions;
        if of != user {
            *of = user.clone();
            decisions.forget();
        }
        if decisions.recall(topic, || permit_noted(rules, user, Access::Write, topic)) {
            return Ok(());
        }
        self.counters.denied += 1;
        Err(refusal(Access::Write, topic))
    }

    /// Replaces the permissions. Partitions are taken from consumers that may not read them any
    /// more.
    pub(super) fn change_permissions(&mut self, permissions: Arc<Permissions>) {
        for connection in self.connections.values_mut() {
            connection.decisions.1.forget();
        }
        let rules = Some(permissions);
        for (name, topic) in &self.topics {
            for id in &topic.partitions {
                let Some(partition) = self.partitions.get_mut(id) else { continue };
                let (owners, rules) = (&self.owners, rules.as_ref());
                let denied = |group: &str, user: &str| {
                    !permit(rules, user, Access::Read, name)
                        || self.settings.owners && !may_use(owners, rules, user, group)
                };
                let leases = partition.leases.iter().filter(|(group, lease)| denied(group, &lease.user));
                let groups: Vec<Arc<str>> = leases.map(|(group, _)| group.clone()).collect();
                groups.iter().for_each(|group| partition.release(group));
            }
        }
        self.settings.permissions = rules;
    }
}
