//! Memory that a peak of load has left behind: it goes back to the system when the broker is idle.
//!
//! The allocator of glibc keeps freed memory for the next peak. Other allocators have rules of
//! their own, and nothing is done there.

use std::cell::Cell;

use crate::mqtt;

/// Growth of the process's memory since the last time, in bytes, that is worth looking for.
const GROWTH: u64 = 64 << 20;
/// Seconds without load after which memory is returned.
const QUIET: u32 = 10;
/// Turns of connections in a second that are no load, such as those of keep-alives.
const FEW_TURNS: u64 = 100;

/// Watches for the end of a peak.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    turns: Cell<u64>,
    /// Whether there was load since the last time: what other parts of a process hold is theirs.
    loaded: Cell<bool>,
    quiet: Cell<u32>,
    /// Memory of the process after the last time.
    lowest: Cell<u64>,
}

impl Peaks {
    /// Counts a turn of a connection.
    pub(super) fn count(&self) {
        self.turns.set(self.turns.get() + 1);
    }

    /// Ends a second in which the process has `resident` bytes. Returns whether to return memory.
    fn tick(&self, resident: impl FnOnce() -> Option<u64>) -> bool {
        let is_quiet = self.turns.take() <= FEW_TURNS;
        self.loaded.set(self.loaded.get() || !is_quiet);
        self.quiet.set(if is_quiet { self.quiet.get() + 1 } else { 0 });
        if self.quiet.get() < QUIET {
            return false;
        }
        self.quiet.set(0);
        let Some(resident) = resident() else { return false };
        let lowest = self.lowest.get();
        if lowest == 0 || resident < lowest {
            self.lowest.set(resident);
        }
        let has_grown = resident >= self.lowest.get() + GROWTH && self.loaded.take();
        if has_grown {
            // The next tick notes how much is left.
            self.lowest.set(0);
        }
        has_grown
    }

    /// Ends a second, and returns memory if it is time.
    pub(super) async fn end_second(&self) {
        #[cfg(feature = "simulation")]
        if forebay_net::simulation::network().is_some() {
            return;
        }
        if self.tick(resident) {
            let _ = tokio::task::spawn_blocking(|| {
                mqtt::forget_memory();
                trim();
            })
            .await;
        }
    }
}

/// Bytes of the process that are in memory, where the system tells.
fn resident() -> Option<u64> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "no crate has this function of glibc")]
fn trim() {
    // SAFETY: it takes a number and may be called from any thread.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn seconds(peaks: &Peaks, count: u32, turns: u64, resident: u64) -> usize {
        let second = |_: &u32| {
            (0..turns).for_each(|_| peaks.count());
            peaks.tick(|| Some(resident))
        };
        (0..count).filter(second).count()
    }

    #[test]
    fn memory_is_returned_once_after_a_peak_and_not_under_load() {
        let peaks = Peaks::default();
        assert_eq!(seconds(&peaks, 100, 0, 50 * MIB), 0, "nothing has grown");
        assert_eq!(seconds(&peaks, 100, 5000, 400 * MIB), 0, "under load");
        assert_eq!(seconds(&peaks, 9, 50, 400 * MIB), 0, "not yet");
        assert_eq!(seconds(&peaks, 1, 50, 400 * MIB), 1);
        assert_eq!(seconds(&peaks, 100, 50, 90 * MIB), 0);
        assert_eq!(seconds(&peaks, 100, 50, 153 * MIB), 0, "hardly more");
        assert_eq!(seconds(&peaks, 10, 50, 154 * MIB), 0, "not by the broker");
        assert_eq!(seconds(&peaks, 1, 5000, 154 * MIB), 0);
        assert_eq!(seconds(&peaks, 10, 50, 154 * MIB), 1, "another peak");
        assert_eq!(seconds(&peaks, 100, 50, 154 * MIB), 0, "it is in use");
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn freed_memory_is_returned() {
        let block = || vec![1_u8; 8 << 10];
        let returned = |_: &u32| {
            // Between two that stay, so that none is at the end of the heap.
            let (mut kept, mut freed) = (Vec::new(), Vec::new());
            for n in 0..16_384 {
                freed.push(block());
                if n % 64 == 0 {
                    kept.push(block());
                }
            }
            drop(freed);
            let before = resident().unwrap();
            trim();
            assert_eq!(kept.len(), 256);
            resident().unwrap() + (64 << 20) < before
        };
        // Other tests of the process use memory meanwhile, but not each time.
        assert!((0..30).any(|n| returned(&n)));
    }
}
