//! The states of one partition of a producer or consumer, and the supervisor that opens it again.
//!
//! ```text
//!              the broker accepted it            seek
//!   Opening ──────────────────────────► Open ──────────► Seeking ───┐ the broker closes it, as it
//!      ▲                                │  ▲               │  ▲     │ does around its answer, or
//!      │ after a pause                  │  └───────────────┘  └─────┘ the connection ends
//!      │                                │   answered, still open      │
//!      │                                ▼                             │ answered
//!      └────────────────────────────── Lost ◄─────────────────────────┘
//!
//!   any ── close, drop, or an error that another attempt cannot mend ──► Closed
//! ```
//! The state sits in one `tokio::sync::watch` channel: a change and its notification are one step,
//! so there is no permit that could outlive the loss it stood for. A connection that ends while the
//! partition is `Opening` changes nothing here; the attempt itself fails. The supervisor does not
//! open a partition while it is `Seeking`, because the answer decides where the new subscription
//! starts.
//!
//! The state and the machine behind a partition have locks of their own. The state is never locked
//! across a call.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{oneshot, watch};

use crate::journal::Journal;
use crate::logger;
use crate::pulsar::connection::{Connection, Loss};
use crate::pulsar::directions::Directions;
use crate::pulsar::options::ClientOptions;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_net::backoff::Backoff;
use tracing::{debug, warn};

/// State of a partition. The module has the diagram.
#[derive(Clone, Debug)]
pub(super) enum PartState {
    /// The supervisor is opening it, for the first time or again.
    Opening,
    /// The broker serves it over this connection.
    Open(Arc<Connection>),
    /// A SEEK has been sent and not been answered. The connection is gone once the broker has
    /// closed the consumer. Consumers only.
    Seeking(Option<Arc<Connection>>),
    /// Its connection ended or the broker closed it; the supervisor opens it again after a pause.
    Lost,
    /// It has ended for good.
    Closed,
}

impl PartState {
    fn connection(&self) -> Option<&Arc<Connection>> {
        match self {
            Self::Open(connection) | Self::Seeking(Some(connection)) => Some(connection),
            Self::Opening | Self::Seeking(None) | Self::Lost | Self::Closed => None,
        }
    }
}

/// Why [`PartWatch::begin_seek`] did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeekRefused {
    /// Another seek has not been answered.
    UnderWay,
    /// The consumer has ended.
    Closed,
}

/// The state of a partition with its transitions.
#[derive(Debug)]
pub(super) struct PartWatch {
    state: watch::Sender<PartState>,
    /// Whether a seek was made since the supervisor looked: the broker closes the consumer for it.
    sought: AtomicBool,
}

impl PartWatch {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new(PartState::Opening), sought: AtomicBool::new(false) }
    }

    /// The connection over which the broker serves it now.
    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.state.borrow().connection().cloned()
    }

    /// Whether the broker serves it now.
    pub(super) fn is_connected(&self) -> bool {
        self.state.borrow().connection().is_some_and(|connection| connection.is_alive())
    }

    /// The connection, once there is one; `None` when the partition has ended.
    pub(super) async fn attached(&self) -> Option<Arc<Connection>> {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|s| s.connection().is_some() || matches!(s, PartState::Closed)).await;
        reached.ok().and_then(|state| state.connection().cloned())
    }

    /// To `Opening`, as soon as no seek is under way. Returns false when the partition has ended.
    pub(super) async fn begin_opening(&self) -> bool {
        let mut state = self.state.subscribe();
        // The reference to the state is dropped before the state is changed.
        let _ = state.wait_for(|state| !matches!(state, PartState::Seeking(_))).await;
        self.state.send_if_modified(|state| match state {
            PartState::Closed => false,
            _ => {
                *state = PartState::Opening;
                true
            }
        })
    }

    /// To `Open`. Returns false when the partition ended while it was opened.
    pub(super) fn opened(&self, connection: &Arc<Connection>) -> bool {
        self.state.send_if_modified(|state| match state {
            PartState::Closed => false,
            _ => {
                *state = PartState::Open(Arc::clone(connection));
                true
            }
        })
    }

    /// Whether `loss` is of the connection that serves the partition, and not an echo of an earlier
    /// one.
    pub(super) fn concerns(&self, loss: Loss) -> bool {
        match self.state.borrow().connection() {
            Some(connection) => loss == Loss::ClosedByBroker || !connection.is_alive(),
            None => false,
        }
    }

    /// To `Lost`, or, while a seek is under way, to `Seeking` without a connection.
    pub(super) fn lose(&self) {
        self.state.send_if_modified(|state| {
            *state = match state {
                PartState::Open(_) => PartState::Lost,
                PartState::Seeking(Some(_)) => PartState::Seeking(None),
                _ => return false,
            };
            true
        });
    }

    /// Resolves when nothing is open any more. Returns whether a seek was made meanwhile.
    async fn lost(&self) -> bool {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| state.connection().is_none()).await;
        self.sought.swap(false, Ordering::Relaxed)
    }

    /// From `Open`, which is waited for, to `Seeking`. The seek ends when what is returned is
    /// dropped.
    pub(super) async fn begin_seek(&self) -> Result<Seek<'_>, SeekRefused> {
        loop {
            let mut begun = None;
            self.state.send_if_modified(|state| {
                let PartState::Open(connection) = state else { return false };
                let connection = Arc::clone(connection);
                begun = Some(Arc::clone(&connection));
                *state = PartState::Seeking(Some(connection));
                true
            });
            if let Some(connection) = begun {
                self.sought.store(true, Ordering::Relaxed);
                return Ok(Seek { part: self, connection });
            }
            match &*self.state.borrow() {
                PartState::Seeking(_) => return Err(SeekRefused::UnderWay),
                PartState::Closed => return Err(SeekRefused::Closed),
                _ => {}
            }
            if self.attached().await.is_none() {
                return Err(SeekRefused::Closed);
            }
        }
    }

    /// To `Closed`. Returns the connection that served the partition.
    pub(super) fn close(&self) -> Option<Arc<Connection>> {
        self.state.send_replace(PartState::Closed).connection().cloned()
    }
}

/// A seek under way.
#[derive(Debug)]
pub(super) struct Seek<'a> {
    part: &'a PartWatch,
    pub(super) connection: Arc<Connection>,
}

impl Seek<'_> {
    /// Resolves when the subscription is gone.
    pub(super) async fn cut(&self) {
        let mut state = self.part.state.subscribe();
        let _ = state.wait_for(|state| state.connection().is_none()).await;
    }

    /// Ends the seek after its answer. What is returned resolves when the subscription it was sent
    /// on is gone, at once if it is already.
    pub(super) fn end(self) -> impl Future<Output = ()> + use<> {
        let mut state = self.part.state.subscribe();
        drop(self);
        let still_open = matches!(&*state.borrow_and_update(), PartState::Open(_));
        async move {
            if still_open {
                let _ = state.wait_for(|state| state.connection().is_none()).await;
            }
        }
    }
}

impl Drop for Seek<'_> {
    fn drop(&mut self) {
        self.part.state.send_if_modified(|state| {
            *state = match state {
                PartState::Seeking(Some(connection)) => PartState::Open(Arc::clone(connection)),
                PartState::Seeking(None) => PartState::Lost,
                _ => return false,
            };
            true
        });
    }
}

/// A partition as its supervisor sees it.
pub(super) trait Supervised: Send + Sync {
    fn state(&self) -> &PartWatch;

    fn directions(&self) -> &Directions;

    fn topic(&self) -> &str;

    /// Looks its broker up, connects, and opens it there. `attempt` counts from 0.
    fn open(&self, attempt: u64) -> impl Future<Output = Result<()>> + Send;

    /// Runs while there is no connection, and never ends.
    fn while_detached(&self) -> impl Future<Output = Infallible> + Send {
        std::future::pending()
    }

    /// The client's options.
    fn options(&self) -> &ClientOptions;

    /// The client's journal.
    fn journal(&self) -> &Journal;

    /// It is open again after it was lost.
    fn reopened(&self) {}

    /// Notes why it could not be opened; it is tried again.
    fn note(&self, error: &Error);

    /// Whether its first open may take longer than the operation timeout: it waits for its turn at
    /// the broker.
    fn waits_for_its_turn(&self) -> bool {
        false
    }

    /// Ends it with an error that another attempt cannot mend. With `first` it has never been open,
    /// and the caller of the open gets the error as well. Returns false if it is to be opened by
    /// another supervisor later.
    fn fail(&self, error: Error, first: bool) -> bool;
}

/// Opens a partition, and again each time it is lost, until it is closed or an error is hopeless.
/// `ready` is told of the first success or of the failure. Without it the first open is tried on as
/// a reconnect is.
pub(super) async fn supervise(part: impl Supervised, mut ready: Option<oneshot::Sender<Result<()>>>) {
    let mut warned = false;
    let ClientOptions { max_backoff, operation_timeout, .. } = *part.options();
    let mut backoff = Backoff::new(max_backoff);
    // Of attempts that follow directions: brokers that name each other are not asked without end.
    let mut directed = Backoff::new(max_backoff);
    let first_deadline = clock::now() + operation_timeout;
    for attempt in 0.. {
        if !part.state().begin_opening().await {
            return;
        }
        // Boxed: the task, which stays as long as the partition, has no room for what only opening
        // needs.
        let open = Box::pin(part.directions().until_changed(part.open(attempt)));
        let opened = tokio::select! {
            biased;
            opened = open => opened,
            never = part.while_detached() => match never {},
        };
        let pause = match opened {
            Ok(()) => {
                directed.reset();
                match ready.take() {
                    Some(ready) => {
                        let _ = ready.send(Ok(()));
                    }
                    None => part.reopened(),
                }
                let since = clock::now();
                let sought = part.state().lost().await;
                if sought {
                    backoff.reset();
                }
                if backoff.ended(clock::now().saturating_duration_since(since)) || sought {
                    warned = false;
                }
                part.directions().pause(backoff.pause(), since)
            }
            Err(error) => {
                let first = ready.is_some();
                let late = first && clock::now() >= first_deadline && !part.waits_for_its_turn();
                if is_terminal(&error, first) || late {
                    return give_up(&part, error, ready);
                }
                part.note(&error);
                let refused = matches!(error.kind(), ErrorKind::Authentication | ErrorKind::Tls);
                if refused && !std::mem::replace(&mut warned, true) {
                    warn!(
                        target: logger::PULSAR,
                        "{} cannot be opened again, and is tried on: {error}",
                        part.topic(),
                    );
                }
                // Failures elsewhere say nothing about the broker that is named now.
                let pause = if part.directions().are_untried() { directed.pause() } else { backoff.pause() };
                debug!(
                    target: logger::PULSAR_CONNECTION,
                    "{} is opened again in {pause:.1?}: {error}",
                    part.topic(),
                );
                pause
            }
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            never = part.while_detached() => match never {},
        }
    }
}

/// Ends a partition that another attempt cannot open. Tells `ready`, if it has never been open.
fn give_up(part: &impl Supervised, error: Error, ready: Option<oneshot::Sender<Result<()>>>) {
    let first = ready.is_some();
    let error = error.with_topic(part.topic());
    if let Some(ready) = ready {
        let _ = ready.send(Err(error.clone()));
    } else {
        part.journal().gave_up(Some(part.topic()), &error);
    }
    if part.fail(error, first) {
        part.state().close();
    }
}

/// Whether another attempt to open cannot succeed after `error`.
fn is_terminal(error: &Error, first: bool) -> bool {
    match error.kind() {
        // The first open fails immediately. A reconnect retries, because the broker may still hold
        // our previous registration.
        ErrorKind::ProducerBusy
        | ErrorKind::ConsumerBusy
        | ErrorKind::ConsumerAssign
        | ErrorKind::QuotaExceeded => first,
        // The function that supplies the token may fail for a moment, and a token or certificate
        // may be renewed.
        ErrorKind::Authentication | ErrorKind::Tls => first,
        _ => !error.retriable(),
    }
}
