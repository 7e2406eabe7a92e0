//! When the driver stays awake for the next answer.
//!
//! A user that sends one message at a time waits for the driver's thread twice in each exchange of
//! a message and its answer: until it runs, and until it has woken the user. Waking an idle core
//! takes longer than the exchange itself, and costs the one that wakes it as well. So while
//! exchanges are short, the driver does not sleep between them:
//!
//! ```text
//!         a row of ROW exchanges, each within SHORT
//! Asleep ───────────────────────────────────────────────► Awake
//!        ◄───────────────────────────────────────────────
//!         too many later ones, or a turn that is no exchange
//! ```
//!
//! Only a peer on the same machine or very near is that quick. Each exchange within [`SHORT`] adds
//! one to the row, up to [`LONGEST_ROW`]; a later one takes [`ROW`] off, the price of staying awake
//! in vain.
//!
//! A runtime of several threads wakes another thread whenever one of its tasks yields, and that
//! thread would take over the look for events. There the driver always sleeps, and so it does with
//! a single core, which the user needs.

use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Longest exchange that adds to a row, and longest time awake. An exchange includes the time until
/// the user sends the next message.
const SHORT: Duration = Duration::from_micros(200);
/// The driver stays awake from this row on. A late exchange takes as many off.
const ROW: u32 = 16;
/// Longest row: it lets three late exchanges pass.
const LONGEST_ROW: u32 = 4 * ROW;

/// Whether the user can run while the driver is awake.
static HAS_CORES: LazyLock<bool> =
    LazyLock::new(|| available_parallelism().is_ok_and(|cores| cores.get() > 1));

/// The exchanges of a connection.
#[derive(Debug)]
pub(super) struct Exchanges {
    /// Whether the driver may stay awake.
    allowed: bool,
    /// The last turn.
    last: Option<Instant>,
    /// Number of exchanges in a row, less [`ROW`] for each late one; at most [`LONGEST_ROW`].
    row: u32,
}

impl Exchanges {
    /// For a driver on `runtime`, or one that always sleeps.
    pub(super) fn new(runtime: Option<&Handle>) -> Self {
        let has_one_thread =
            runtime.is_some_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread);
        Self { allowed: has_one_thread && *HAS_CORES, last: None, row: 0 }
    }

    /// Counts a turn. `answered` if there are bytes to handle, and a user has written by itself
    /// since the turn before. Returns the time until which to stay awake.
    pub(super) fn turn(&mut self, now: Instant, answered: bool) -> Option<Instant> {
        let last = self.last.replace(now);
        let is_short = last.is_some_and(|last| now.saturating_duration_since(last) <= SHORT);
        self.row = match answered {
            false => 0,
            true if is_short => (self.row + 1).min(LONGEST_ROW),
            true => self.row.saturating_sub(ROW),
        };
        (self.row >= ROW && self.allowed).then(|| now + SHORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::clock;

    /// Whether the driver is awake after each turn, `micros` after the one before.
    fn turns(exchanges: &mut Exchanges, now: &mut Instant, turns: &[(u64, bool)]) -> Vec<bool> {
        let turn = |&(micros, answered): &(u64, bool)| {
            *now += Duration::from_micros(micros);
            let until = exchanges.turn(*now, answered);
            assert!(until.is_none_or(|until| until == *now + SHORT));
            until.is_some()
        };
        turns.iter().map(turn).collect()
    }

    const ALLOWED: Exchanges = Exchanges { allowed: true, last: None, row: 0 };

    #[test]
    fn short_exchanges_keep_the_driver_awake_until_too_many_are_late() {
        let (mut exchanges, mut now) = (ALLOWED, clock::now());
        let mut awake = |given: &[(u64, bool)]| turns(&mut exchanges, &mut now, given);
        assert_eq!(awake(&[(0, true)]), [false], "the first turn has none before it");
        assert_eq!(awake(&[(200, true); 15]), [false; 15]);
        assert_eq!(awake(&[(200, true); 1000]), [true; 1000]);
        assert_eq!(awake(&[(201, true); 4]), [true, true, true, false], "late ones use the row up");
        assert_eq!(awake(&[(30, true); 15]), [false; 15]);
        assert_eq!(awake(&[(30, true); 11]), [true; 11]);
        assert_eq!(awake(&[(201, true)]), [false]);
        let rest = awake(&[(30, true); 6]);
        assert_eq!(rest, [false, false, false, false, false, true], "ten were left of the row");
        assert_eq!(awake(&[(201, true); 100]), [false; 100], "the peer is too far");
    }

    #[test]
    fn turns_that_are_no_exchange_end_the_row() {
        let (mut exchanges, mut now) = (ALLOWED, clock::now());
        let mut awake = |given: &[(u64, bool)]| turns(&mut exchanges, &mut now, given);
        for _ in 0..10 {
            let row: Vec<_> = (0..ROW).map(|turn| (30, turn > 0)).collect();
            assert_eq!(awake(&row), vec![false; ROW as usize]);
        }
        assert_eq!(awake(&[(30, true); 100]).last(), Some(&true));
        assert_eq!(awake(&[(30, false)]), [false]);
        assert_eq!(awake(&[(30, true); 15]), [false; 15], "nothing is left of a long row");
    }

    #[test]
    fn a_driver_beside_other_threads_or_without_a_writer_sleeps() {
        let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        for runtime in [Some(several.handle()), None] {
            let (mut exchanges, mut now) = (Exchanges::new(runtime), clock::now());
            assert_eq!(turns(&mut exchanges, &mut now, &[(30, true); 100]), [false; 100]);
        }
    }
}
