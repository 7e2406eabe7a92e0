//! The client side of a socket: handshake, keep-alive, authentication challenges, and the
//! correlation of responses with requests.
//!
//! ```text
//!        CONNECT queued by new()
//!                    │
//!             ┌──────▼──────┐ AUTH_CHALLENGE → event, AUTH_RESPONSE
//!             │ Handshaking │◄──────────┐
//!             └──────┬──────┴───────────┘
//!          CONNECTED │        │ ERROR, anything else, deadline
//!             ┌──────▼──────┐ │
//!             │    Ready    │ │
//!             └──────┬──────┘ │
//!   keep-alive missed│        │
//!      broken frame  │        │
//!             ┌──────▼────────▼┐
//!             │ error: the driver closes the socket │
//!             └────────────────┘
//! ```
//! Each request ends in exactly one [`Event::Response`]: with its response, with a timeout, or,
//! through [`Connection::fail_requests`], with the error that ended the connection.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::command::Command;
use crate::frame::{DEFAULT_MAX_MESSAGE_SIZE, Decoder, Payload, encode_command};
use crate::{NO_REQUEST, PROTOCOL_VERSION, hot, pb, server_error};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::{Machine, TimerTable, earliest};
use forebay_base::random::HashMap;
use forebay_base::transmit::Transmit;

const HANDSHAKE: usize = 0;
const KEEP_ALIVE: usize = 1;

/// Payload of a challenge that requests fresh credentials (PIP-30, PIP-292).
const REFRESH: &[u8] = b"PulsarAuthRefresh";

/// Credentials in the form in which they are sent.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Authentication method: `token`, `tls`, `basic` or `none`.
    pub method: String,
    /// The secret, in the form that the method defines.
    pub data: Bytes,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("method", &self.method).field("data", &"***").finish()
    }
}

/// Configuration of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name and version of this client, shown in the broker's logs.
    pub client_version: String,
    /// Credentials. `None` sends the method `none`.
    pub credentials: Option<Credentials>,
    /// `host:port` of the target broker when connecting through a proxy.
    pub proxy_to: Option<String>,
    /// Interval between two PINGs. A broker that stays silent for two intervals is considered dead.
    pub keep_alive: Duration,
    /// Deadline for the broker's response to CONNECT.
    pub handshake_timeout: Duration,
    /// Deadline for the response to any other request.
    pub operation_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            client_version: concat!("Forebay-", env!("CARGO_PKG_VERSION")).into(),
            credentials: None,
            proxy_to: None,
            keep_alive: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(30),
        }
    }
}

/// Properties of the broker, as announced in CONNECTED.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerInfo {
    /// Name and version of the broker.
    pub version: String,
    /// Protocol version in use: the lower of the broker's and ours.
    pub protocol_version: i32,
    /// Largest message that the broker accepts, in bytes.
    pub max_message_size: usize,
    /// Optional features that the broker supports.
    pub features: pb::FeatureFlags,
}

/// Events of a connection.
#[derive(Debug)]
pub enum Event {
    /// The handshake is complete.
    Ready(ServerInfo),
    /// A request has ended.
    Response {
        /// Id returned by [`Connection::request`].
        request_id: u64,
        /// The response, the broker's error, or a timeout.
        result: Result<Command>,
    },
    /// The broker has queued a PRODUCER request behind another exclusive producer: its response has
    /// no deadline.
    Queued {
        /// Id returned by [`Connection::request`].
        request_id: u64,
    },
    /// A command addressed to a producer or consumer.
    Command(Command),
    /// An entry delivered to a consumer.
    Entry {
        /// The MESSAGE command.
        delivery: hot::Delivery,
        /// The entry itself.
        payload: Payload,
    },
    /// The broker requests credentials: respond with [`Connection::authenticate`].
    Challenge {
        /// Whether the broker requests fresh credentials of the same method.
        refresh: bool,
    },
}

#[derive(Debug)]
enum State {
    Handshaking,
    Ready,
}

/// A connection to a broker, without its socket.
#[derive(Debug)]
pub struct Connection {
    state: State,
    config: Config,
    decoder: Decoder,
    transmit: Transmit,
    events: VecDeque<Event>,
    timers: TimerTable<2>,
    next_request: u64,
    /// Open requests and their deadlines; `None` for a queued producer, which has no deadline.
    requests: HashMap<u64, Option<Instant>>,
    /// Deadlines in request order, which is also time order because all requests have the same
    /// timeout.
    deadlines: VecDeque<(Instant, u64)>,
    /// Whether a PING is unanswered. Any byte received clears it.
    ping_pending: bool,
    /// Number of bytes received of an incomplete frame.
    unread: usize,
    /// Whether the broker's PING is to be answered.
    pong_due: bool,
}

impl Connection {
    /// Creates a connection and queues its CONNECT.
    pub fn new(config: Config, now: Instant) -> Self {
        let credentials = config.credentials.clone().unwrap_or_default();
        let method = if credentials.method.is_empty() { "none".to_owned() } else { credentials.method };
        let connect = Command::Connect(pb::CommandConnect {
            client_version: config.client_version.clone(),
            auth_method_name: Some(method),
            auth_data: Some(credentials.data),
            protocol_version: Some(PROTOCOL_VERSION),
            proxy_to_broker_url: config.proxy_to.clone(),
            feature_flags: Some(pb::FeatureFlags {
                supports_auth_refresh: Some(true),
                supports_broker_entry_metadata: Some(true),
                supports_partial_producer: Some(true),
                supports_get_partitioned_metadata_without_auto_creation: Some(true),
                ..Default::default()
            }),
            ..Default::default()
        });
        let mut connection = Self {
            state: State::Handshaking,
            decoder: Decoder::new(DEFAULT_MAX_MESSAGE_SIZE),
            transmit: Transmit::default(),
            events: VecDeque::new(),
            timers: TimerTable::default(),
            next_request: 0,
            requests: HashMap::default(),
            deadlines: VecDeque::new(),
            ping_pending: false,
            unread: 0,
            pong_due: false,
            config,
        };
        connection.timers.set(HANDSHAKE, now + connection.config.handshake_timeout);
        connection.send(&connect);
        connection
    }

    /// Queues a command that has no response.
    pub fn send(&mut self, command: &Command) {
        self.transmit.append(|out| encode_command(command, out));
    }

    /// Answers the broker's PINGs since the last call by one PONG. To be called when the bytes that
    /// were taken are written: a broker that pings and reads nothing gets no more of them.
    pub fn answer_pings(&mut self) {
        if std::mem::take(&mut self.pong_due) {
            self.send(&Command::Pong);
        }
    }

    /// Queues the request that `command` builds from a new request id, and returns that id.
    pub fn request(&mut self, now: Instant, command: impl FnOnce(u64) -> Command) -> u64 {
        let id = self.next_request;
        self.next_request += 1;
        let deadline = now + self.config.operation_timeout;
        self.requests.insert(id, Some(deadline));
        self.deadlines.push_back((deadline, id));
        let command = command(id);
        self.send(&command);
        id
    }

    /// Drops an open request that is no longer awaited; a late response is ignored.
    pub fn abandon(&mut self, request_id: u64) {
        self.requests.remove(&request_id);
    }

    /// Responds to a challenge.
    pub fn authenticate(&mut self, credentials: Credentials) {
        self.send(&Command::AuthResponse(pb::CommandAuthResponse {
            client_version: Some(self.config.client_version.clone()),
            response: Some(pb::AuthData {
                auth_method_name: Some(credentials.method),
                auth_data: Some(credentials.data),
            }),
            protocol_version: Some(PROTOCOL_VERSION),
        }));
    }

    /// Fails all open requests with `error`. Called once, when the connection ends.
    pub fn fail_requests(&mut self, error: &Error) {
        let mut open: Vec<u64> = self.requests.drain().map(|(id, _)| id).collect();
        open.sort_unstable();
        for request_id in open {
            self.events.push_back(Event::Response { request_id, result: Err(error.clone()) });
        }
        self.deadlines.clear();
    }

    fn handshake(&mut self, now: Instant, command: Command) -> Result<()> {
        match command {
            Command::Connected(connected) => {
                let max_message_size = match connected.max_message_size {
                    Some(size) if size > 0 => size as usize,
                    _ => DEFAULT_MAX_MESSAGE_SIZE,
                };
                self.decoder.set_max_message_size(max_message_size);
                self.timers.stop(HANDSHAKE);
                self.timers.set(KEEP_ALIVE, now + self.config.keep_alive);
                self.state = State::Ready;
                self.events.push_back(Event::Ready(ServerInfo {
                    protocol_version: connected.protocol_version(),
                    version: connected.server_version,
                    max_message_size,
                    features: connected.feature_flags.unwrap_or_default(),
                }));
                Ok(())
            }
            Command::AuthChallenge(challenge) => {
                self.challenge(&challenge);
                Ok(())
            }
            Command::Error(error) => Err(server_error(error.error, &error.message)),
            other => Err(Error::protocol(format!("the broker sent {} before CONNECTED", other.name()))),
        }
    }

    fn challenge(&mut self, challenge: &pb::CommandAuthChallenge) {
        let data = challenge.challenge.as_ref().and_then(|c| c.auth_data.as_deref());
        self.events.push_back(Event::Challenge { refresh: data == Some(REFRESH) });
    }

    fn answer(&mut self, request_id: u64, result: Result<Command>) {
        // A response to an abandoned or timed-out request is late, not a protocol error.
        if self.requests.remove(&request_id).is_some() {
            self.events.push_back(Event::Response { request_id, result });
        }
    }

    fn dispatch(&mut self, command: Command, payload: Option<Payload>) -> Result<()> {
        use Command as C;
        match command {
            C::Ping => self.pong_due = true,
            C::Pong | C::Unknown(_) => {}
            C::AuthChallenge(challenge) => self.challenge(&challenge),
            C::Message(delivery) => {
                let payload =
                    payload.ok_or_else(|| Error::protocol("the broker sent MESSAGE without an entry"))?;
                self.events.push_back(Event::Entry { delivery, payload });
            }
            C::Error(error) if error.request_id == NO_REQUEST => {
                return Err(server_error(error.error, &error.message));
            }
            C::Error(error) => self.answer(error.request_id, Err(server_error(error.error, &error.message))),
            C::ProducerSuccess(success) if !success.producer_ready() => {
                if let Some(deadline) = self.requests.get_mut(&success.request_id) {
                    *deadline = None;
                    self.events.push_back(Event::Queued { request_id: success.request_id });
                }
            }
            C::SendReceipt(_)
            | C::SendError(_)
            | C::CloseProducer(_)
            | C::CloseConsumer(_)
            | C::ReachedEndOfTopic(_)
            | C::ActiveConsumerChange(_)
            | C::WatchTopicUpdate(_)
            | C::TopicMigrated(_) => self.events.push_back(Event::Command(command)),
            C::Success(_)
            | C::ProducerSuccess(_)
            | C::PartitionedMetadataResponse(_)
            | C::LookupResponse(_)
            | C::ConsumerStatsResponse(_)
            | C::GetLastMessageIdResponse(_)
            | C::GetTopicsOfNamespaceResponse(_)
            | C::GetSchemaResponse(_)
            | C::GetOrCreateSchemaResponse(_)
            | C::AckResponse(_)
            | C::NewTxnResponse(_)
            | C::AddPartitionToTxnResponse(_)
            | C::AddSubscriptionToTxnResponse(_)
            | C::EndTxnResponse(_)
            | C::TcClientConnectResponse(_)
            | C::WatchTopicListSuccess(_) => {
                if let Some(request_id) = command.request_id() {
                    let result = response(command);
                    self.answer(request_id, result);
                }
            }
            // Commands that only a client sends, and responses to requests that this client never
            // makes.
            other => {
                return Err(Error::protocol(format!(
                    "the broker sent {}, which is a client's command or answers no request of ours",
                    other.name()
                )));
            }
        }
        Ok(())
    }
}

/// Turns a failure reported inside a response into an error.
fn response(command: Command) -> Result<Command> {
    use Command as C;
    let failure = match &command {
        C::PartitionedMetadataResponse(r)
            if r.response() == pb::command_partitioned_topic_metadata_response::LookupType::Failed =>
        {
            Some((r.error.unwrap_or_default(), r.message.as_deref()))
        }
        C::LookupResponse(r) if r.response() == pb::command_lookup_topic_response::LookupType::Failed => {
            Some((r.error.unwrap_or_default(), r.message.as_deref()))
        }
        C::ConsumerStatsResponse(r) => r.error_code.map(|code| (code, r.error_message.as_deref())),
        C::GetSchemaResponse(r) => r.error_code.map(|code| (code, r.error_message.as_deref())),
        C::GetOrCreateSchemaResponse(r) => r.error_code.map(|code| (code, r.error_message.as_deref())),
        C::AckResponse(r) => r.error.map(|code| (code, r.message.as_deref())),
        C::NewTxnResponse(r) => r.error.map(|code| (code, r.message.as_deref())),
        C::AddPartitionToTxnResponse(r) => r.error.map(|code| (code, r.message.as_deref())),
        C::AddSubscriptionToTxnResponse(r) => r.error.map(|code| (code, r.message.as_deref())),
        C::EndTxnResponse(r) => r.error.map(|code| (code, r.message.as_deref())),
        C::TcClientConnectResponse(r) => r.error.map(|code| (code, r.message.as_deref())),
        _ => None,
    };
    match failure {
        Some((code, text)) => Err(server_error(code, text.unwrap_or_default())),
        None => Ok(command),
    }
}

impl Machine for Connection {
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<()> {
        // Any byte shows that the broker is alive: a large frame may take longer than the
        // keep-alive.
        self.ping_pending &= input.len() <= self.unread;
        while let Some(frame) = self.decoder.next(input)? {
            match self.state {
                State::Handshaking => self.handshake(now, frame.command)?,
                State::Ready => self.dispatch(frame.command, frame.payload)?,
            }
        }
        self.unread = input.len();
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<()> {
        if self.timers.expire(HANDSHAKE, now) {
            return Err(Error::new(
                ErrorKind::Timeout,
                format!("the broker did not respond to CONNECT within {:?}", self.config.handshake_timeout),
            ));
        }
        if self.timers.expire(KEEP_ALIVE, now) {
            if self.ping_pending {
                return Err(Error::new(
                    ErrorKind::Disconnected,
                    format!(
                        "the broker was silent for two keep-alive intervals of {:?}",
                        self.config.keep_alive
                    ),
                ));
            }
            self.ping_pending = true;
            self.send(&Command::Ping);
            self.timers.set(KEEP_ALIVE, now + self.config.keep_alive);
        }
        while let Some(&(deadline, id)) = self.deadlines.front() {
            let open = self.requests.get(&id).copied().flatten().is_some();
            if open && deadline > now {
                break;
            }
            self.deadlines.pop_front();
            if open {
                let error = Error::new(
                    ErrorKind::Timeout,
                    format!(
                        "the broker did not respond to a request within {:?}",
                        self.config.operation_timeout
                    ),
                );
                self.answer(id, Err(error));
            }
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.timers.next(), self.deadlines.front().map(|(deadline, _)| *deadline))
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;

    fn connected() -> Command {
        Command::Connected(pb::CommandConnected {
            server_version: "test".into(),
            protocol_version: Some(21),
            max_message_size: Some(1000),
            feature_flags: None,
        })
    }

    fn feed(connection: &mut Connection, now: Instant, command: Command) -> Result<()> {
        let mut input = BytesMut::from(&Frame::simple(command).to_bytes()[..]);
        connection.handle_input(now, &mut input)
    }

    fn ready(now: Instant) -> Connection {
        let mut connection = Connection::new(Config::default(), now);
        feed(&mut connection, now, connected()).unwrap();
        assert!(matches!(connection.poll_event(), Some(Event::Ready(info)) if info.max_message_size == 1000));
        connection.transmit.clear();
        connection
    }

    fn sent(connection: &mut Connection) -> Vec<Command> {
        let mut bytes = connection.transmit.take();
        let mut decoder = Decoder::new(DEFAULT_MAX_MESSAGE_SIZE);
        std::iter::from_fn(|| decoder.next(&mut bytes).unwrap()).map(|frame| frame.command).collect()
    }

    #[test]
    fn the_first_command_is_connect_and_carries_no_proxy_version() {
        let mut connection = Connection::new(Config::default(), Instant::now());
        let [Command::Connect(connect)] = &sent(&mut connection)[..] else { panic!("one CONNECT") };
        assert_eq!(connect.auth_method_name(), "none");
        assert!(connect.proxy_version.is_none());
    }

    #[test]
    fn anything_but_connected_fails_the_handshake() {
        let now = Instant::now();
        let mut connection = Connection::new(Config::default(), now);
        assert_eq!(feed(&mut connection, now, Command::Ping).unwrap_err().kind(), ErrorKind::Protocol);
        let mut connection = Connection::new(Config::default(), now);
        let refused = Command::Error(pb::CommandError {
            request_id: NO_REQUEST,
            error: pb::ServerError::AuthenticationError as i32,
            message: "Failed to authenticate".into(),
        });
        assert_eq!(feed(&mut connection, now, refused).unwrap_err().kind(), ErrorKind::Authentication);
    }

    #[test]
    fn a_silent_handshake_ends_at_its_deadline() {
        let now = Instant::now();
        let mut connection = Connection::new(Config::default(), now);
        assert_eq!(connection.poll_timeout(), Some(now + Duration::from_secs(10)));
        let error = connection.handle_timeout(now + Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }

    #[test]
    fn a_ping_is_answered_and_an_unanswered_one_ends_the_connection() {
        let now = Instant::now();
        let mut connection = ready(now);
        // However many there are while nothing is written.
        (0..1000).for_each(|_| feed(&mut connection, now, Command::Ping).unwrap());
        assert_eq!(sent(&mut connection), []);
        connection.answer_pings();
        connection.answer_pings();
        assert_eq!(sent(&mut connection), [Command::Pong]);
        let tick = now + Duration::from_secs(30);
        connection.handle_timeout(tick).unwrap();
        assert_eq!(sent(&mut connection), [Command::Ping]);
        feed(&mut connection, tick, Command::Pong).unwrap();
        let tick = tick + Duration::from_secs(30);
        connection.handle_timeout(tick).unwrap();
        let error = connection.handle_timeout(tick + Duration::from_secs(30)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected);
    }

    #[test]
    fn a_frame_may_take_longer_than_the_keep_alive() {
        let now = Instant::now();
        let mut connection = ready(now);
        let at = |seconds| now + Duration::from_secs(seconds);
        connection.handle_timeout(at(30)).unwrap();
        let mut input = BytesMut::new();
        for (turn, byte) in (1..).zip([0, 0, 1, 0]) {
            input.extend_from_slice(&[byte]);
            connection.handle_input(at(30 * turn + 15), &mut input).unwrap();
            connection.handle_timeout(at(30 * turn + 30)).unwrap();
        }
        // Bytes that were seen before are no sign of life.
        connection.handle_input(at(165), &mut input).unwrap();
        assert_eq!(connection.handle_timeout(at(180)).unwrap_err().kind(), ErrorKind::Disconnected);
    }

    #[test]
    fn each_request_ends_once_answered_late_or_cut() {
        let now = Instant::now();
        let mut connection = ready(now);
        let ask = |c: &mut Connection| {
            c.request(now, |request_id| {
                Command::GetLastMessageId(pb::CommandGetLastMessageId { consumer_id: 1, request_id })
            })
        };
        let (answered, late, cut) = (ask(&mut connection), ask(&mut connection), ask(&mut connection));
        let success = |id| Command::Success(Box::new(pb::CommandSuccess { request_id: id, schema: None }));
        feed(&mut connection, now, success(answered)).unwrap();
        feed(&mut connection, now, success(answered)).unwrap();
        connection.abandon(late);
        feed(&mut connection, now, success(late)).unwrap();
        connection.fail_requests(&Error::new(ErrorKind::Disconnected, "cut"));
        let ended: Vec<_> = std::iter::from_fn(|| connection.poll_event())
            .map(|event| match event {
                Event::Response { request_id, result } => (request_id, result.is_ok()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ended, [(answered, true), (cut, false)]);
    }

    #[test]
    fn an_unanswered_request_times_out_and_a_queued_producer_does_not() {
        let now = Instant::now();
        let mut connection = ready(now);
        let producer = |request_id| {
            Command::Producer(Box::new(pb::CommandProducer { request_id, ..Default::default() }))
        };
        let queued = connection.request(now, producer);
        let lost = connection.request(now, producer);
        let wait = pb::CommandProducerSuccess {
            request_id: queued,
            producer_ready: Some(false),
            ..Default::default()
        };
        feed(&mut connection, now, Command::ProducerSuccess(wait)).unwrap();
        assert!(
            matches!(connection.poll_event(), Some(Event::Queued { request_id }) if request_id == queued)
        );
        connection.handle_timeout(now + Duration::from_secs(30)).unwrap();
        assert!(matches!(connection.poll_event(), Some(Event::Response { request_id, result: Err(e) })
            if request_id == lost && e.kind() == ErrorKind::Timeout));
        let done = pb::CommandProducerSuccess { request_id: queued, ..Default::default() };
        feed(&mut connection, now, Command::ProducerSuccess(done)).unwrap();
        assert!(
            matches!(connection.poll_event(), Some(Event::Response { request_id, result: Ok(_) }) if request_id == queued)
        );
    }

    #[test]
    fn only_the_refresh_payload_asks_for_fresh_credentials() {
        let now = Instant::now();
        let mut connection = ready(now);
        for (data, expected) in [(&b"PulsarAuthRefresh"[..], true), (b"other", false)] {
            let challenge = pb::CommandAuthChallenge {
                challenge: Some(pb::AuthData {
                    auth_method_name: Some("token".into()),
                    auth_data: Some(data.into()),
                }),
                ..Default::default()
            };
            feed(&mut connection, now, Command::AuthChallenge(challenge)).unwrap();
            assert!(
                matches!(connection.poll_event(), Some(Event::Challenge { refresh }) if refresh == expected)
            );
        }
        let secret = Credentials { method: "token".into(), data: Bytes::from_static(b"hush") };
        assert!(!format!("{secret:?}").contains("hush"));
    }

    #[test]
    fn unknown_commands_are_skipped_and_client_commands_refused() {
        let now = Instant::now();
        let mut connection = ready(now);
        feed(&mut connection, now, Command::Unknown(99)).unwrap();
        let flow = Command::Flow(hot::Flow { consumer_id: 1, permits: 1 });
        assert!(feed(&mut connection, now, flow).is_err());
    }
}
