//! Handshake, authentication and keep-alive of a connection. Every other command becomes an event
//! for the broker.
//!
//! ```text
//! Start --CONNECT, good token--> Ready --token expired--> Challenged --AUTH_RESPONSE--> Ready
//!   |                              |                          |
//!   +--anything else, 10 s---------+--timeout, 2 intervals----+--10 s--> the connection ends
//! ```
//! A challenged connection goes on until then: commands that the client sent before it saw the
//! challenge are still valid.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::auth::{Claims, TokenKeys};
use crate::protocol::{Clock, Entry, OUTPUT_LIMIT};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::{Machine, TimerTable};
use forebay_base::transmit::Transmit;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, FRAME_PADDING, Frame, encode_command};
use forebay_pulsar::{NO_REQUEST, PROTOCOL_VERSION, pb};

/// Time limit for CONNECT after the connection was accepted.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Frame size limit before CONNECT is accepted.
const FIRST_FRAME: usize = 64 << 10;
/// Time limit for the response to a challenge.
const CHALLENGE: Duration = Duration::from_secs(10);

const KEEP_ALIVE: usize = 0;
const EXPIRY: usize = 1;

/// Settings that all sessions of a broker share.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Largest message in bytes.
    pub max_message_size: usize,
    /// Interval of keep-alive checks.
    pub keep_alive: Duration,
    /// Verifies tokens; `None` admits every client.
    pub tokens: Option<Arc<TokenKeys>>,
}

#[derive(Debug)]
enum State {
    Start,
    Ready,
    Challenged,
}

/// The session of a connection, as the [module](self) describes.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    entry: Entry,
    clock: Clock,
    state: State,
    decoder: Decoder,
    transmit: Transmit,
    events: VecDeque<Frame>,
    timers: TimerTable<2>,
    ping_sent: bool,
    heard: bool,
    version: i32,
    flags: pb::FeatureFlags,
    claims: Option<Claims>,
    client: String,
}

impl Session {
    /// A session for a connection that was just accepted.
    pub fn new(config: SessionConfig, clock: Clock, now: Instant) -> Self {
        let mut timers = TimerTable::default();
        timers.set(KEEP_ALIVE, now + HANDSHAKE);
        Self {
            config,
            entry: Entry::default(),
            clock,
            state: State::Start,
            decoder: Decoder::new(FIRST_FRAME - FRAME_PADDING),
            transmit: Transmit::default(),
            events: VecDeque::new(),
            timers,
            ping_sent: false,
            heard: false,
            version: 0,
            flags: pb::FeatureFlags::default(),
            claims: None,
            client: String::new(),
        }
    }

    /// Takes note of how the connection came in.
    pub fn enter(&mut self, entry: Entry) {
        self.entry = entry;
    }

    /// Sets the calendar clock.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
        let expires_ms = self.claims.as_ref().and_then(|claims| claims.expires_ms);
        if let (Some(at), State::Ready) = (expires_ms, &self.state) {
            self.timers.set(EXPIRY, clock.at(clock.base(), at));
        }
    }

    /// Whether CONNECT has been accepted.
    pub fn connected(&self) -> bool {
        !matches!(self.state, State::Start)
    }

    /// The user that the client's certificate names, or the subject of its token.
    pub fn user(&self) -> Option<&str> {
        self.claims.as_ref().map(|claims| &*claims.subject)
    }

    /// Version string of the client.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Whether MESSAGE carries a checksum: from protocol version 6 on.
    pub fn wants_checksum(&self) -> bool {
        self.version >= 6
    }

    /// Whether MESSAGE carries the broker's entry metadata: from version 16 on, if the client
    /// supports it.
    pub fn wants_entry_metadata(&self) -> bool {
        self.version >= 16 && self.flags.supports_broker_entry_metadata()
    }

    /// Sends a command.
    pub fn send(&mut self, command: &Command) {
        self.transmit.append(|out| encode_command(command, out));
    }

    fn connect(&mut self, now: Instant, connect: pb::CommandConnect) -> Result<()> {
        if connect.proxy_version.is_some() && (self.config.tokens.is_some() || self.entry.user.is_some()) {
            return Err(self.refuse("Must not set proxyVersion without connecting as a ProxyRole"));
        }
        self.authenticate(now, connect.auth_method_name.as_deref(), connect.auth_data.as_deref())?;
        self.version = connect.protocol_version.unwrap_or(0).clamp(0, PROTOCOL_VERSION);
        self.flags = connect.feature_flags.unwrap_or_default();
        self.client = forebay_base::error::sanitise(&connect.client_version);
        self.state = State::Ready;
        self.decoder.set_max_message_size(self.config.max_message_size);
        self.timers.set(KEEP_ALIVE, now + self.config.keep_alive);
        self.send(&Command::Connected(pb::CommandConnected {
            server_version: format!("Forebay {}", env!("CARGO_PKG_VERSION")),
            protocol_version: Some(self.version),
            max_message_size: Some(self.config.max_message_size as i32),
            feature_flags: Some(pb::FeatureFlags {
                supports_get_partitioned_metadata_without_auto_creation: Some(true),
                supports_topic_watchers: Some(true),
                ..Default::default()
            }),
        }));
        Ok(())
    }

    fn authenticate(&mut self, now: Instant, method: Option<&str>, data: Option<&[u8]>) -> Result<()> {
        if let Some(user) = &self.entry.user {
            self.claims = Some(Claims { subject: user.to_string(), expires_ms: None });
            return Ok(());
        }
        let Some(tokens) = self.config.tokens.clone() else { return Ok(()) };
        // Clients without credentials name no method, or `none`.
        if self.entry.anonymous && matches!(method, None | Some("" | "none")) && self.claims.is_none() {
            return Ok(());
        }
        if method != Some("token") {
            return Err(self.refuse("Failed to authenticate: a token is required"));
        }
        let claims = match tokens.verify(data.unwrap_or_default(), self.clock.wall_ms(now)) {
            Ok(claims) => claims,
            // The reason is not sent: it would help an attacker.
            Err(_) => return Err(self.refuse("Failed to authenticate")),
        };
        if self.claims.as_ref().is_some_and(|before| before.subject != claims.subject) {
            return Err(self.refuse("The principal must not change"));
        }
        match claims.expires_ms {
            Some(at) => self.timers.set(EXPIRY, self.clock.at(now, at)),
            None => self.timers.stop(EXPIRY),
        }
        self.claims = Some(claims);
        Ok(())
    }

    fn refuse(&mut self, text: &str) -> Error {
        self.send(&Command::Error(pb::CommandError {
            request_id: NO_REQUEST,
            error: pb::ServerError::AuthenticationError as i32,
            message: text.to_owned(),
        }));
        Error::new(ErrorKind::Authentication, text)
    }

    fn handle_frame(&mut self, now: Instant, frame: Frame) -> Result<()> {
        match (&self.state, frame.command) {
            (State::Start, Command::Connect(connect)) => self.connect(now, connect),
            (State::Start, other) => Err(Error::protocol(format!("{} before CONNECT", other.name()))),
            (_, Command::Connect(_)) => Err(Error::protocol("a second CONNECT")),
            (_, Command::Ping) => {
                self.send(&Command::Pong);
                Ok(())
            }
            (_, Command::Pong) => Ok(()),
            (_, Command::AuthResponse(answer)) => {
                let answer =
                    answer.response.ok_or_else(|| Error::protocol("AUTH_RESPONSE without a response"))?;
                self.authenticate(now, answer.auth_method_name.as_deref(), answer.auth_data.as_deref())?;
                self.state = State::Ready;
                Ok(())
            }
            (_, command) => {
                self.events.push_back(Frame { command, payload: frame.payload });
                Ok(())
            }
        }
    }

    fn expired(&mut self, now: Instant) -> Result<()> {
        let at = self.claims.as_ref().and_then(|claims| claims.expires_ms);
        if at.is_some_and(|at| at > self.clock.wall_ms(now)) {
            // The expiry is beyond the reach of a timer: set it again.
            self.timers.set(EXPIRY, self.clock.at(now, at.unwrap_or_default()));
            return Ok(());
        }
        if matches!(self.state, State::Challenged) || !self.flags.supports_auth_refresh() {
            return Err(self.refuse("The token has expired"));
        }
        self.state = State::Challenged;
        self.timers.set(EXPIRY, now + CHALLENGE);
        self.send(&Command::AuthChallenge(pb::CommandAuthChallenge {
            server_version: None,
            challenge: Some(pb::AuthData {
                auth_method_name: Some("token".into()),
                auth_data: Some(Bytes::from_static(b"PulsarAuthRefresh")),
            }),
            protocol_version: Some(self.version),
        }));
        Ok(())
    }
}

impl Session {
    /// Bytes of output that wait and are this connection's alone.
    pub fn queued(&self) -> usize {
        self.transmit.copied()
    }
}

impl Machine for Session {
    type Event = Frame;

    /// Stops behind each command for the broker, whose answer may be far longer than the command.
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<()> {
        while self.events.is_empty()
            && self.transmit.len() <= OUTPUT_LIMIT
            && let Some(frame) = self.decoder.next(input)?
        {
            self.heard = true;
            self.handle_frame(now, frame)?;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<()> {
        if self.timers.expire(EXPIRY, now) {
            self.expired(now)?;
        }
        if self.timers.expire(KEEP_ALIVE, now) {
            if !self.connected() {
                return Err(Error::new(ErrorKind::Timeout, format!("no CONNECT within {HANDSHAKE:?}")));
            }
            if !std::mem::take(&mut self.heard) {
                if self.ping_sent {
                    return Err(Error::new(ErrorKind::Timeout, "no answer to PING"));
                }
                self.ping_sent = true;
                self.send(&Command::Ping);
            } else {
                self.ping_sent = false;
            }
            self.timers.set(KEEP_ALIVE, now + self.config.keep_alive);
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn poll_event(&mut self) -> Option<Frame> {
        self.events.pop_front()
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }
}
