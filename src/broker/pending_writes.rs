//! A protocol's changes on their way to the store, and the actions that wait until they are
//! written.
//!
//! ```text
//!   write ───────────┐
//!                    ▼
//!   open ──close──► issued ──poll_op──► with the writer ──handle_report──► written
//!                                                             └─ on failure ──► failed
//! ```
//! Changes are numbered from 1 as they are issued, and the store reports them in that order. So one
//! number says how far it is, and one queue is enough for all waiting actions: an action enters
//! with the number of the last issued change ([`PendingWrites::when_written`]) and leaves once that
//! change is reported ([`PendingWrites::poll_action`]). Actions keep their order, those that depend
//! on no change included: no answer overtakes another.
//!
//! After a failure no action waits forever: every action still leaves the queue, and its handler
//! checks [`PendingWrites::failure`] first. A change may also fail alone; then
//! [`PendingWrites::outcome`] tells the action whose last change it was.
//!
//! Received messages stay in memory until they are written. Their bytes are charged to the sending
//! connection as long as the action that answers them waits. A connection with too many such bytes
//! is not read from ([`PendingWrites::may_read`]) until the store has caught up
//! ([`PendingWrites::take_resumed`]).

use std::collections::{BTreeSet, VecDeque};

use crate::store::{Op, StoreUsage};
use forebay_base::error::Error;
use forebay_base::random::HashMap;
use forebay_sqlite::{Outcome, Report};

/// Unwritten bytes of one connection beyond which it is not read from.
const CONNECTION_LIMIT: usize = 16 << 20;
/// Unwritten bytes of all connections beyond which none is read from.
const TOTAL_LIMIT: usize = 64 << 20;

#[derive(Debug)]
struct Waiting<A> {
    /// Number of the last change that the action waits for.
    change: u64,
    /// Whether a change was issued for it; else it only keeps its place behind the others.
    own: bool,
    action: A,
    /// Bytes charged for it, and the connection they are charged to.
    bytes: usize,
    connection: u64,
}

/// Changes on their way to the store, as the [module](self) describes. `A` is an action that waits
/// for them.
#[derive(Debug)]
pub(super) struct PendingWrites<A> {
    ops: VecDeque<Op>,
    issued: u64,
    written: u64,
    waiting: VecDeque<Waiting<A>>,
    /// Unwritten bytes by the connection that sent them, and their sum.
    charged: HashMap<u64, usize>,
    total: usize,
    /// Connections that are not read from until the store has caught up.
    paused: BTreeSet<u64>,
    /// Whether the store still frees room that changes have made.
    is_cleaning_up: bool,
    failed: Option<Error>,
    /// Why the store cannot write at the moment.
    stalled: Option<Error>,
    /// Changes that failed alone and that an action waits for.
    rejected: VecDeque<(u64, Error)>,
    /// Why the last change of the action that was polled last failed alone.
    refused: Option<Error>,
    usage: StoreUsage,
    /// Whether the store's reports say how much is used.
    stored: bool,
    /// Bytes that this protocol uses in memory.
    own: u64,
}

impl<A> PendingWrites<A> {
    /// For a store that has `used` bytes, or for memory.
    pub(super) fn new(usage: StoreUsage, stored: bool, used: u64) -> Self {
        if stored {
            usage.set(used);
        }
        Self {
            ops: VecDeque::new(),
            issued: 0,
            written: 0,
            waiting: VecDeque::new(),
            charged: HashMap::default(),
            total: 0,
            paused: BTreeSet::new(),
            is_cleaning_up: false,
            failed: None,
            stalled: None,
            rejected: VecDeque::new(),
            refused: None,
            usage,
            stored,
            own: 0,
        }
    }

    /// Number of the last change that was issued.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Number of the last change that was reported.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The failure after which nothing is written.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Why the store cannot write at the moment. It tries again, and nothing is acknowledged
    /// meanwhile.
    pub(super) fn stalled(&self) -> Option<String> {
        self.stalled.as_ref().map(ToString::to_string)
    }

    /// Whether the store cannot write at the moment.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Why the action that was polled last did not get what it waited for: the failure of the
    /// store, or that of the action's last change alone.
    pub(super) fn outcome(&self) -> Option<&Error> {
        self.failed.as_ref().or(self.refused.as_ref())
    }

    /// Bytes that all protocols use, in the store or in memory.
    pub(super) fn used(&self) -> u64 {
        self.usage.total()
    }

    /// Whether the store still frees room that changes have made, so that less will be in use.
    pub(super) fn is_cleaning_up(&self) -> bool {
        self.is_cleaning_up
    }

    /// The number of bytes at which nothing more is accepted.
    pub(super) fn limit(&self, max_store: u64) -> u64 {
        self.usage.limit(max_store)
    }

    /// Whether nothing more is accepted.
    pub(super) fn is_full(&self, max_store: u64) -> bool {
        self.used() >= self.limit(max_store)
    }

    /// The refusal when it is full.
    pub(super) fn reason(&self, max_store: u64) -> String {
        self.usage.reason(max_store)
    }

    /// Bytes of memory that the other protocols use.
    pub(super) fn used_by_others(&self) -> u64 {
        self.usage.total().saturating_sub(self.own)
    }

    /// Without a store, the protocol counts the bytes that it uses.
    pub(super) fn set_used(&mut self, bytes: u64) {
        self.usage.replace(self.own, bytes);
        self.own = bytes;
    }

    /// Without a store, counts the bytes of a message as used, ahead of the next
    /// [`Self::set_used`].
    pub(super) fn add_used(&mut self, bytes: usize) {
        if !self.stored {
            self.set_used(self.own + bytes as u64);
        }
    }

    /// Without a store, counts bytes as no longer used.
    pub(super) fn sub_used(&mut self, bytes: usize) {
        self.set_used(self.own.saturating_sub(bytes as u64));
    }

    /// Issues a change.
    pub(super) fn write(&mut self, op: Op) {
        self.open();
        self.close(op);
    }

    /// Issues a change that is not complete yet: it takes its number now.
    pub(super) fn open(&mut self) {
        self.issued += 1;
    }

    /// Completes the change that was opened last.
    pub(super) fn close(&mut self, op: Op) {
        self.ops.push_back(op);
        debug_assert!(self.written + self.ops.len() as u64 <= self.issued, "each change was opened");
    }

    /// The next change for the writer.
    pub(super) fn poll_op(&mut self) -> Option<Op> {
        self.ops.pop_front()
    }

    /// Keeps the action until every change issued so far is written. Returns it if that is so
    /// already and no other action waits.
    #[must_use = "a returned action must be done now"]
    pub(super) fn when_written(&mut self, action: A) -> Option<A> {
        self.when_written_charging(0, 0, action)
    }

    /// Like [`Self::when_written`]; as long as the action waits, the bytes are charged to the
    /// connection.
    #[must_use = "a returned action must be done now"]
    pub(super) fn when_written_charging(&mut self, connection: u64, bytes: usize, action: A) -> Option<A> {
        if self.issued == self.written && self.waiting.is_empty() {
            return Some(action);
        }
        if bytes > 0 {
            *self.charged.entry(connection).or_default() += bytes;
            self.total += bytes;
        }
        let own = self.waiting.back().map_or(self.issued > self.written, |last| self.issued > last.change);
        self.waiting.push_back(Waiting { change: self.issued, own, action, bytes, connection });
        None
    }

    /// Whether the connection is not read from until the store has caught up.
    pub(super) fn is_paused(&self, connection: u64) -> bool {
        self.paused.contains(&connection)
    }

    /// Handles a report of the store.
    pub(super) fn handle_report(&mut self, report: Report) {
        self.written += report.jobs;
        debug_assert!(
            self.written + self.ops.len() as u64 <= self.issued,
            "every reported change was issued"
        );
        // Any other outcome is that of a store that goes on, or ends for another reason.
        self.stalled = None;
        match report.outcome {
            Outcome::Written(used) | Outcome::CleaningUp(used) => {
                if self.stored {
                    self.usage.set(used);
                }
                self.is_cleaning_up |= matches!(report.outcome, Outcome::CleaningUp(_));
            }
            Outcome::CleanedUp => self.is_cleaning_up = false,
            Outcome::Waiting(error) => self.stalled = Some(error),
            // Without a change of this protocol, it only says that the store goes on.
            Outcome::Rejected(_) if report.jobs == 0 => {}
            Outcome::Rejected(error) => self.rejected.push_back((self.written, error)),
            Outcome::Failed(error) => self.failed = Some(error),
        }
    }

    /// The next action that is due.
    pub(super) fn poll_action(&mut self) -> Option<A> {
        self.refused = None;
        if self.waiting.front().is_none_or(|next| next.change > self.written) {
            // Every action that waited for a change up to here has been told.
            self.rejected.clear();
            return None;
        }
        let Waiting { change, own, action, bytes, connection } = self.waiting.pop_front()?;
        self.rejected.retain(|(rejected, _)| *rejected >= change);
        self.refused =
            self.rejected.front().filter(|(rejected, _)| own && *rejected == change).map(|(_, e)| e.clone());
        if bytes > 0 {
            self.total -= bytes;
            if let Some(charged) = self.charged.get_mut(&connection) {
                *charged -= bytes;
                if *charged == 0 {
                    self.charged.remove(&connection);
                }
            }
        }
        debug_assert!(!self.waiting.is_empty() || self.total == 0, "only what waits is charged");
        Some(action)
    }

    /// Whether the connection may be read from. If not, [`Self::take_resumed`] names it later.
    pub(super) fn may_read(&mut self, connection: u64) -> bool {
        let own = self.charged.get(&connection).copied().unwrap_or_default();
        let full = self.total > TOTAL_LIMIT || own > CONNECTION_LIMIT;
        if full {
            self.paused.insert(connection);
        }
        !full
    }

    /// Paused connections for which [`Self::may_read`] should be asked again.
    pub(super) fn take_resumed(&mut self) -> BTreeSet<u64> {
        if self.total > TOTAL_LIMIT { BTreeSet::new() } else { std::mem::take(&mut self.paused) }
    }
}

impl<A> Drop for PendingWrites<A> {
    fn drop(&mut self) {
        self.usage.replace(self.own, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::error::ErrorKind;

    fn commits(used: u64) -> PendingWrites<u32> {
        PendingWrites::new(StoreUsage::default(), true, used)
    }

    fn op() -> Op {
        Op::Epoch { topic: 1, epoch: 1 }
    }

    /// The writer takes the oldest changes and writes them; gives what is done then.
    fn written(commits: &mut PendingWrites<u32>, jobs: u64) -> Vec<u32> {
        (0..jobs).for_each(|_| assert!(commits.poll_op().is_some()));
        commits.handle_report(Report { jobs, outcome: Outcome::Written(7) });
        std::iter::from_fn(|| commits.poll_action()).collect()
    }

    #[test]
    fn an_action_waits_for_all_that_was_asked_before_it_and_for_nothing_after() {
        let mut commits = commits(0);
        assert_eq!(commits.when_written(0), Some(0), "nothing is asked for");
        commits.write(op());
        commits.write(op());
        assert_eq!(commits.when_written(1), None);
        commits.write(op());
        assert_eq!(commits.when_written(2), None);
        assert!(written(&mut commits, 1).is_empty());
        assert_eq!(written(&mut commits, 1), [1]);
        assert_eq!((commits.issued(), commits.written()), (3, 2));
        assert_eq!(written(&mut commits, 1), [2]);
        assert_eq!(commits.when_written(3), Some(3));
        assert_eq!(commits.used(), 7);
    }

    #[test]
    fn an_action_that_is_due_does_not_overtake_one_that_waits() {
        let mut commits = commits(0);
        commits.write(op());
        assert_eq!((commits.when_written(1), commits.when_written(2)), (None, None));
        commits.poll_op();
        commits.handle_report(Report { jobs: 1, outcome: Outcome::Written(0) });
        assert_eq!(commits.poll_action(), Some(1));
        assert_eq!(commits.when_written(3), None, "2 has not been done");
        assert_eq!((commits.poll_action(), commits.poll_action()), (Some(2), Some(3)));
        assert_eq!(commits.poll_action(), None);
    }

    #[test]
    fn a_change_has_its_number_before_it_is_complete() {
        let mut commits = commits(0);
        commits.open();
        assert_eq!(commits.when_written(1), None);
        assert_eq!((commits.issued(), commits.poll_op()), (1, None));
        commits.close(op());
        assert_eq!(written(&mut commits, 1), [1]);
    }

    #[test]
    fn after_a_failure_nothing_waits_for_ever() {
        let mut commits = commits(5);
        commits.write(op());
        assert_eq!(commits.when_written_charging(1, CONNECTION_LIMIT + 1, 1), None);
        assert!(!commits.may_read(1));
        commits.poll_op();
        let error = Error::new(ErrorKind::Persistence, "the disk is full");
        commits.handle_report(Report { jobs: 1, outcome: Outcome::Failed(error) });
        assert_eq!(commits.poll_action(), Some(1));
        assert!(commits.may_read(1));
        assert_eq!(commits.failure().unwrap().message(), "the disk is full");
        assert_eq!(commits.used(), 5);
    }

    #[test]
    fn while_the_store_tries_again_everything_waits_and_the_reason_is_known() {
        let mut commits = commits(0);
        commits.write(op());
        assert_eq!(commits.when_written(1), None);
        commits.poll_op();
        let error = Error::new(ErrorKind::Persistence, "the disk is full");
        commits.handle_report(Report { jobs: 0, outcome: Outcome::Waiting(error) });
        assert_eq!((commits.poll_action(), commits.failure()), (None, None));
        assert!(commits.stalled().unwrap().contains("the disk is full") && commits.is_stalled());
        commits.handle_report(Report { jobs: 1, outcome: Outcome::Written(3) });
        assert_eq!((commits.poll_action(), commits.stalled()), (Some(1), None));
        assert!(!commits.is_stalled());
    }

    #[test]
    fn a_store_that_goes_on_with_a_change_that_fails_alone_no_longer_waits() {
        let error = || Error::new(ErrorKind::Persistence, "the disk is full");
        // Of this protocol's changes, or of another's.
        for jobs in [1, 0] {
            let mut commits = commits(0);
            for action in 1..=2 {
                commits.write(op());
                assert_eq!(commits.when_written(action), None);
                commits.poll_op();
            }
            commits.handle_report(Report { jobs: 1, outcome: Outcome::Written(3) });
            commits.handle_report(Report { jobs: 0, outcome: Outcome::Waiting(error()) });
            assert!(commits.stalled().is_some());
            commits.handle_report(Report { jobs, outcome: Outcome::Rejected(error()) });
            assert!(commits.stalled().is_none());
            assert_eq!(commits.poll_action(), Some(1));
            assert!(commits.outcome().is_none(), "its change is written");
        }
    }

    #[test]
    fn a_change_that_fails_alone_is_not_told_to_an_action_that_waits_for_its_turn_only() {
        let mut commits = commits(5);
        commits.write(op());
        assert_eq!((commits.when_written(1), commits.when_written(2)), (None, None));
        commits.write(op());
        assert_eq!(commits.when_written(3), None);
        while commits.poll_op().is_some() {}
        let error = || Error::new(ErrorKind::Persistence, "too big");
        commits.handle_report(Report { jobs: 1, outcome: Outcome::Rejected(error()) });
        commits.handle_report(Report { jobs: 1, outcome: Outcome::Rejected(error()) });
        let mut outcomes = Vec::new();
        while let Some(action) = commits.poll_action() {
            outcomes.push((action, commits.outcome().is_some()));
        }
        assert_eq!(outcomes, [(1, true), (2, false), (3, true)]);
    }

    #[test]
    fn a_change_that_fails_alone_is_told_to_its_action_and_to_no_other() {
        let mut commits = commits(5);
        for action in 1..=3 {
            commits.write(op());
            assert_eq!(commits.when_written(action), None);
            commits.poll_op();
        }
        let error = Error::new(ErrorKind::Persistence, "too big");
        commits.handle_report(Report { jobs: 1, outcome: Outcome::Written(6) });
        commits.handle_report(Report { jobs: 1, outcome: Outcome::Rejected(error) });
        commits.handle_report(Report { jobs: 1, outcome: Outcome::Written(7) });
        let mut outcomes = Vec::new();
        while let Some(action) = commits.poll_action() {
            outcomes.push((action, commits.outcome().is_some()));
        }
        assert_eq!(outcomes, [(1, false), (2, true), (3, false)]);
        assert!(commits.failure().is_none() && commits.outcome().is_none());
        assert_eq!(commits.used(), 7);
    }

    #[test]
    fn who_sends_faster_than_the_store_writes_is_not_read_from_until_it_has_caught_up() {
        let mut commits = commits(0);
        commits.write(op());
        assert_eq!(commits.when_written_charging(1, CONNECTION_LIMIT, 1), None);
        assert!(commits.may_read(1));
        assert_eq!(commits.when_written_charging(1, 1, 2), None);
        assert!(!commits.is_paused(1) && !commits.may_read(1) && commits.is_paused(1));
        assert!(commits.may_read(2) && !commits.is_paused(2), "the others have room");
        assert_eq!(written(&mut commits, 1), [1, 2]);
        assert_eq!(commits.take_resumed(), BTreeSet::from([1]));
        assert_eq!(commits.take_resumed().len(), 0);
        assert!(commits.may_read(1));
    }

    #[test]
    fn what_is_written_is_no_longer_charged_and_what_waits_still_is() {
        let mut commits = commits(0);
        for (bytes, action) in [(CONNECTION_LIMIT / 2, 1), (CONNECTION_LIMIT, 2), (1, 3)] {
            commits.write(op());
            assert_eq!(commits.when_written_charging(1, bytes, action), None);
        }
        assert!(!commits.may_read(1));
        assert_eq!(written(&mut commits, 1), [1]);
        assert!(!commits.may_read(1), "the second and the third wait, and are a byte too many");
        assert_eq!(written(&mut commits, 1), [2]);
        assert!(commits.may_read(1));
        commits.write(op());
        assert_eq!(commits.when_written_charging(1, CONNECTION_LIMIT, 4), None);
        assert!(!commits.may_read(1), "the byte of the third still counts");
        assert_eq!(written(&mut commits, 2), [3, 4]);
        assert!(commits.may_read(1));
    }

    #[test]
    fn each_may_have_as_much_in_memory_as_the_limits_say() {
        let mut commits = commits(0);
        commits.write(op());
        let connections = (TOTAL_LIMIT / CONNECTION_LIMIT) as u64;
        for connection in 0..connections {
            assert_eq!(commits.when_written_charging(connection, CONNECTION_LIMIT, 0), None);
        }
        assert!((0..=connections).all(|connection| commits.may_read(connection)));
        assert_eq!(commits.when_written_charging(connections, 1, 0), None);
        assert!((0..=connections).all(|connection| !commits.may_read(connection)));
        // What is done leaves exactly the limit.
        let mut commits = self::commits(0);
        commits.write(op());
        assert_eq!(commits.when_written_charging(9, 1, 0), None);
        commits.write(op());
        assert_eq!(commits.when_written_charging(9, TOTAL_LIMIT, 1), None);
        assert!(!commits.may_read(8));
        assert_eq!(written(&mut commits, 1), [0]);
        assert_eq!(commits.take_resumed(), BTreeSet::from([8]));
        assert!(commits.may_read(8));
    }

    #[test]
    fn what_a_protocol_has_in_memory_counts_until_it_ends() {
        let usage = StoreUsage::default();
        let mut one: PendingWrites<u32> = PendingWrites::new(usage.clone(), false, 0);
        let mut other: PendingWrites<u32> = PendingWrites::new(usage.clone(), false, 0);
        one.set_used(5);
        other.set_used(7);
        assert_eq!((one.used(), one.used_by_others(), other.used_by_others()), (12, 7, 5));
        one.set_used(2);
        assert_eq!((other.used(), other.used_by_others()), (9, 2));
        drop(one);
        assert_eq!((other.used(), other.used_by_others()), (7, 0));
        let stored: PendingWrites<u32> = PendingWrites::new(StoreUsage::default(), true, 11);
        assert_eq!(stored.used(), 11, "the store is not empty when it is opened");
    }

    #[test]
    fn all_together_may_not_have_too_much_in_memory() {
        let mut commits = commits(0);
        commits.write(op());
        for connection in 0..5 {
            assert_eq!(commits.when_written_charging(connection, CONNECTION_LIMIT, 0), None);
        }
        assert!(!commits.may_read(9), "it has nothing, but there is no room");
        assert_eq!(commits.take_resumed().len(), 0);
        assert_eq!(written(&mut commits, 1).len(), 5);
        assert_eq!(commits.take_resumed(), BTreeSet::from([9]));
    }

    #[test]
    fn a_message_is_counted_at_once_where_no_store_counts_it() {
        for (stored, expected) in [(true, 100), (false, 120)] {
            let mut commits = PendingWrites::<u32>::new(StoreUsage::default(), stored, 0);
            commits.set_used(100);
            commits.add_used(20);
            assert_eq!(commits.used(), expected, "with a store: {stored}");
        }
    }
}
