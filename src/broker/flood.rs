//! Records that peers can cause as often as they like.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::clock;
use crate::log::{Level, Record, wanting, write};

/// Records in a second.
const PER_SECOND: u32 = 10;

/// A second, and the records in it.
#[derive(Clone, Copy)]
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
            return None;
        }
        self.records += 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

thread_local! {
    static WINDOW: Cell<Option<Window>> = const { Cell::new(None) };
}

/// [`write`] for what a peer can cause as often as it likes: at most ten in a second are written, and the next one tells how many
/// were left out.
pub(super) fn write_limited(level: Level, logger: &str, make: impl FnOnce() -> Record) {
    if wanting(level).is_none() {
        return;
    }
    let now = clock::now();
    let mut window = WINDOW.get().unwrap_or(Window { since: now, records: 0, omitted: 0 });
    let admitted = window.admit(now);
    WINDOW.set(Some(window));
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
