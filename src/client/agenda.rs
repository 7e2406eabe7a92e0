//! Which users of a connection have something to do: its producers and consumers, or their
//! partitions.
//!
//! There may be ten thousand on one connection, and a turn of the driver comes with each receipt.
//! So a turn asks only those that
//!
//! * were woken with [`Wakes::add`], or were told something by the broker ([`Agenda::add`]), or
//! * had named a time, which has come.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::time::Instant;

use forebay_base::random::HashMap;
use forebay_base::sync::Mutex;

/// Identity of a user of a connection.
pub(super) trait Id: Copy + Ord + Hash {}

impl<T: Copy + Ord + Hash> Id for T {}

/// Users that were woken since the last turn. Needs no lock of the host.
#[derive(Debug)]
pub(super) struct Wakes<I>(Mutex<Vec<I>>);

impl<I> Default for Wakes<I> {
    fn default() -> Self {
        Self(Mutex::leaf(Vec::new()))
    }
}

impl<I: Id> Wakes<I> {
    /// Has the next turn ask `user`, once however often this is called. Each call takes a few bytes
    /// until then, so that frequent callers note that they have called.
    pub(super) fn add(&self, user: I) {
        self.0.lock().push(user);
    }
}

/// The users of a connection, with the time at which each is to be asked.
#[derive(Debug)]
pub(super) struct Agenda<I> {
    users: HashMap<I, Slot>,
    times: BTreeSet<(Instant, I)>,
    /// To be asked in this turn, or the next one. A user may stand in it more than once.
    due: Vec<I>,
    /// Number of the turn.
    turn: u64,
}

#[derive(Debug, Default)]
struct Slot {
    at: Option<Instant>,
    /// The turn in which it was asked last.
    asked: u64,
}

impl<I> Default for Agenda<I> {
    fn default() -> Self {
        Self { users: HashMap::default(), times: BTreeSet::new(), due: Vec::new(), turn: 0 }
    }
}

impl<I: Id> Agenda<I> {
    /// Adds a user, to be asked in the next turn.
    pub(super) fn insert(&mut self, user: I) {
        self.users.entry(user).or_default();
        self.add(user);
    }

    pub(super) fn remove(&mut self, user: I) {
        if let Some(Slot { at: Some(at), .. }) = self.users.remove(&user) {
            self.times.remove(&(at, user));
        }
    }

    /// Has the next turn ask `user`.
    pub(super) fn add(&mut self, user: I) {
        // Entries and receipts come in runs.
        if self.due.last() != Some(&user) {
            self.due.push(user);
        }
    }

    /// Begins a turn: those that were woken, and those whose time has come, are asked with
    /// [`Self::next`].
    pub(super) fn begin(&mut self, now: Instant, wakes: &Wakes<I>) {
        self.turn += 1;
        self.due.append(&mut wakes.0.lock());
        while let Some(&(at, user)) = self.times.first().filter(|(at, _)| *at <= now) {
            self.times.remove(&(at, user));
            if let Some(slot) = self.users.get_mut(&user) {
                slot.at = None;
            }
            self.due.push(user);
        }
    }

    /// The next user to be asked, each once in a turn.
    pub(super) fn next(&mut self) -> Option<I> {
        while let Some(user) = self.due.pop() {
            if let Some(slot) = self.users.get_mut(&user).filter(|slot| slot.asked != self.turn) {
                slot.asked = self.turn;
                return Some(user);
            }
        }
        None
    }

    /// Notes the time at which `user` is to be asked again, unless it is woken before.
    pub(super) fn ask_again(&mut self, user: I, at: Option<Instant>) {
        let Some(slot) = self.users.get_mut(&user) else { return };
        if slot.at == at {
            return;
        }
        if let Some(before) = std::mem::replace(&mut slot.at, at) {
            self.times.remove(&(before, user));
        }
        if let Some(at) = at {
            self.times.insert((at, user));
        }
    }

    /// Time of the next turn that is needed without a wake-up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: u8 = 1;
    const B: u8 = 2;
    const C: u8 = 3;

    fn turn(agenda: &mut Agenda<u8>, now: Instant, wakes: &Wakes<u8>) -> Vec<u8> {
        agenda.begin(now, wakes);
        let mut asked: Vec<_> = std::iter::from_fn(|| agenda.next()).collect();
        asked.sort_unstable();
        asked
    }

    #[test]
    fn a_turn_asks_those_that_were_woken_told_something_or_are_due_each_once() {
        let (mut agenda, wakes, start) = (Agenda::default(), Wakes::<u8>::default(), Instant::now());
        [A, B, C].into_iter().for_each(|user| agenda.insert(user));
        assert_eq!(turn(&mut agenda, start, &wakes), [A, B, C]);
        assert!(turn(&mut agenda, start, &wakes).is_empty());

        wakes.add(A);
        wakes.add(B);
        wakes.add(A);
        agenda.add(B);
        assert_eq!(turn(&mut agenda, start, &wakes), [A, B]);

        let later = start + Duration::from_secs(1);
        agenda.ask_again(A, Some(later));
        agenda.ask_again(B, Some(later));
        agenda.ask_again(C, Some(later + Duration::from_secs(1)));
        agenda.ask_again(B, None);
        assert_eq!(agenda.deadline(), Some(later));
        assert!(turn(&mut agenda, start, &wakes).is_empty());
        wakes.add(A);
        assert_eq!(turn(&mut agenda, later, &wakes), [A]);
        assert_eq!(agenda.deadline(), Some(later + Duration::from_secs(1)));
        // It named no other time when it was asked.
        assert!(turn(&mut agenda, later, &wakes).is_empty());
    }

    #[test]
    fn a_user_that_has_work_left_is_asked_in_the_next_turn_and_not_twice_in_this_one() {
        let (mut agenda, wakes, now) = (Agenda::default(), Wakes::<u8>::default(), Instant::now());
        agenda.insert(A);
        agenda.begin(now, &wakes);
        assert_eq!(agenda.next(), Some(A));
        agenda.ask_again(A, Some(now));
        assert_eq!(agenda.next(), None);
        assert_eq!(turn(&mut agenda, now, &wakes), [A]);
    }

    #[test]
    fn a_user_that_is_gone_is_not_asked_and_leaves_nothing_behind() {
        let (mut agenda, wakes, now) = (Agenda::default(), Wakes::<u8>::default(), Instant::now());
        agenda.insert(A);
        agenda.ask_again(A, Some(now));
        wakes.add(A);
        agenda.remove(A);
        wakes.add(B);
        assert!(turn(&mut agenda, now, &wakes).is_empty());
        assert_eq!(agenda.deadline(), None);
        agenda.ask_again(A, Some(now));
        assert_eq!(agenda.deadline(), None);
        assert!(agenda.times.is_empty() && agenda.users.is_empty() && agenda.due.is_empty());
    }
}
