//! The limits on what bytes cost, for the tests beside this file and for the fuzz targets, which
//! include it.
#![allow(unreachable_pub, dead_code, reason = "the fuzz targets are other crates, and each uses a part")]

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Bytes read from a socket at once.
pub const READ: usize = 64 << 10;
/// Limit on the output queued for one connection, and the longest single answer behind it.
pub const OUTPUT: usize = (8 << 20) + (6 << 20);
/// Limit on one change of the store: a cursor keeps up to 4 MiB about parts of batches.
pub const CHANGE: usize = 5 << 20;
/// CPU time for each 64 KiB, in a release build.
pub const TIME: Duration = Duration::from_millis(50);
/// How much slower a build is that checks, and a processor that others use. The fuzz targets, with
/// their counters of branches, take 10 to 14 times as long as a release build.
pub const SLOWER: u32 = if cfg!(debug_assertions) { 30 } else { 3 };

/// A limit on the heap, as a multiple of the input and a base.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub factor: usize,
    pub base: usize,
}

/// Before the client is known.
pub const BEFORE: Limit = Limit { factor: 16, base: 64 << 10 };
/// Afterwards.
pub const AFTER: Limit = Limit { factor: 64, base: 1 << 20 };

/// What some input cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub input: usize,
    /// Highest number of bytes allocated at once, the output aside.
    pub heap: usize,
    /// Most output that was queued at once.
    pub output: usize,
    /// CPU time of all turns, and for each 64 KiB of its input that of the turn that took longest.
    pub time: Duration,
    pub turn: Duration,
    /// Bytes of the largest change of the store.
    pub change: usize,
}

impl Cost {
    /// Adds a turn that took so much CPU time and so many bytes of the input.
    pub fn took(&mut self, time: Duration, bytes: usize) {
        self.time += time;
        self.turn = self.turn.max(time / units(bytes));
    }

    /// The limit that is exceeded, if one is. `time` is that for each 64 KiB. If `turns` are what
    /// counts, each one has the time of the bytes that it took; if not, all of them together have
    /// that of the input.
    pub fn excess(&self, limit: Limit, time: Duration, turns: bool) -> Option<String> {
        let heap = limit.factor * self.input + limit.base;
        let (took, time) = if turns { (self.turn, time) } else { (self.time, time * units(self.input)) };
        if self.heap > heap {
            return Some(format!("{} bytes of heap, and {heap} are allowed", self.heap));
        }
        if self.output > OUTPUT {
            return Some(format!("{} bytes of output, and {OUTPUT} are allowed", self.output));
        }
        if self.change > CHANGE {
            return Some(format!("a change of {} bytes, and {CHANGE} are allowed", self.change));
        }
        (took > time).then(|| format!("{took:?} of CPU time, and {time:?} are allowed"))
    }
}

/// Input in units of 64 KiB, at least one.
fn units(bytes: usize) -> u32 {
    bytes.div_ceil(READ).max(1) as u32
}

/// CPU time of this thread.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
