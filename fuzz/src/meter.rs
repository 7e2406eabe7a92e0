//! What some steps cost in memory and time.

use crate::rule::{Cost, Limit, SLOWER, TIME, cpu};

/// Counts what is allocated, and the time of each step. What a step leaves behind counts until
/// another one frees it.
#[derive(Debug, Default)]
pub struct Meter {
    held: i64,
    cost: Cost,
    /// Most bytes that were there at once.
    peak: i64,
    /// Whether the longest step is what counts; if not, it is the sum of all.
    pub turns: bool,
}

impl Meter {
    /// A step that takes no input.
    pub fn run<T>(&mut self, step: impl FnOnce() -> T) -> T {
        self.turn(|| (step(), 0))
    }

    /// A step that takes as many bytes of the input as it says.
    pub fn turn<T>(&mut self, step: impl FnOnce() -> (T, usize)) -> T {
        let start = cpu();
        let mut result = None;
        let heap = allocation_counter::measure(|| result = Some(step()));
        let took = cpu().saturating_sub(start);
        let (result, bytes) = result.expect("the step was made");
        self.cost.took(took, bytes);
        self.peak = self.peak.max(self.held + heap.bytes_max as i64);
        self.held += heap.bytes_current;
        result
    }

    /// Notes that so many bytes came in.
    pub fn came(&mut self, bytes: usize) {
        self.cost.input += bytes;
    }

    /// Notes that so many bytes of output were queued.
    pub fn went(&mut self, bytes: usize) {
        self.cost.output = self.cost.output.max(bytes);
    }

    /// Notes a change of the store.
    pub fn changed(&mut self, bytes: usize) {
        self.cost.change = self.cost.change.max(bytes);
    }

    /// What was spent. `queued` is the output that is still there.
    pub fn cost(&self) -> Cost {
        // The queue of the output: when it grows, its old buffer and one of twice the size are
        // there.
        let heap = usize::try_from(self.peak).unwrap_or_default().saturating_sub(3 * self.cost.output);
        Cost { heap, ..self.cost }
    }

    /// Panics if more was spent than the input explains. `connections` have a base each.
    pub fn check(&self, limit: Limit, connections: usize) {
        let limit = Limit { base: limit.base * connections, ..limit };
        if let Some(excess) = self.cost().excess(limit, TIME * SLOWER, self.turns) {
            panic!("{excess}: {:?}", self.cost());
        }
    }
}
