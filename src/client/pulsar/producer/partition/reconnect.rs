//! The supervisor of a partition of a producer: it opens it at the broker, and opens it again.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::super::schemas::Registrar;
use super::{PartitionProducer, Registration, TICK};
use crate::journal::Journal;
use crate::pulsar::connection::{Connection, PartId, ProducerRoute, Withdraw};
use crate::pulsar::directions::Directions;
use crate::pulsar::options::{AccessMode, ClientOptions, ProducerOptions};
use crate::pulsar::reconnect::{PartWatch, Supervised};
use crate::pulsar::schema;
use crate::pulsar::shared::{Shared, key_values};
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::command::Command;
use forebay_pulsar::pb;

/// Opens a partition for [`supervise`](crate::pulsar::reconnect::supervise).
pub(in crate::pulsar::producer) struct Supervisor {
    shared: Arc<Shared>,
    part: Arc<PartitionProducer>,
    options: ProducerOptions,
    /// A broker has been asked for a producer that waits for its turn.
    asked: AtomicBool,
    registrar: Registrar,
    /// Whether the producer is open already, and this is one of the partitions that its topic has
    /// got since.
    joins: bool,
}

impl Supervisor {
    pub(in crate::pulsar::producer) fn new(
        registrar: Registrar,
        part: Arc<PartitionProducer>,
        options: ProducerOptions,
        joins: bool,
    ) -> Self {
        let shared = Arc::clone(registrar.shared());
        Self { shared, part, options, asked: AtomicBool::new(false), registrar, joins }
    }

    /// Sends PRODUCER and waits for its answer.
    async fn register(&self, connection: &Connection, epoch: u64) -> Result<pb::CommandProducerSuccess> {
        let Registration { name, topic_epoch } = self.part.registration.lock().clone();
        let options = &self.options;
        let answer = connection.request(|request_id| {
            Command::Producer(Box::new(pb::CommandProducer {
                topic: self.part.topic.clone(),
                producer_id: self.part.id,
                request_id,
                producer_name: name,
                user_provided_producer_name: Some(options.name.is_some()),
                epoch: Some(epoch),
                metadata: key_values(&options.properties),
                producer_access_mode: Some(options.access_mode as i32),
                topic_epoch,
                initial_subscription_name: options.initial_subscription.clone(),
                schema: schema::stated(options.schema.as_ref(), false),
                ..Default::default()
            }))
        });
        // Only WaitForExclusive waits without a deadline: it was asked to wait for its turn.
        let answer = if options.access_mode == AccessMode::WaitForExclusive {
            self.asked.store(true, Ordering::Release);
            answer.await?
        } else {
            let limit = self.shared.options.operation_timeout;
            tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::Timeout,
                    format!("the broker did not make the producer ready within {limit:?}"),
                ))
            })?
        };
        match answer {
            Command::ProducerSuccess(success) => Ok(success),
            other => Err(Error::protocol(format!("PRODUCER was answered by {}", other.name()))),
        }
    }
}

impl Supervised for Supervisor {
    fn directions(&self) -> &Directions {
        &self.part.directions
    }

    fn state(&self) -> &PartWatch {
        &self.part.state
    }

    fn topic(&self) -> &str {
        &self.part.topic
    }

    fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    async fn open(&self, attempt: u64) -> Result<()> {
        let part = &self.part;
        let connection = self.shared.connection(&part.directions, &part.topic, part.id).await?;
        // In the routes before the broker knows it, so that a CLOSE_PRODUCER right behind the
        // success is seen.
        let route: Arc<dyn ProducerRoute> = Arc::clone(part) as _;
        connection.session().lock().add_producer(part.id, route);
        let id = PartId::Producer(part.id);
        let withdraw = Withdraw { connection: &connection, part: id };
        let success = match self.register(&connection, attempt).await {
            Ok(success) => success,
            Err(error) => {
                let info = self.options.schema.as_ref().map(|schema| &*schema.info);
                return Err(schema::explain(&self.shared, &part.topic, info, error).await);
            }
        };
        {
            let mut registration = part.registration.lock();
            registration.topic_epoch = success.topic_epoch.or(registration.topic_epoch);
        }
        {
            let host = connection.session().lock();
            let lost = !connection.is_alive() || !host.has(id);
            if lost || !part.state.opened(&connection) {
                drop(host);
                let text = "the producer was closed while it was opened";
                return Err(Error::new(ErrorKind::Disconnected, text));
            }
            part.registration.lock().name = Some(success.producer_name.clone());
            let mut machine = part.machine();
            // Before anything can be pushed with it.
            let mut version = Bytes::new();
            if let Some(schema) = &self.options.schema {
                version = success.schema_version.clone().unwrap_or_default();
                schema.version.lock().clone_from(&version);
            }
            machine.set_schema_version(version);
            machine.attach(
                &success.producer_name,
                success.last_sequence_id(),
                connection.info().max_message_size,
            );
            while let Some(info) = machine.poll_schema() {
                self.registrar.start(part, info);
            }
        }
        std::mem::forget(withdraw);
        connection.wake(id);
        Ok(())
    }

    /// Keeps the send timeouts while no connection does.
    async fn while_detached(&self) -> Infallible {
        loop {
            let now = clock::now();
            let due = {
                let mut machine = self.part.machine();
                machine.handle_timeout(now);
                let due = machine.poll_timeout();
                self.part.deliver(machine);
                due
            };
            // A message pushed meanwhile may be due sooner than what was pending.
            let at = due.map_or(now + TICK, |at| at.clamp(now + Duration::from_millis(1), now + TICK));
            tokio::time::sleep_until(at.into()).await;
        }
    }

    fn note(&self, error: &Error) {
        self.part.machine().note_trouble(error.clone());
    }

    fn waits_for_its_turn(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    fn fail(&self, error: Error, first: bool) -> bool {
        let has_been_open = self.part.machine().has_attached();
        if !first && !has_been_open && self.options.lazy_start {
            self.part.refuse(&error);
            return false;
        }
        // Nothing has been pushed to a partition that is not in use yet: it is tried again.
        if !(first && self.joins) {
            self.part.fail(error);
        }
        true
    }
}
