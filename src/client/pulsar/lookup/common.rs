//! Shared by both kinds of lookups: the order of the addresses, and limits on answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_base::error::{Error, Result};
use forebay_net::url::{Address, ServiceUrl};

/// More redirects than this are a loop.
pub(super) const MAX_REDIRECTS: usize = 20;

/// Largest believable number of partitions: a producer allocates memory for each.
const MAX_PARTITIONS: u32 = 1 << 16;

/// The address of the service that is tried first; moves on when one fails.
#[derive(Debug, Default)]
pub(super) struct Preferred(AtomicUsize);

impl Preferred {
    /// The result of `attempt` at the first address at which it succeeds, or the last error.
    pub(super) async fn first<'a, T, F: Future<Output = Result<T>> + Send>(
        &self,
        url: &'a ServiceUrl,
        attempt: impl Fn(&'a Address) -> F,
    ) -> Result<T> {
        let mut last = None;
        for _ in 0..url.addresses.len() {
            let index = self.0.load(Ordering::Relaxed);
            match attempt(&url.addresses[index % url.addresses.len()]).await {
                Ok(result) => return Ok(result),
                Err(error) => {
                    let next = index.wrapping_add(1);
                    let _ = self.0.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
                    last = Some(error);
                }
            }
        }
        Err(last.expect("a service URL has at least one address"))
    }
}

/// Address of the broker that an answer names. A service with TLS never leads to a broker without.
pub(super) fn broker_address(url: Option<&str>, tls: bool) -> Result<Address> {
    let url = url.filter(|url| !url.is_empty()).ok_or_else(|| {
        Error::protocol("the lookup response names no broker for the scheme of this client's URL")
    })?;
    let url = ServiceUrl::parse(url).map_err(|error| {
        Error::protocol("the lookup response names an invalid broker URL").with_peer_text(error.message())
    })?;
    if !url.is_of_broker(tls) {
        return Err(Error::protocol("the lookup response leads to a broker with another scheme"));
    }
    let first = url.addresses.into_iter().next();
    first.ok_or_else(|| Error::protocol("the lookup response names a broker without an address"))
}

/// The number of partitions in an answer.
pub(super) fn partition_count(count: u32) -> Result<u32> {
    if count > MAX_PARTITIONS {
        return Err(Error::protocol(format!(
            "the broker states {count} partitions: at most {MAX_PARTITIONS} are supported"
        )));
    }
    Ok(count)
}
