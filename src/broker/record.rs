//! Records of the broker's log: the fields of all that are about a client, and a limit on those that peers can cause as often
//! as they like.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_base::clock;
use forebay_base::error::sanitise;
use forebay_base::log::{Level, Record, wanting, write};

/// Records of a logger and a level in a second.
const PER_SECOND: u32 = 10;

/// A second, and the records in it.
struct Window {
    since: Instant,
    records: u32,
    omitted: u64,
}

impl Window {
    /// Counts a record. Gives the number of those before it that were left out, or `None` if this one is.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.records) = (now, 0);
        }
        if self.records == PER_SECOND {
            self.omitted += 1;
            OMITTED.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.records += 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

/// Records that were left out in this process.
static OMITTED: AtomicU64 = AtomicU64::new(0);

/// Number of the records that were left out since the process began.
pub(super) fn omitted() -> u64 {
    OMITTED.load(Ordering::Relaxed)
}

thread_local! {
    /// One for each logger and level, of which there are a few.
    static WINDOWS: RefCell<Vec<(&'static str, Level, Window)>> = const { RefCell::new(Vec::new()) };
}

/// A record about a client: its user, if the broker has verified one, and the name that it has given itself. What is empty is
/// left out.
pub(super) fn about(event: &str, protocol: &str, user: &str, client: &str, text: String) -> Record {
    Record::new(text)
        .with("event", event)
        .with("protocol", protocol)
        .with("client", client)
        .with("user", user)
}

/// Tells that a peer that has no name yet was refused.
pub(super) fn refused(logger: &'static str, protocol: &str, address: &str, reason: &str) {
    write_limited(Level::Warning, logger, || {
        let reason = sanitise(reason);
        about("refused", protocol, "", "", format!("{protocol} {address} refused: {reason}"))
            .with("address", address)
            .with("reason", reason)
    });
}

/// [`write`] for what a peer can cause as often as it likes: of a logger and a level at most ten in a second are written, and the
/// next one tells how many were left out.
pub(super) fn write_limited(level: Level, logger: &'static str, make: impl FnOnce() -> Record) {
    if wanting(level).is_none() {
        return;
    }
    let now = clock::now();
    let admitted = WINDOWS.with_borrow_mut(|windows| {
        let of_kind = |(name, at, _): &(&str, Level, Window)| (*name, *at) == (logger, level);
        let place = windows.iter().position(of_kind).unwrap_or_else(|| {
            windows.push((logger, level, Window { since: now, records: 0, omitted: 0 }));
            windows.len() - 1
        });
        windows[place].2.admit(now)
    });
    let Some(omitted) = admitted else { return };
    write(level, logger, || {
        let mut record = make();
        if omitted > 0 {
            record.text += &format!(" ({omitted} records before this one were left out)");
            record = record.with("omitted", omitted.to_string());
        }
        record
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_ten_a_second_are_written_and_the_others_counted() {
        let start = clock::now();
        let mut window = Window { since: start, records: 0, omitted: 0 };
        let admitted =
            |window: &mut Window, now| (0..100).filter_map(|_| window.admit(now)).collect::<Vec<_>>();
        assert_eq!(admitted(&mut window, start), [0; 10]);
        assert_eq!(admitted(&mut window, start + Duration::from_millis(999)), [0; 0]);
        let next = admitted(&mut window, start + Duration::from_secs(1));
        assert_eq!((next.len(), next[0], next[1]), (10, 190, 0));
    }
}
