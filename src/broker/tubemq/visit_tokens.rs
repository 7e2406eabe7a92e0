//! Visit tokens: what the master gives to a user with a valid signature, and what the broker takes
//! for one. Each user has tokens of their own, so that the broker knows whose call it is. They
//! change with each period and are valid for two.

use std::sync::Arc;

use forebay_base::random::{self, HashMap};

/// The tokens of one period.
#[derive(Default)]
struct Period {
    tokens: HashMap<Arc<str>, i64>,
    users: HashMap<i64, Arc<str>>,
}

/// The valid visit tokens.
pub(super) struct VisitTokens {
    /// Makes tokens different from those of other runs.
    seed: u64,
    current: Period,
    previous: Period,
    /// Stands for every client if there are no users.
    anyone: Arc<str>,
}

impl std::fmt::Debug for VisitTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VisitTokens").field("users", &self.current.tokens.len()).finish_non_exhaustive()
    }
}

impl VisitTokens {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, current: Period::default(), previous: Period::default(), anyone: Arc::from("") }
    }

    /// The user of a broker without users.
    pub(super) fn anyone(&self) -> Arc<str> {
        self.anyone.clone()
    }

    /// The present token of a user.
    pub(super) fn token(&mut self, user: &Arc<str>) -> i64 {
        if let Some(token) = self.current.tokens.get(user) {
            return *token;
        }
        // It must not be predictable from others.
        let token = ((random::bits() ^ self.seed) >> 1) as i64;
        self.current.tokens.insert(user.clone(), token);
        self.current.users.insert(token, user.clone());
        token
    }

    /// The user of a token of this period or the last.
    pub(super) fn user(&self, token: i64) -> Option<Arc<str>> {
        self.current.users.get(&token).or_else(|| self.previous.users.get(&token)).cloned()
    }

    /// Ends the tokens of all users but these.
    pub(super) fn keep(&mut self, keep: impl Fn(&str) -> bool) {
        for period in [&mut self.current, &mut self.previous] {
            period.tokens.retain(|user, _| keep(user));
            period.users.retain(|_, user| keep(user));
        }
    }

    /// Begins a new period.
    pub(super) fn turn(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_user_for_two_periods() {
        let mut visits = VisitTokens::new(7);
        let (alice, mallory): (Arc<str>, Arc<str>) = ("alice".into(), "mallory".into());
        let first = visits.token(&alice);
        assert_eq!(visits.token(&alice), first);
        assert_ne!(visits.token(&mallory), first);
        visits.turn();
        let second = visits.token(&alice);
        assert_ne!(first, second);
        assert_eq!((visits.user(first), visits.user(second)), (Some(alice.clone()), Some(alice.clone())));
        visits.turn();
        assert_eq!((visits.user(first), visits.user(second)), (None, Some(alice)));
        assert_eq!(visits.user(first.wrapping_add(1)), None);
    }
}
