//! The faults of a run. Each seed draws a swarm: which kinds may occur at all, and how often each
//! does.

use std::rc::Rc;

use super::host::Host;
use super::trace;
use crate::support::chance::Chance;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Cut,
    CutAll,
    Stall,
    Partition,
    Refuse,
    NoNames,
    Kill,
    Restart,
    FullDisk,
    BrokenDisk,
    ClockBack,
    ClockForward,
    ClockWeek,
    ClockEpoch,
    Burst,
}

impl Fault {
    pub(crate) const ALL: [Self; 15] = [
        Self::Cut,
        Self::CutAll,
        Self::Stall,
        Self::Partition,
        Self::Refuse,
        Self::NoNames,
        Self::Kill,
        Self::Restart,
        Self::FullDisk,
        Self::BrokenDisk,
        Self::ClockBack,
        Self::ClockForward,
        Self::ClockWeek,
        Self::ClockEpoch,
        Self::Burst,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::CutAll => "cut of all",
            Self::Stall => "stall",
            Self::Partition => "partition",
            Self::Refuse => "refusal",
            Self::NoNames => "no names",
            Self::Kill => "kill",
            Self::Restart => "restart",
            Self::FullDisk => "full disk",
            Self::BrokenDisk => "broken disk",
            Self::ClockBack => "clock back",
            Self::ClockForward => "clock forward",
            Self::ClockWeek => "clock a week on",
            Self::ClockEpoch => "clock at 1970",
            Self::Burst => "burst of cuts",
        }
    }
}

/// The faults of a seed.
#[derive(Debug)]
pub(crate) struct Swarm {
    kinds: Vec<(Fault, usize)>,
    total: usize,
    /// Longest pause between two faults, in milliseconds.
    pause: usize,
    /// Longest time of a fault that lasts, in milliseconds.
    lasts: usize,
    /// States of clients in which faults are likely to happen.
    targets: &'static [&'static str],
}

impl Swarm {
    /// Has three faults in ten wait until a client is in one of these states.
    pub(crate) fn aimed_at(self, targets: &'static [&'static str]) -> Self {
        Self { targets, ..self }
    }

    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let share = [15, 40, 80][chance.below(3)];
        let mut kinds = Vec::new();
        for kind in Fault::ALL {
            if chance.percent(share) {
                // Faults that take a while are rarer.
                let most = if matches!(kind, Fault::Cut | Fault::Stall) { 12 } else { 4 };
                kinds.push((kind, chance.within(1, most + 1)));
            }
        }
        if kinds.is_empty() {
            kinds.push((Fault::Cut, 1));
        }
        let total = kinds.iter().map(|(_, weight)| weight).sum();
        let pause = [40, 300, 1500][chance.below(3)];
        let lasts = [50, 1000, 8000][chance.below(3)];
        Self { kinds, total, pause, lasts, targets: &[] }
    }

    fn next(&self, chance: &mut Chance) -> Fault {
        let mut at = chance.below(self.total);
        for (kind, weight) in &self.kinds {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        unreachable!("the weights sum up")
    }

    /// Lets `count` faults happen, or awaits the end of those that the protocols of a run share.
    pub(crate) async fn rage(&self, host: &Rc<Host>, count: usize, chance: Chance) {
        if !super::world::shares_faults().await {
            self.rage_alone(host, count, chance).await;
        }
    }

    /// Lets `count` faults happen.
    pub(crate) async fn rage_alone(&self, host: &Rc<Host>, count: usize, mut chance: Chance) {
        for _ in 0..count {
            tokio::time::sleep(chance.micros(self.pause * 1000)).await;
            let fault = self.next(&mut chance);
            if !self.targets.is_empty() && chance.percent(30) {
                host.network.await_state(self.targets[chance.below(self.targets.len())]).await;
            }
            trace::hit(fault.name(), "any");
            if !matches!(fault, Fault::Cut | Fault::CutAll | Fault::Burst | Fault::Stall) {
                host.network.states().into_iter().for_each(|state| trace::hit(fault.name(), state));
            }
            self.happen(host, fault, &mut chance).await;
            if super::host::is_violated() {
                return;
            }
        }
    }

    async fn happen(&self, host: &Rc<Host>, fault: Fault, chance: &mut Chance) {
        let time = chance.micros(self.lasts * 1000);
        let hit = |state: Option<&'static str>| {
            if let Some(state) = state {
                trace::hit(fault.name(), state);
            }
        };
        match fault {
            Fault::Cut => hit(host.network.cut_one(chance)),
            Fault::CutAll => {
                while let Some(state) = host.network.cut_one(chance) {
                    hit(Some(state));
                    if chance.percent(20) {
                        break;
                    }
                }
            }
            Fault::Burst => {
                for _ in 0..chance.within(2, 8) {
                    hit(host.network.cut_one(chance));
                    tokio::time::sleep(chance.micros(200_000)).await;
                }
            }
            Fault::Stall => hit(host.network.stall_one(chance, time)),
            Fault::Partition => host.network.partition(time),
            Fault::Refuse => host.network.refuse(time),
            Fault::NoNames => host.network.forget_names(time),
            Fault::Kill => {
                host.kill();
                tokio::time::sleep(chance.micros(self.lasts * 100)).await;
                host.start().await;
            }
            Fault::Restart => {
                host.stop().await;
                tokio::time::sleep(chance.micros(self.lasts * 100)).await;
                host.start().await;
            }
            Fault::FullDisk => host.fill_disk(chance.within(1, 6) as u32),
            Fault::BrokenDisk => {
                host.break_disk();
                tokio::time::sleep(time).await;
                host.kill();
                host.start().await;
            }
            Fault::ClockBack => host.step_clock(Some(-3_600_000)),
            Fault::ClockForward => host.step_clock(Some(3_600_000)),
            Fault::ClockWeek => host.step_clock(Some(8 * 24 * 3_600_000)),
            Fault::ClockEpoch => host.step_clock(None),
        }
    }
}
