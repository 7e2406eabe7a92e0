//! Flow control rules, with which a cluster slows its consumers down, and the resulting pace of a
//! partition.
//!
//! The master sends each member two texts, one for its group and one for the whole cluster. Each is
//! a JSON array of `{"type": …, "rule": […]}`, or blank if there are no rules. An invalid rule
//! invalidates its whole text, which is then ignored together with its number, as in the Java
//! client (`FlowCtrlRuleHandler`, `PartitionExt`):
//!
//! | type | rule | effect |
//! |---|---|---|
//! | 0 | `start`, `end`, `dltInM`, `limitInM`, `freqInMs` | a consumer that lags by more than `dltInM` and received `limitInM` MiB within a minute, or a twelfth of it within 5 s, waits `freqInMs` |
//! | 1 | `zeroCnt`, `freqInMs` | after `zeroCnt` reads of an empty partition the next one waits `freqInMs` |
//! | 2 | | obsolete, no effect |
//! | 3 | `normFreqInMs`, `filterFreqInMs`, `minDataFilterFreqInMs` | the wait after each response: without filters, with filters, with filters when the broker asks for a slower pace |
//!
//! Brokers enforce rules of type 0 as well, by returning 452. Rules only ever slow a consumer down;
//! a longer wait of its own remains. Unlike in the Java client, new rules take effect immediately,
//! not at the start of the next minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::UNDEFINED;
use forebay_base::error::{Error, Result};

/// Time for which a limit applies before the lag is examined again, and length of a sample.
const WINDOW: Duration = Duration::from_secs(60);
const SAMPLE: Duration = Duration::from_secs(5);
/// Waits up to this length are skipped.
const NEGLIGIBLE: Duration = Duration::from_millis(10);
/// Maximum wait that the protocol allows for type 3. Types 0 and 1 have no maximum, but an
/// operator's mistake must not stop consumption.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Interval at which it is checked whether the group is limited.
const LIMIT_CHECK: Duration = Duration::from_secs(10);
/// Offset from UTC of the time zone that rules use, in minutes.
const ZONE_MINUTES: i64 = 8 * 60;
const MINUTE_MS: i64 = 60_000;
const DAY_MINUTES: i64 = 24 * 60;
const MIB: u64 = 1 << 20;
/// Maximum length of a text in bytes. The master's web API accepts no longer ones.
const MAX_TEXT: usize = 64 << 10;

/// The rules of one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Rules of type 0, ordered by start.
    lag: Vec<LagRule>,
    /// Rules of type 1, largest count first.
    empty: Vec<EmptyRule>,
    /// Rule of type 3.
    packs: Option<PackRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LagRule {
    /// First and last minute of the day, both inclusive.
    minutes: (u16, u16),
    lag: i64,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EmptyRule {
    count: u32,
    wait: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackRule {
    plain: Duration,
    filtered: Duration,
    slow: Duration,
}

/// Makes the next call wait once more than `bytes` were received within a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    bytes: u64,
    wait: Duration,
}

impl Limit {
    const NONE: Self = Self { bytes: u64::MAX, wait: Duration::ZERO };
}

impl Rules {
    /// Parses a text; a blank text has no rules.
    pub fn parse(text: &str) -> Result<Self> {
        let mut rules = Self::default();
        if text.trim().is_empty() {
            return Ok(rules);
        }
        if text.len() > MAX_TEXT {
            return Err(invalid(format!(
                "the text has {} bytes; at most {MAX_TEXT} are accepted",
                text.len()
            )));
        }
        let records: Vec<Value> = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        for record in &records {
            let items = || match record.get("rule") {
                Some(Value::Array(items)) if !items.is_empty() => Ok(items),
                _ => Err(invalid("a record has no array of rules".into())),
            };
            // The last record of each type is used.
            match number(record, "type", 0..=3)? {
                0 => {
                    rules.lag = items()?.iter().map(LagRule::parse).collect::<Result<_>>()?;
                    rules.lag.sort_by_key(|rule| rule.minutes.0);
                }
                1 => {
                    rules.empty = items()?.iter().map(EmptyRule::parse).collect::<Result<_>>()?;
                    rules.empty.sort_by_key(|rule| std::cmp::Reverse(rule.count));
                }
                3 => match items()?.as_slice() {
                    [rule] => rules.packs = Some(PackRule::parse(rule)?),
                    _ => return Err(invalid("a record of type 3 does not have exactly one rule".into())),
                },
                _ => {}
            }
        }
        Ok(rules)
    }

    fn limit(&self, lag: i64, minute: u16) -> Option<Limit> {
        let applies = |rule: &&LagRule| lag > rule.lag && (rule.minutes.0..=rule.minutes.1).contains(&minute);
        self.lag.iter().find(applies).map(|rule| rule.limit)
    }

    fn wait_when_empty(&self, count: u32) -> Option<Duration> {
        self.empty.iter().find(|rule| count >= rule.count).map(|rule| rule.wait)
    }
}

impl LagRule {
    fn parse(item: &Value) -> Result<Self> {
        let minutes = (minute_of(item, "start")?, minute_of(item, "end")?);
        if minutes.0 >= minutes.1 {
            return Err(invalid("start is not before end".into()));
        }
        // Named after MiB but compared with bytes, both by the Java client and by the broker, which
        // is authoritative.
        let lag = number(item, "dltInM", 21..=i64::MAX)?;
        let bytes = (number(item, "limitInM", 0..=i64::MAX)? as u64).saturating_mul(MIB);
        let wait = millis(item, "freqInMs", 200..=i32::MAX.into())?;
        Ok(Self { minutes, lag, limit: Limit { bytes, wait } })
    }
}

impl EmptyRule {
    fn parse(item: &Value) -> Result<Self> {
        let count = number(item, "zeroCnt", 1..=i32::MAX.into())? as u32;
        Ok(Self { count, wait: millis(item, "freqInMs", 0..=i32::MAX.into())? })
    }
}

impl PackRule {
    fn parse(item: &Value) -> Result<Self> {
        const BOUNDS: std::ops::RangeInclusive<i64> = 0..=300_000;
        let has = |name| item.get(name).is_some();
        let (filtered, slow) = match has("filterFreqInMs") || has("minDataFilterFreqInMs") {
            true => (millis(item, "filterFreqInMs", BOUNDS)?, millis(item, "minDataFilterFreqInMs", BOUNDS)?),
            false => (Duration::ZERO, Duration::ZERO),
        };
        if slow < filtered {
            return Err(invalid("minDataFilterFreqInMs is below filterFreqInMs".into()));
        }
        let plain = if has("normFreqInMs") { millis(item, "normFreqInMs", BOUNDS)? } else { Duration::ZERO };
        Ok(Self { plain, filtered, slow })
    }
}

fn invalid(why: String) -> Error {
    Error::protocol(format!("the master sent invalid flow control rules: {why}"))
}

/// Reads an integer within bounds. Like the Java client, accepts it as text too.
fn number(item: &Value, name: &str, bounds: std::ops::RangeInclusive<i64>) -> Result<i64> {
    let number = match item.get(name) {
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    };
    let number = number.filter(|number| bounds.contains(number));
    number.ok_or_else(|| invalid(format!("{name} is not an integer in {bounds:?}")))
}

fn millis(item: &Value, name: &str, bounds: std::ops::RangeInclusive<i64>) -> Result<Duration> {
    Ok(Duration::from_millis(number(item, name, bounds)? as u64).min(MAX_WAIT))
}

/// Reads `HH:MM` as a minute of the day. The hour may be 24, a time that is never reached.
fn minute_of(item: &Value, name: &str) -> Result<u16> {
    let text = item.get(name).and_then(Value::as_str).unwrap_or_default();
    let parsed = text.split_once(':').and_then(|(hour, minute)| {
        let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
        (hour <= 24 && minute < 60).then_some(hour * 60 + minute)
    });
    parsed.ok_or_else(|| invalid(format!("{name} is {text:?}, not a time of day")))
}

/// Rules that apply to a member, with their numbers, which tell the master what the member already
/// has.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Rules of the group.
    pub group: RuleSet,
    /// Rules of the cluster, used where the group has none.
    pub default: RuleSet,
}

/// Rules and the number of their text.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Number of the text.
    pub id: i64,
    rules: Arc<Rules>,
}

impl Default for RuleSet {
    fn default() -> Self {
        Self { id: UNDEFINED, rules: Arc::default() }
    }
}

impl RuleSet {
    /// Updates the rules from a master's response; returns whether they have changed. An invalid
    /// text is ignored together with its number.
    pub fn take(&mut self, id: Option<i64>, text: Option<&str>) -> bool {
        let Some(id) = id.filter(|id| *id >= 0 && *id != self.id) else { return false };
        let Ok(rules) = Rules::parse(text.unwrap_or_default()) else { return false };
        let new = *self.rules != rules;
        *self = Self { id, rules: Arc::new(rules) };
        new
    }
}

/// Properties of a broker's response that affect the pace.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchInfo {
    /// Whether the broker found messages, even if none were for this consumer.
    pub found: bool,
    /// Total message size in bytes.
    pub bytes: usize,
    /// Distance to the end of the partition in bytes.
    pub lag: Option<i64>,
    /// Whether the broker exempts this response from limits.
    pub free: bool,
    /// Whether the broker asks for a slower pace.
    pub slow: bool,
}

/// The pace of one partition.
#[derive(Debug)]
pub struct Pace {
    flow: Flow,
    /// A point in time and the wall clock time at it, in milliseconds since 1970.
    clock: (Instant, i64),
    filtered: bool,
    limit: Limit,
    packs: Option<PackRule>,
    limit_ends: Option<Instant>,
    sample_ends: Instant,
    in_window: u64,
    in_sample: u64,
    lag: Option<i64>,
    empty: u32,
    /// Whether the group is limited, and the time until which that answer is reused.
    limited: (bool, Option<Instant>),
}

impl Pace {
    /// Creates the pace of a partition without rules, for a consumer with or without filters.
    pub fn new(filtered: bool, now: Instant) -> Self {
        Self {
            flow: Flow::default(),
            clock: (now, 0),
            filtered,
            limit: Limit::NONE,
            packs: None,
            limit_ends: None,
            sample_ends: now,
            in_window: 0,
            in_sample: 0,
            lag: None,
            empty: 0,
            limited: (false, None),
        }
    }

    /// Sets the rules and the wall clock time in milliseconds since 1970, since rules depend on the
    /// time of day.
    pub fn set(&mut self, flow: Flow, now: Instant, wall_ms: i64) {
        self.clock = (now, wall_ms);
        let same = |a: &RuleSet, b: &RuleSet| Arc::ptr_eq(&a.rules, &b.rules);
        if !same(&self.flow.group, &flow.group) || !same(&self.flow.default, &flow.default) {
            self.limit_ends = None;
            self.limited.1 = None;
        }
        self.flow = flow;
    }

    fn minute(&self, now: Instant) -> u16 {
        let passed = now.saturating_duration_since(self.clock.0).as_millis() as i64;
        let minutes = self.clock.1.saturating_add(passed) / MINUTE_MS + ZONE_MINUTES;
        minutes.rem_euclid(DAY_MINUTES) as u16
    }

    /// Whether the group's own rules limit it now. A broker that is told so does not apply its own
    /// limit.
    pub fn is_limited(&mut self, now: Instant) -> bool {
        if self.flow.group.rules.lag.is_empty() {
            return false;
        }
        let (limited, until) = self.limited;
        if until.is_some_and(|until| now < until) {
            return limited;
        }
        let limited = self.flow.group.rules.limit(i64::MAX, self.minute(now)).is_some();
        self.limited = (limited, Some(now + LIMIT_CHECK));
        limited
    }

    /// Time that the next call must wait, counted from the response.
    pub fn wait(&mut self, now: Instant, fetch: FetchInfo) -> Duration {
        self.lag = fetch.lag.filter(|lag| *lag >= 0).or(self.lag);
        let bytes = fetch.bytes as u64;
        self.in_window = self.in_window.saturating_add(bytes);
        self.in_sample = self.in_sample.saturating_add(bytes);
        self.look(now);
        let wait = self.ruled(fetch);
        if wait > NEGLIGIBLE { wait } else { Duration::ZERO }
    }

    fn ruled(&mut self, fetch: FetchInfo) -> Duration {
        let Flow { group, default } = &self.flow;
        if !fetch.found {
            self.empty = self.empty.saturating_add(1);
            let rules = if group.rules.empty.is_empty() { &default.rules } else { &group.rules };
            return rules.wait_when_empty(self.empty).unwrap_or_default();
        }
        self.empty = 0;
        if fetch.free {
            return Duration::ZERO;
        }
        if self.in_window >= self.limit.bytes || self.in_sample >= self.limit.bytes / 12 {
            return self.limit.wait;
        }
        match self.packs {
            None => Duration::ZERO,
            Some(rule) if !self.filtered => rule.plain,
            Some(rule) if fetch.slow => rule.slow,
            Some(rule) => rule.filtered,
        }
    }

    /// Starts a new window or sample when the previous one has ended.
    fn look(&mut self, now: Instant) {
        if self.limit_ends.is_none_or(|end| now > end) {
            (self.in_window, self.in_sample) = (0, 0);
            let minute = self.minute(now);
            let Flow { group, default } = &self.flow;
            self.packs = group.rules.packs.or(default.rules.packs);
            // Not until the broker has reported how far the partition lags.
            let Some(lag) = self.lag else { return };
            let limit = group.rules.limit(lag, minute).or_else(|| default.rules.limit(lag, minute));
            self.limit = limit.unwrap_or(Limit::NONE);
            self.limit_ends = Some(now + WINDOW);
            self.sample_ends = now + SAMPLE;
        } else if now > self.sample_ends {
            self.in_sample = 0;
            self.sample_ends = now + SAMPLE;
        }
    }
}

#[cfg(test)]
mod tests;
