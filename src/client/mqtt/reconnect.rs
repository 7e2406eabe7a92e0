//! The supervisor that connects, and connects again.
//!
//! ```text
//!           ┌────────────┐  CONNACK   ┌───────────┐
//!  start ──►│ connecting │───────────►│ connected │
//!           └─────▲──┬───┘            └─────┬─────┘
//!    pause, longer│  │ hopeless             │ the socket ended
//!    each time    │  ▼                      │
//!                 │ ended ◄─────────────────┤ another client has taken over
//!                 └─────────────────────────┘
//! ```
//! If the broker refuses the first connection, the client ends with that error. Later ones are
//! tried again: the refusal may be mended at the broker, and messages wait for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::connection::{Reached, run};
use crate::journal::Attempts;
use crate::logger;
use crate::mqtt::options::ClientOptions;
use crate::mqtt::shared::Shared;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_mqtt::Version;
use forebay_net::backoff::Backoff;
use forebay_net::tcp::Pacing;
use forebay_net::url::{Address, ServiceUrl, Transport};
use forebay_net::{Stream, tls, ws};
use tracing::warn;

/// Time within which the network may still deliver the CONNECT of a connection that was given up.
const LATE_CONNECT: Duration = Duration::from_secs(120);
/// Such connections that are remembered.
const MOST_UNANSWERED: usize = 16;

/// Opens sockets to the server.
pub(super) struct Connector {
    url: ServiceUrl,
    tls: Option<tls::FollowingConnector>,
    /// Index of the address to try next, starting with the one that worked last.
    next: usize,
    /// Versions to try; the last one is next.
    versions: Vec<Version>,
    /// The address that was tried last.
    pub(super) address: String,
}

impl Connector {
    pub(super) fn new(options: &ClientOptions, url: ServiceUrl) -> Result<Self> {
        // Over WebSocket the handshake is HTTP's.
        let alpn = match url.transport {
            Transport::Tcp => options.tls_alpn.as_deref(),
            Transport::WebSocket | Transport::Unix | Transport::Http => None,
        };
        let tls = if url.tls { Some(tls::FollowingConnector::new(&options.tls, alpn)?) } else { None };
        if url.transport == Transport::WebSocket {
            ws::check_headers(&options.ws_headers)?;
        } else if options.ws_query.is_some() {
            let text = "ws_query is for MQTT over WebSocket: use a URL of ws:// or wss://";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let versions = match options.version {
            Some(version) => vec![version],
            None => vec![Version::V3_1, Version::V3_1_1, Version::V5],
        };
        Ok(Self { address: url.path.clone(), url, tls, next: 0, versions })
    }

    pub(super) fn version(&self) -> Version {
        *self.versions.last().expect("never empty")
    }

    /// A connected socket to the first address that accepts.
    pub(super) async fn open(&mut self, shared: &Shared, tries: &mut Attempts) -> Result<Stream> {
        if self.url.transport == Transport::Unix {
            #[cfg(unix)]
            return forebay_net::connect_unix(&self.url.path).await;
            #[cfg(not(unix))]
            return Err(Error::new(ErrorKind::Unsupported, "this system has no Unix sockets"));
        }
        let mut left = self.url.addresses.len();
        loop {
            let address = self.url.addresses[self.next % self.url.addresses.len()].clone();
            self.address = address.to_string();
            match self.open_address(&address, shared).await {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    left -= 1;
                    if left == 0 {
                        // Reported with the pause before the next round.
                        return Err(error);
                    }
                    let attempts = tries.fail();
                    shared.journal.connect_failed(&self.address, attempts, &error, Some(Duration::ZERO));
                }
            }
            self.next += 1;
        }
    }

    async fn open_address(&self, address: &Address, shared: &Shared) -> Result<Stream> {
        let options = &shared.options;
        let (tls, trouble) = tls::FollowingConnector::get_of(self.tls.as_ref()).await;
        if let Some(error) = trouble {
            warn!(
                target: logger::MQTT_CONNECTION,
                "the connection uses the certificates as they were: {error}",
            );
        }
        let pacing = Pacing::Gather(Arc::clone(&shared.awaited));
        let stream =
            forebay_net::connect(&address.host, address.port, tls.as_ref(), pacing, options.connect_timeout)
                .await?;
        if self.url.transport != Transport::WebSocket {
            return Ok(stream);
        }
        let query = match &options.ws_query {
            Some(query) => Some(query.get("ws_query", options.connect_timeout).await?),
            None => None,
        };
        let url = ws::url(self.url.tls, address, &self.url.path, query.as_deref())?;
        let upgraded = ws::connect(stream, &url, &options.ws_headers, options.max_packet_size.max(1 << 20));
        let upgraded =
            tokio::time::timeout(options.connect_timeout, upgraded).await.unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::Timeout,
                    format!("no WebSocket handshake with {address} within {:?}", options.connect_timeout),
                ))
            })?;
        Ok(Stream::WebSocket(Box::new(upgraded)))
    }
}

/// Times at which connections ended whose CONNECT had no answer: the server may still get it.
#[derive(Default)]
struct LateConnects(Vec<Instant>);

impl LateConnects {
    /// Notes how far an attempt came that has just ended.
    fn note(&mut self, reached: Reached) {
        let now = clock::now();
        self.0.retain(|at| now < *at + LATE_CONNECT);
        if reached == Reached::Unanswered && self.0.len() < MOST_UNANSWERED {
            self.0.push(now);
        }
    }

    /// Forgets the latest one. Returns whether there was one.
    fn take(&mut self) -> bool {
        self.0.pop().is_some()
    }
}

/// Whether to give up after `error`. With `first` the caller still waits for the first connection.
fn is_hopeless(error: &Error, first: bool, late_connects: &mut LateConnects) -> bool {
    match error.kind() {
        // By an own CONNECT, which has come late, rather than by another client.
        ErrorKind::SessionTakenOver if late_connects.take() => {
            warn!(
                target: logger::MQTT_CONNECTION,
                "{error}; it may be an own attempt to connect that came late: connecting again",
            );
            false
        }
        ErrorKind::SessionTakenOver => true,
        // The first connect reports what is wrong.
        _ => first && !error.retriable(),
    }
}

/// Connects, and reconnects each time the connection ends, until an error is hopeless.
pub(super) async fn supervise(
    shared: Arc<Shared>,
    mut connector: Connector,
    ready: oneshot::Sender<Result<()>>,
) {
    let mut ready = Some(ready);
    let mut backoff = Backoff::new(shared.options.max_backoff);
    // The first caller waits for one attempt at each address.
    let mut attempts = connector.url.addresses.len();
    let mut late_connects = LateConnects::default();
    let mut tries = Attempts::default();
    // Whether this outage's refusal has been told.
    let mut warned = false;
    loop {
        let (reached, error) = run(&shared, &mut connector, &mut ready, &mut tries).await;
        if error.kind() == ErrorKind::Closed {
            // `Client::close` ends the rest once the outbox is written.
            return;
        }
        *shared.trouble.lock() = Some(error.clone());
        let failed = if let Reached::Up(lasted) = reached {
            if backoff.ended(lasted) {
                warned = false;
            }
            tries.succeed();
            None
        } else {
            connector.next += 1;
            Some(tries.fail())
        };
        let note_failure = |pause| {
            if let Some(attempts) = failed {
                shared.journal.connect_failed(&connector.address, attempts, &error, pause);
            }
        };
        late_connects.note(reached);
        if error.kind() == ErrorKind::UnsupportedVersion && connector.versions.len() > 1 {
            note_failure(Some(Duration::ZERO));
            connector.versions.pop();
            continue;
        }
        let hopeless = is_hopeless(&error, ready.is_some(), &mut late_connects);
        attempts = attempts.saturating_sub(1);
        if !hopeless
            && attempts == 0
            && shared.outbox.is_some()
            && let Some(ready) = ready.take()
        {
            // Publications are kept meanwhile.
            let _ = ready.send(Ok(()));
        }
        if hopeless || ready.is_some() && attempts == 0 {
            note_failure(None);
            if let Some(ready) = ready.take() {
                let _ = ready.send(Err(error.clone()));
            } else {
                shared.journal.gave_up(None, &error);
            }
            return shared.end(&error);
        }
        // What comes of a late CONNECT has been told.
        let refused = !error.retriable() && error.kind() != ErrorKind::SessionTakenOver;
        if refused && !std::mem::replace(&mut warned, true) {
            warn!(target: logger::MQTT_CONNECTION, "{error}; connecting again, with longer pauses each time");
        }
        let pause = backoff.pause();
        note_failure(Some(pause));
        tokio::select! {
            biased;
            () = shared.closing.notified() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
