//! Whether a topic has a schema: many payloads at once, which have none, must not get there by
//! accident.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pulsar::shared::Shared;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::Mutex;
use forebay_pulsar::schema::Type;

/// How long a topic is taken to have no schema after the broker said so. That it has one is asked
/// each time: it can be deleted.
const KEPT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct TopicSchema {
    shared: Arc<Shared>,
    has_none_until: Mutex<Option<Instant>>,
}

impl TopicSchema {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, has_none_until: Mutex::leaf(None) }
    }

    /// An error if the topic has a schema, or if the broker does not tell.
    pub(super) async fn check_none(&self, topic: &str) -> Result<()> {
        if self.has_none_until.lock().is_some_and(|until| clock::now() < until) {
            return Ok(());
        }
        match self.shared.lookup_of(topic).schema(topic, None).await {
            Ok(found) if found.kind != Type::None => {
                let text = format!(
                    "the topic has a schema, and the producer has none: give the producer that schema, send rows with \
                     schema=\"avro\" or schema=\"json\", or send payloads without a schema on purpose with schema=None; \
                     the latest of the topic is {found}"
                );
                Err(Error::new(ErrorKind::Schema, text).with_topic(topic))
            }
            Err(error) if error.kind() != ErrorKind::TopicNotFound => {
                Err(error.with_note("schema=None sends rows without asking whether the topic has a schema"))
            }
            _ => {
                *self.has_none_until.lock() = Some(clock::now() + KEPT);
                Ok(())
            }
        }
    }
}
