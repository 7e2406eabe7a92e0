//! Random bits, and hash maps whose order follows from them.
//!
//! The engine draws everything random here: jitter, nonces, names and the order of hash maps. The
//! operating system seeds each draw. With the feature `simulation`, a thread that called `seed`
//! draws from a generator instead, so that a run of the simulator can be repeated.
#![allow(clippy::disallowed_types, reason = "the one place that gives them an order")]

#[cfg(not(feature = "simulation"))]
use std::hash::{BuildHasher, RandomState};

/// Unpredictable bits, different at each call.
#[cfg(not(feature = "simulation"))]
pub fn bits() -> u64 {
    // Each state is seeded by the operating system.
    RandomState::new().hash_one(0)
}

/// Hasher of [`HashMap`] and [`HashSet`].
#[cfg(not(feature = "simulation"))]
pub type Hash = RandomState;

/// A hash map of the standard library. Its order is random, and in a simulation repeatable.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Hash>;

/// A hash set of the standard library. Its order is random, and in a simulation repeatable.
pub type HashSet<T> = std::collections::HashSet<T, Hash>;

/// Number of this process, as a part of names.
#[cfg(not(feature = "simulation"))]
pub fn process() -> u32 {
    std::process::id()
}

#[cfg(feature = "simulation")]
mod simulation {
    use std::cell::Cell;
    use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

    thread_local! {
        /// State of SplitMix64, on a thread with a seed.
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Lets this thread draw from a generator with this seed, or from the operating system again.
    pub fn seed(seed: Option<u64>) {
        STATE.set(seed);
    }

    /// Bits that differ at each call, and on a thread with a seed follow from it.
    pub fn bits() -> u64 {
        let Some(state) = STATE.get() else { return RandomState::new().hash_one(0) };
        let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        STATE.set(Some(state));
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Number of this process, and on a thread with a seed always the same.
    pub fn process() -> u32 {
        if STATE.get().is_some() { 1 } else { std::process::id() }
    }

    /// Hasher of maps and sets.
    #[derive(Clone, Copy, Debug)]
    pub struct Hash(u64);

    impl Default for Hash {
        fn default() -> Self {
            Self(bits())
        }
    }

    impl BuildHasher for Hash {
        type Hasher = DefaultHasher;

        fn build_hasher(&self) -> DefaultHasher {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(self.0);
            hasher
        }
    }
}

#[cfg(feature = "simulation")]
pub use simulation::{Hash, bits, process, seed};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_differ() {
        assert_ne!(bits(), bits());
    }

    #[cfg(feature = "simulation")]
    #[test]
    fn a_seed_repeats_bits_and_the_order_of_maps() {
        let draw = || {
            seed(Some(7));
            let map: HashMap<u64, ()> = (0..100).map(|key| (key, ())).collect();
            let drawn = (bits(), map.into_keys().collect::<Vec<_>>());
            seed(None);
            drawn
        };
        assert_eq!(draw(), draw());
        assert_ne!(bits(), draw().0);
    }
}
