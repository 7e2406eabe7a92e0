//! Permissions of clients. The route of a topic has the subscribers that may read it, and remembers
//! of its last publishers whether they may write; connections remember that, too, for topics of
//! many publishers. Retained messages are decided one by one. What was queued before the rules
//! changed is looked at when its turn comes.

use std::rc::Rc;
use std::sync::Arc;

use super::Broker;
use super::message::Message;
use super::options::Settings;
use super::routes::Route;
use super::session::{Owner, Session};
use crate::permissions::{Access, Client, Domain, Permissions, note_denial};

impl Settings {
    /// Whether the rules, if there are some, allow it.
    pub(super) fn permit(&self, client: Client<'_>, access: Access, topic: &str) -> bool {
        self.permissions.as_ref().is_none_or(|rules| rules.permits(Domain::Mqtt, client, access, topic))
    }

    /// The client of a session, as the rules see it: an owner from times when the broker had users
    /// counts only if it has.
    pub(super) fn client<'s>(&self, session: &'s Session) -> Client<'s> {
        let verified = self.passwords.is_some() || self.tokens.is_some() || self.certificates;
        let user = session.owner.as_ref().filter(|_| verified).and_then(Owner::user);
        Client { user, id: Some(&session.client_id) }
    }

    fn permit_session(&self, session: Option<&Session>, access: Access, topic: &str) -> bool {
        self.permissions.is_none()
            || session.is_some_and(|session| self.permit(self.client(session), access, topic))
    }
}

impl Broker {
    /// Replaces the permissions.
    pub(super) fn change_permissions(&mut self, permissions: Arc<Permissions>) {
        self.settings.permissions = Some(permissions);
        self.routes.forget();
        self.connections.values_mut().for_each(|connection| connection.decisions.forget());
        self.sessions.values_mut().for_each(Session::uncheck);
    }

    /// Whether a session's will may still be published to the topic.
    pub(super) fn may_publish_will(&self, number: u64, topic: &str) -> bool {
        let session = self.sessions.get(&number);
        let permitted = self.settings.permit_session(session, Access::Write, topic);
        if !permitted && let Some(session) = session {
            note_denial(Domain::Mqtt, self.settings.client(session), "publish its will to", topic);
        }
        permitted
    }

    /// Whether the client of a session may publish to the topic. A route that is known remembers
    /// the answer; none is searched for a client that may not.
    pub(super) fn permits(&mut self, id: u64, number: u64, topic: &str) -> bool {
        match self.routes.known(topic) {
            Some(route) => route.may_publish(number, || self.may_publish(id, number, topic)),
            None => self.may_publish(id, number, topic),
        }
    }

    /// Whether the client of a session may publish to the topic. Its connection remembers the
    /// answer.
    fn may_publish(&mut self, id: u64, number: u64, topic: &str) -> bool {
        let (settings, session) = (&self.settings, self.sessions.get(&number));
        if settings.permissions.is_none() {
            return true;
        }
        let decide = || {
            let permitted = settings.permit_session(session, Access::Write, topic);
            // Once for a topic: a client may go on all day.
            if !permitted && let Some(session) = session {
                note_denial(Domain::Mqtt, settings.client(session), "publish to", topic);
            }
            permitted
        };
        self.connections.get_mut(&id).is_some_and(|connection| connection.decisions.recall(topic, decide))
    }

    /// Whether the client of a session may read a message that was found for it.
    pub(super) fn may_read(&self, number: u64, message: &Message) -> bool {
        self.settings.permit_session(self.sessions.get(&number), Access::Read, message.topic())
    }

    /// Whether a filter may be subscribed to: unless it is certain that nothing below it may be
    /// read. Each rule that is looked at costs one of `steps`.
    pub(super) fn may_subscribe(&self, number: u64, filter: &str, steps: &mut usize) -> bool {
        let (Some(rules), Some(session)) = (&self.settings.permissions, self.sessions.get(&number)) else {
            return true;
        };
        let client = self.settings.client(session);
        let permitted = rules.permits_some(Domain::Mqtt, client, Access::Read, filter, steps);
        if !permitted {
            note_denial(Domain::Mqtt, client, "subscribe to", filter);
        }
        permitted
    }

    /// The subscribers of a topic that may read it.
    pub(super) fn route(&mut self, topic: &str) -> Rc<Route> {
        let (settings, sessions) = (&self.settings, &self.sessions);
        let may_read = |number| settings.permit_session(sessions.get(&number), Access::Read, topic);
        let may_read: Option<&dyn Fn(u64) -> bool> = settings.permissions.as_ref().map(|_| &may_read as _);
        self.routes.find(topic, may_read)
    }
}
