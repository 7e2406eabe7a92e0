//! The broker as it is driven: input and output of connections, reports of the store, and timers.

use std::sync::Arc;

use super::deliver::OUTPUT_HIGH_WATER;
use super::*;
use crate::http::message::{Answer, Request};
use crate::permissions::Permissions;
use crate::protocol::{Entry, TIGHT};
use crate::stats::ClientStats;

impl Protocol for Broker {
    fn connect(&mut self, now: Instant, address: &str) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(id, Connection::new(now, logins::payer(address)));
        self.counters.sockets += 1;
        id
    }

    fn enter(&mut self, id: u64, entry: Entry) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.entry = entry;
        }
    }

    fn disconnect(&mut self, now: Instant, id: u64) {
        self.now = now;
        if let Some(connection) = self.connections.remove(&id) {
            self.unsent -= connection.unsent;
            let session = connection.session();
            self.resume_reading(connection.pacing);
            if let Some(session) = session {
                self.leave(session, id, true);
            }
            self.pump();
        }
    }

    fn handle_input(&mut self, now: Instant, id: u64, input: &mut BytesMut) -> Result<()> {
        self.now = now;
        let result = self.read(id, input);
        if let Err(violation) = &result {
            self.end_connection(id, violation.reason, &violation.message);
        }
        self.pump();
        Ok(result?)
    }

    fn handle_session_timeout(&mut self, now: Instant, id: u64) -> Result<()> {
        self.now = now;
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let expired = connection.has_expired(self.settings.clock, now);
        if !expired && connection.deadline().is_none_or(|at| at > now) {
            return Ok(());
        }
        if connection.state == State::LoggingIn {
            let _ = self.refuse(id, Reason::ServerBusy, "too many logins wait: try again later");
            self.pump();
            return Ok(());
        }
        if !expired
            && matches!(connection.state, State::Ready { .. })
            && (connection.paced_by.is_some() || !self.commits.may_read(id))
        {
            // It may have spoken: the broker does not read what it sends.
            connection.heard_at = now;
            return Ok(());
        }
        let (reason, text) = match (expired, connection.state) {
            (true, _) => (Reason::NotAuthorized, "the token has expired"),
            (false, State::Start) => (Reason::KeepAliveTimeout, "no CONNECT within 10 s"),
            (false, _) => (Reason::KeepAliveTimeout, "no packet within one and a half times the keep-alive"),
        };
        self.end_connection(id, reason, text);
        self.pump();
        Err(Error::new(ErrorKind::Timeout, text))
    }

    fn session_timeout(&self, id: u64) -> Option<Instant> {
        self.connections.get(&id)?.deadline()
    }

    fn held(&self, id: u64) -> usize {
        self.connections.get(&id).map_or(0, |connection| connection.transmit.copied() + connection.aliases())
    }

    fn set_tight(&mut self, tight: bool) {
        self.high_water = OUTPUT_HIGH_WATER / if tight { TIGHT } else { 1 };
    }

    fn may_read(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get(&id) else { return true };
        self.commits.may_read(id)
            && connection.state != State::LoggingIn
            && !connection.stepping
            && connection.paced_by.is_none()
            && connection.transmit.len() <= OUTPUT_LIMIT.max(self.settings.limits.max_output)
    }

    fn finished(&self, id: u64) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.state == State::Ended)
    }

    fn take_output(&mut self, now: Instant, id: u64, output: &mut Transmit) {
        self.now = now;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.opened {
            if connection.state != State::Ended {
                return;
            }
            // The session may not be stored, so CONNACK is not sent, and nothing goes before it
            // [MQTT-3.14.0-1].
            connection.transmit = Transmit::default();
        }
        self.counters.bytes_out += connection.transmit.len() as u64;
        std::mem::swap(&mut connection.transmit, output);
        self.unsent -= std::mem::take(&mut connection.unsent);
        connection.progress.0 += u64::from(!output.is_empty());
        // What is taken now has waited until everything before was written: not for long if the
        // subscriber keeps up.
        let quick = connection.taken_at.is_some_and(|at| now.saturating_duration_since(at) < GRACE);
        if !output.is_empty() {
            connection.taken_at = Some(now);
        }
        if output.len() < CAUGHT_UP || quick || self.settings.limits.slow_subscriber == SlowSubscriber::Wait {
            connection.stalled = false;
        }
        connection.pacing_until = None;
        let pacing = std::mem::take(&mut connection.pacing);
        let (starved, session) = (std::mem::take(&mut connection.starved), connection.session());
        self.resume_reading(pacing);
        if starved {
            self.due.extend(session);
            self.pump();
        }
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.works.pop_front()
    }

    fn handle_work(&mut self, now: Instant, id: u64, result: bool) {
        self.now = now;
        self.handle_verified(id, result);
        self.pump();
    }

    fn set_users(&mut self, now: Instant, file: &str) -> Result<usize> {
        self.now = now;
        let count = self.change_users(file);
        self.pump();
        count
    }

    fn poll_op(&mut self) -> Option<StoreOp> {
        self.close_batch();
        self.commits.poll_op()
    }

    fn set_permissions(&mut self, now: Instant, permissions: Arc<Permissions>) {
        self.now = now;
        self.change_permissions(permissions);
        self.pump();
    }

    fn poll_wake(&mut self) -> Option<u64> {
        self.wakes.pop_front()
    }

    fn handle_report(&mut self, now: Instant, report: Report) {
        self.now = now;
        self.commits.handle_report(report);
        while let Some(action) = self.commits.poll_action() {
            self.act(action);
        }
        self.wakes.extend(self.commits.take_resumed());
        self.pump();
    }

    fn set_clock(&mut self, clock: Clock) {
        self.settings.clock = clock;
        for (id, connection) in &mut self.connections {
            if connection.set_clock(clock, clock.base()) {
                self.wakes.push_back(*id);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let working = !self.searching.is_empty() || !self.stepping.is_empty();
        let at_once = working.then_some(self.now);
        earliest(earliest(Some(self.housekeeping_at), at_once), self.timers.first().map(|(at, _)| *at))
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.due.append(&mut self.searching);
        self.resume_stepping();
        while let Some((at, due)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, due));
            self.handle_timer(at, due);
        }
        if self.housekeeping_at <= now {
            self.housekeeping_at = now + HOUSEKEEPING;
            self.housekeeping();
        }
        self.pump();
    }

    fn shut_down(&mut self, now: Instant) {
        self.now = now;
        // These sessions end now. Stored sessions keep their wills, which are published after the
        // restart.
        let ending = self.sessions.iter().filter(|(_, s)| s.connection.is_some() && !s.durable);
        let ending: Vec<u64> = ending.map(|(number, _)| *number).collect();
        ending.into_iter().for_each(|number| self.publish_will(number));
        self.pump();
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id) {
                // The stored session stays connected, with its will, as after a kill.
                connection.end(Reason::ServerShuttingDown, "");
                self.wakes.push_back(id);
            }
        }
        // A message that the store still reports is not sent any more, and must not count as sent:
        // it stays.
        for session in self.sessions.values_mut() {
            session.connection = None;
        }
        self.note_run();
    }

    fn used_bytes(&self) -> u64 {
        if self.settings.stored {
            self.commits.used()
        } else {
            self.commits.used_by_others() + self.own_bytes()
        }
    }

    fn issued(&self) -> u64 {
        self.commits.issued()
    }

    fn written(&self) -> u64 {
        self.commits.written()
    }

    fn failure(&self) -> Option<&Error> {
        self.commits.failure()
    }

    fn stats(&self) -> ProtocolStats {
        self.stats()
    }

    fn client(&self, id: u64) -> ClientStats {
        let session = self.connections.get(&id).and_then(Connection::session);
        let Some(session) = session.and_then(|number| self.sessions.get(&number)) else {
            return ClientStats::default();
        };
        ClientStats {
            admitted: true,
            user: self.settings.client(session).user.map(str::to_owned),
            name: session.client_id.to_string(),
            consumers: session.subscriptions.len(),
            ..ClientStats::default()
        }
    }

    fn dismiss(&mut self, now: Instant, id: u64) {
        self.now = now;
        self.end_connection(id, Reason::AdministrativeAction, "an operator has ended the connection");
        self.pump();
    }

    fn farewell(&self, id: u64) -> Option<&str> {
        self.connections.get(&id)?.farewell()
    }

    fn handle_http(&mut self, now: Instant, request: &Request) -> Option<Answer> {
        self.answer_http(now, request)
    }
}
