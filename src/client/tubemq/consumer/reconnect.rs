//! Connects a partition to its broker, and again each time the connection ends.

use std::sync::{Arc, Weak};

use super::partition::PartitionConsumer;
use crate::tubemq::connection::Purpose;
use crate::tubemq::shared::{Shared, address};
use forebay_base::clock;
use forebay_net::backoff::Backoff;

/// Connects a partition, and again each time its connection ends.
pub(super) async fn supervise(part: Weak<PartitionConsumer>, shared: Arc<Shared>) {
    let Some(broker) = part.upgrade().map(|part| part.machine().location().broker.clone()) else { return };
    let mut backoff = Backoff::new(shared.options.max_backoff);
    loop {
        let got = shared.pool.get(&address(&broker), Purpose::Fetch).await;
        let Some(part) = part.upgrade() else { return };
        match got {
            Ok(connection) => {
                let since = clock::now();
                let attached = {
                    let mut host = connection.session().lock();
                    // Held to the end: `stop` ends the machine before it looks for a connection.
                    let mut machine = part.machine();
                    let attached = connection.is_alive() && machine.attach();
                    if attached {
                        host.partitions.insert(part.id, Arc::clone(&part) as _);
                        *part.connection.lock() = Some(Arc::clone(&connection));
                    }
                    attached
                };
                if attached {
                    connection.session().wake();
                    part.lost.notified().await;
                }
                backoff.ended(clock::now().saturating_duration_since(since));
            }
            Err(error) => {
                part.tried.send_if_modified(|tried| {
                    let first = tried.is_none();
                    if first {
                        *tried = Some(Err(error));
                    }
                    first
                });
            }
        }
        drop(part);
        tokio::time::sleep(backoff.pause()).await;
    }
}
