//! One connection: the socket's protocol in front of the session. `reconnect` opens it, and the
//! next one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use crate::journal::{Attempts, Line};
use crate::logger;
use crate::mqtt::birth::BIRTH;
use crate::mqtt::options::Authenticator;
use crate::mqtt::reconnect::Connector;
use crate::mqtt::shared::{HOLD_UP, Link, Server, Shared};
use crate::wrong_port;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::first_bytes::PeerProtocol;
use forebay_base::machine::Machine;
use forebay_mqtt::connection::{Connection, Event};
use forebay_mqtt::packet::{Connect, Disconnect};
use forebay_mqtt::session;
use forebay_mqtt::{Packet, Property, Reason, Version};
use forebay_net::driver::drive;
use forebay_net::session::{Host, Session, WRITE_HIGH_WATER};
use tracing::warn;

/// Most bytes that the session adds to the socket's queue in one turn.
const TURN: usize = 256 << 10;
/// Multiple of the receive buffer up to which the socket is read while the session waits for
/// answers, which arrive on the same socket.
const OVERDRAFT: usize = 4;

/// Number of unacknowledged messages of QoS 1 and 2, or the receive maximum if that is larger,
/// above which the socket is only read for answers. A server that exceeds it ignores the receive
/// maximum, or has none (MQTT 3).
const UNACKNOWLEDGED: u16 = 1 << 15;

/// Host of the driver: the protocol, with the session behind it.
#[derive(Debug)]
pub(super) struct Attached {
    protocol: Connection,
    shared: Arc<Shared>,
    /// Events of the session that have not been dispatched.
    events: Vec<session::Event>,
    /// Since when the broker has accepted the connection.
    connected: watch::Sender<Option<Instant>>,
    line: Line,
    /// Authentication steps that the server requests.
    challenges: mpsc::Sender<Option<Bytes>>,
    /// Set when the session finds that the broker violated the protocol.
    broken: Option<Error>,
    closing: bool,
    /// Whether an answer of the server was outstanding in the last turn.
    awaits_answers: bool,
    /// Whether one of them was for a subscription.
    awaits_subscriptions: bool,
    /// Whether the application has to acknowledge messages before more are read.
    full: bool,
    /// When to look whether a consumer holds up the others.
    look_at: Option<Instant>,
}

impl Attached {
    fn disconnect(&mut self, now: Instant) -> impl Future<Output = ()> + use<> {
        let mut disconnect = Disconnect::new(Reason::Success);
        let options = &self.shared.options;
        let ends = !options.keep_session && self.shared.outbox.is_none();
        if self.protocol.version() == Version::V5 && options.session_expiry > 0 && ends {
            disconnect.properties.push(Property::SessionExpiryInterval(0));
        }
        self.protocol.disconnect(now, disconnect);
        self.closing = true;
        let mut connected = self.connected.subscribe();
        async move {
            // The sender is dropped with the connection.
            while connected.changed().await.is_ok() {}
        }
    }

    fn connected(&mut self, ack: &forebay_mqtt::packet::ConnAck) {
        let shared = &self.shared;
        *shared.trouble.lock() = None;
        let assigned = ack.properties.assigned_client_identifier();
        {
            let mut server = shared.server.lock();
            let before = server.take().map(|server| server.client_id);
            *server = Some(Server {
                client_id: assigned
                    .map(ToString::to_string)
                    .or(before)
                    .unwrap_or_else(|| shared.options.client_id.clone()),
                session_present: ack.session_present,
                limits: self.protocol.limits().clone(),
                response_information: ack.properties.response_information().map(ToString::to_string),
            });
        }
        let mut session = shared.session();
        session.attach(ack.session_present);
        self.events.extend(std::iter::from_fn(|| session.poll_event()));
        drop(session);
        if shared.options.birth.is_some() {
            // One that was lost with its session has its outcome now.
            let mut events = std::mem::take(&mut self.events);
            shared.dispatch(&mut events);
            if let Some(birth) = shared.birth.due(&shared.options, self.protocol.version()) {
                shared.session().producer().push_first(BIRTH, birth);
            }
        }
        shared.carry_out(shared.unclaimed.attached(clock::now(), ack.session_present));
        let consumers: Vec<_> = shared.routes.lock().consumers().cloned().collect();
        consumers.iter().for_each(|consumer| consumer.attached(ack.session_present));
        self.line.up(Some(ack.session_present));
        self.connected.send_replace(Some(clock::now()));
    }
}

impl Host for Attached {
    type Machine = Connection;

    fn machine(&mut self) -> &mut Connection {
        &mut self.protocol
    }

    fn first_bytes(&mut self, first: &[u8]) -> Result<()> {
        wrong_port::check(PeerProtocol::Mqtt, self.line.address(), first)
    }

    fn handle_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Connected(ack) => self.connected(&ack),
            Event::Auth(auth) => {
                let data = auth.properties.authentication_data().cloned();
                if auth.reason == Reason::ContinueAuthentication && self.challenges.try_send(data).is_err() {
                    self.broken =
                        Some(Error::protocol("the broker sent AUTH before the last one was answered"));
                }
            }
            Event::Packet(packet) => self.packet(now, packet),
        }
    }

    fn turn(&mut self, now: Instant, unwritten: usize) -> Option<Instant> {
        // Cleared before looking, so that a push after the look wakes the driver again.
        self.shared.notified.store(false, Ordering::Release);
        self.protocol.note_unwritten(unwritten);
        let mut more = false;
        let mut session = self.shared.session();
        if self.protocol.is_ready() {
            let waiting = (unwritten + self.protocol.transmit().len()) as u64;
            session.handle_written(self.protocol.queued() - waiting);
            if unwritten < WRITE_HIGH_WATER {
                more = session.poll_transmit(now, &mut self.protocol, TURN);
            }
            if let Some(outbox) = &self.shared.outbox {
                outbox.record(&mut session);
            }
            // One at most, so that they are never collected: brokers take few publications at a
            // time (Mosquitto 20), and would have nothing to do meanwhile.
            self.shared.awaited.set(usize::from(session.awaits_acknowledgements()));
            self.events.extend(std::iter::from_fn(|| session.poll_event()));
        }
        // Mosquitto 2.0 exceeds our receive maximum behind a backlog. What it has sent beyond stays
        // in the socket: more than a session can hold would end the connection, and all of it would
        // come again.
        let (unacknowledged, room) = (session.unacknowledged(), session.room());
        let held_up = session.holds_up();
        self.awaits_answers = session.awaits_answers();
        self.awaits_subscriptions = session.awaits_subscriptions();
        drop(session);
        self.protocol.set_room(room);
        let limit = self.shared.options.receive_maximum.max(UNACKNOWLEDGED);
        let holds = self.protocol.is_holding();
        let stuck = holds && room == 0 || unacknowledged > usize::from(limit) && !self.awaits_answers;
        // Acknowledgements wake the driver.
        self.full = holds || stuck;
        // There is room for what was held.
        more |= holds && room > 0;
        if stuck && unacknowledged > 0 && !self.shared.was_full.swap(true, Ordering::Relaxed) {
            let maximum = self.shared.options.receive_maximum;
            warn!(
                target: logger::MQTT_CONNECTION,
                "{unacknowledged} messages are not acknowledged, and nothing more is read until the \
                 application acknowledges some, answers to its own messages included: acknowledge sooner, or \
                 raise the option receive_maximum, which is {maximum}, up to 65535",
            );
        }
        if !self.events.is_empty() {
            let mut events = std::mem::take(&mut self.events);
            self.shared.dispatch(&mut events);
            self.events = events;
        }
        let look_again = held_up.map(|(token, since)| {
            let look_at = self.look_at.get_or_insert(since + HOLD_UP);
            if now >= *look_at {
                self.shared.look_at_hold_up(now, token, since);
                *look_at = now + HOLD_UP;
            }
            *look_at
        });
        if !self.reads() {
            self.protocol.pause_reading(now);
        }
        if more { Some(now) } else { look_again }
    }

    /// Reading stops while messages wait to be taken. The server's answers arrive on the same
    /// socket, so it goes on for longer while the session waits for some. SUBACK comes behind what
    /// the server has kept for the session, which cannot be taken before it: a whole in-flight
    /// window is read for that, however large its messages are.
    fn reads(&self) -> bool {
        if self.full || self.protocol.is_behind_with_answers() {
            return false;
        }
        let options = &self.shared.options;
        let (unread, room) = (self.shared.unread.load(Ordering::Acquire), options.receive_buffer);
        if unread < room || unread < room * OVERDRAFT && self.awaits_answers {
            return true;
        }
        let window = usize::from(options.receive_maximum);
        if self.awaits_subscriptions && self.shared.unread_messages() <= window {
            return true;
        }
        self.shared.paused.store(true, Ordering::Release);
        // A take between the look and the flag woke no driver: look again.
        self.shared.unread.load(Ordering::Acquire) < room / 2
    }

    fn finished(&self) -> bool {
        self.closing || self.broken.is_some()
    }
}

impl Attached {
    fn packet(&mut self, now: Instant, packet: Packet) {
        let mut session = self.shared.session();
        let handled = session.handle_packet(now, packet, &mut self.protocol);
        self.events.extend(std::iter::from_fn(|| session.poll_event()));
        drop(session);
        if let Err(violation) = handled {
            self.protocol.end_with_violation(now, &violation);
            self.broken.get_or_insert(violation.into());
        }
    }
}

impl Link for Session<Attached> {
    fn wake(&self) {
        Self::wake(self);
    }

    fn write(&self) {
        Self::write(self);
    }

    fn disconnect(&self, now: Instant) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.lock().disconnect(now))
    }

    fn authenticate(&self, now: Instant, data: Bytes) -> Result<()> {
        self.lock().protocol.authenticate(now, data, true)
    }
}

/// Starts a new authentication on the current connection.
pub(super) async fn reauthenticate(shared: &Shared) -> Result<()> {
    let Some((_, authenticator)) = &shared.options.authentication else {
        return Err(Error::new(ErrorKind::InvalidArgument, "the client has no authentication method"));
    };
    let data = step(authenticator, None, shared.options.connect_timeout).await?;
    let link = shared.link.lock().clone();
    let link = link.ok_or_else(|| Error::new(ErrorKind::Disconnected, "there is no connection now"))?;
    link.authenticate(clock::now(), data)?;
    link.wake();
    Ok(())
}

/// One step of extended authentication.
async fn step(authenticator: &Authenticator, data: Option<Bytes>, limit: Duration) -> Result<Bytes> {
    authenticator.call("authenticator", data, limit).await.map(Bytes::from)
}

/// The CONNECT packet of the next connection.
async fn connect_packet(shared: &Shared, version: Version, first: bool) -> Result<Connect> {
    let options = &shared.options;
    // An identifier that the server assigned names the session from then on.
    let known = shared.server.lock().as_ref().map(|server| server.client_id.clone());
    let mut connect = Connect::new(version, known.unwrap_or_else(|| options.client_id.clone()));
    let v5 = version == Version::V5;
    // Without an expiry, and with 3.x, a clean session ends with its connection.
    connect.clean_start = options.clean_start && (first || !v5 || options.session_expiry == 0);
    // With an outbox, a clean start would publish twice what is in flight.
    connect.clean_start &= shared.outbox.is_none();
    connect.keep_alive = options.keep_alive;
    connect.will.clone_from(&options.will);
    connect.user_name = options.username.as_deref().map(Into::into);
    connect.password = match &options.password {
        None => None,
        Some(password) => Some(Bytes::from(password.get_bytes("password", options.connect_timeout).await?)),
    };
    if !v5 {
        return Ok(connect);
    }
    let properties = &mut connect.properties;
    if options.session_expiry > 0 {
        properties.push(Property::SessionExpiryInterval(options.session_expiry));
    }
    properties.push(Property::ReceiveMaximum(options.receive_maximum.max(1)));
    properties.push(Property::MaximumPacketSize(u32::try_from(options.max_packet_size).unwrap_or(u32::MAX)));
    if options.topic_alias_maximum > 0 {
        properties.push(Property::TopicAliasMaximum(options.topic_alias_maximum));
    }
    for property in options.properties.iter() {
        properties.push(property.clone());
    }
    if let Some((method, authenticator)) = &options.authentication {
        properties.push(Property::AuthenticationMethod(method.as_str().into()));
        let data = step(authenticator, None, shared.options.connect_timeout).await?;
        if !data.is_empty() {
            properties.push(Property::AuthenticationData(data));
        }
    }
    Ok(connect)
}

/// The end of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// No CONNECT was sent, or it was refused.
    Nothing,
    /// CONNECT has no answer. The broker may get it later.
    Unanswered,
    /// The broker accepted it, and the connection lasted for so long.
    Up(Duration),
}

/// Runs one connection. Returns how far it came, and why it ended.
pub(super) async fn run(
    shared: &Arc<Shared>,
    connector: &mut Connector,
    ready: &mut Option<oneshot::Sender<Result<()>>>,
    tries: &mut Attempts,
) -> (Reached, Error) {
    let version = connector.version();
    shared.set_version(version);
    let mut shown = None;
    let opened = async {
        let stream = connector.open(shared, tries).await?;
        let connect = connect_packet(shared, version, ready.is_some()).await?;
        shown.clone_from(&connect.password);
        let protocol = Connection::new(clock::now(), connect, shared.options.connect_timeout)?;
        Ok((stream, protocol))
    };
    let (stream, protocol) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return (Reached::Nothing, error),
    };
    let (connected, mut is_connected) = watch::channel(None);
    let (challenges, mut challenged) = mpsc::channel(1);
    let session = Arc::new(Session::new(
        Attached {
            protocol,
            shared: Arc::clone(shared),
            events: Vec::new(),
            connected,
            line: Line::new(&shared.journal, &connector.address, *tries),
            challenges,
            broken: None,
            closing: false,
            awaits_answers: false,
            awaits_subscriptions: false,
            full: false,
            look_at: None,
        },
        stream.writer(),
    ));
    *shared.link.lock() = Some(Arc::clone(&session) as _);
    let result = {
        let drive = drive(&*session, stream);
        tokio::pin!(drive);
        loop {
            tokio::select! {
                biased;
                result = &mut drive => break result,
                Ok(()) = is_connected.changed(), if ready.is_some() => {
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(Ok(()));
                    }
                }
                Some(data) = challenged.recv() => answer(shared, &session, data).await,
            }
        }
    };
    let (reached, error) = ended(shared, &session, result);
    if matches!(error.kind(), ErrorKind::Authentication | ErrorKind::Authorization)
        && let (Some(password), Some(shown)) = (&shared.options.password, &shown)
    {
        password.refused("password", shown, shared.options.connect_timeout).await;
    }
    (reached, error)
}

/// Answers a step of the authentication that the broker requests.
async fn answer(shared: &Shared, session: &Session<Attached>, data: Option<Bytes>) {
    let answered = match &shared.options.authentication {
        Some((_, authenticator)) => step(authenticator, data, shared.options.connect_timeout).await,
        None => Err(Error::protocol("the broker sent AUTH, but the client has no authentication method")),
    };
    let mut host = session.lock();
    match answered.and_then(|data| host.protocol.authenticate(clock::now(), data, false)) {
        Ok(()) => {}
        Err(error) => host.broken = Some(error),
    }
    drop(host);
    session.wake();
}

/// Detaches the client's session from a connection that has ended, and dispatches its last events.
/// Returns how far the connection came, and why it ended.
fn ended(shared: &Shared, session: &Session<Attached>, result: Result<()>) -> (Reached, Error) {
    // The link is dropped after its lock.
    let link = shared.link.lock().take();
    drop(link);
    let mut host = session.lock();
    let error = match (result, host.broken.take()) {
        (_, Some(error)) | (Err(error), None) => error,
        (Ok(()), None) => Error::new(ErrorKind::Closed, "the client was closed"),
    };
    host.line.down(&error);
    let connected = *host.connected.borrow();
    let error = match connected {
        Some(_) => error,
        None => wrong_port::unanswered(PeerProtocol::Mqtt, host.line.address(), error),
    };
    let reached = match (connected, error.kind()) {
        (Some(since), _) => Reached::Up(clock::now().saturating_duration_since(since)),
        (None, ErrorKind::Disconnected | ErrorKind::Timeout) => Reached::Unanswered,
        (None, _) => Reached::Nothing,
    };
    let mut events = std::mem::take(&mut host.events);
    drop(host);
    {
        let mut machine = shared.session();
        if machine.is_attached() {
            machine.detach();
        }
        events.extend(std::iter::from_fn(|| machine.poll_event()));
    }
    shared.dispatch(&mut events);
    shared.settled.notify_waiters();
    (reached, error)
}
