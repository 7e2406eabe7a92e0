//! The events of a run in their order, as a hash: two runs of a seed have the same.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::{self, Arguments, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::support::seeds;

thread_local! {
    static HASH: Cell<u64> = const { Cell::new(0) };
    static START: Cell<Option<tokio::time::Instant>> = const { Cell::new(None) };
    static CELLS: RefCell<BTreeMap<(&'static str, &'static str), u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Begins a run.
pub(crate) fn begin() {
    HASH.set(0);
    START.set(Some(tokio::time::Instant::now()));
    CELLS.take();
}

/// Takes text as it is formatted.
struct Text(DefaultHasher);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Adds an event. It is printed when a run is replayed.
pub(crate) fn event(event: Arguments<'_>) {
    let at = START.get().map_or(0, |start| start.elapsed().as_micros() as u64);
    let mut text = Text(DefaultHasher::new());
    (HASH.get(), at).hash(&mut text.0);
    text.write_fmt(event).expect("a hasher takes all");
    HASH.set(text.0.finish());
    seeds::trace(format_args!("{:>12.6} {event}", at as f64 / 1e6));
}

/// Adds bytes that were delivered, without printing them.
pub(crate) fn bytes(link: u64, up: bool, bytes: &[u8]) {
    let at = START.get().map_or(0, |start| start.elapsed().as_micros() as u64);
    let mut hasher = DefaultHasher::new();
    (HASH.get(), at, link, up, bytes).hash(&mut hasher);
    HASH.set(hasher.finish());
}

/// The hash of all events since the begin.
pub(crate) fn hash() -> u64 {
    HASH.get()
}

/// Counts a fault and the state that it hit.
pub(crate) fn hit(fault: &'static str, state: &'static str) {
    CELLS.with_borrow_mut(|cells| *cells.entry((fault, state)).or_default() += 1);
}

/// The counts since the begin.
pub(crate) fn cells() -> BTreeMap<(&'static str, &'static str), u64> {
    CELLS.with_borrow(Clone::clone)
}
