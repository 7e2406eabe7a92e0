use super::*;

/// Text from the Java client's own test.
const RULES: &str = r#"[
    {"type":0,"rule":[
        {"start":"08:00","end":"17:59","dltInM":1024,"limitInM":20,"freqInMs":1000},
        {"start":"18:00","end":"22:00","dltInM":1024,"limitInM":20,"freqInMs":5000}]},
    {"type":2,"rule":[{"start":"12:00","end":"23:59","dltStInM":20480,"dltEdInM":2048}]},
    {"type":1,"rule":[{"zeroCnt":3,"freqInMs":300},{"zeroCnt":8,"freqInMs":1000}]},
    {"type":3,"rule":[{"normFreqInMs":0,"filterFreqInMs":100,"minDataFilterFreqInMs":400}]}]"#;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Milliseconds since 1970 of a time of day in the time zone of the rules.
fn at(hour: i64, minute: i64) -> i64 {
    (1_000_000 * DAY_MINUTES + hour * 60 + minute - ZONE_MINUTES) * MINUTE_MS
}

fn flow(group: &str, default: &str) -> Flow {
    let mut flow = Flow::default();
    for (set, text) in [(&mut flow.group, group), (&mut flow.default, default)] {
        if !text.is_empty() {
            assert!(set.take(Some(1), Some(text)), "{text}");
        }
    }
    flow
}

fn pace(filtered: bool, flow: Flow, wall_ms: i64) -> (Pace, Instant) {
    let now = Instant::now();
    let mut pace = Pace::new(filtered, now);
    pace.set(flow, now, wall_ms);
    (pace, now)
}

fn fetch(bytes: usize, lag: i64) -> FetchInfo {
    FetchInfo { found: true, bytes, lag: Some(lag), ..FetchInfo::default() }
}

#[test]
fn the_java_clients_own_rules_are_read() {
    let rules = Rules::parse(RULES).unwrap();
    let limit = |wait| Some(Limit { bytes: 20 * MIB, wait: MS(wait) });
    for (hour, minute, expected) in [
        (7, 59, None),
        (8, 0, limit(1000)),
        (17, 59, limit(1000)),
        (18, 0, limit(5000)),
        (22, 0, limit(5000)),
        (22, 1, None),
    ] {
        assert_eq!(rules.limit(2000, hour * 60 + minute), expected, "{hour}:{minute}");
        assert_eq!(rules.limit(1024, hour * 60 + minute), None, "exactly the permitted lag");
    }
    let waits: Vec<_> = (0..10).map(|count| rules.wait_when_empty(count)).collect();
    let expected = |count| match count {
        0..3 => None,
        3..8 => Some(MS(300)),
        _ => Some(MS(1000)),
    };
    assert_eq!(waits, (0..10).map(expected).collect::<Vec<_>>());
    assert_eq!(rules.packs, Some(PackRule { plain: MS(0), filtered: MS(100), slow: MS(400) }));
}

#[test]
fn a_blank_text_and_an_empty_array_have_no_rules() {
    for text in ["", " ", "\n\t", "[]", r#"[{"type":2}]"#] {
        assert_eq!(Rules::parse(text).unwrap(), Rules::default(), "{text:?}");
    }
}

#[test]
fn numbers_may_be_text() {
    let text = r#"[{"type":"1","rule":[{"zeroCnt":"3","freqInMs":"300"}]}]"#;
    assert_eq!(Rules::parse(text).unwrap().wait_when_empty(3), Some(MS(300)));
}

#[test]
fn what_is_no_rule_spoils_its_text_and_nothing_else() {
    let lag = |field: &str, value: &str| {
        let fields = [
            ("start", "\"08:00\""),
            ("end", "\"09:00\""),
            ("dltInM", "21"),
            ("limitInM", "0"),
            ("freqInMs", "200"),
        ];
        let fields = fields
            .iter()
            .map(|(name, usual)| format!("{name:?}:{}", if *name == field { value } else { usual }));
        format!(r#"[{{"type":0,"rule":[{{{}}}]}}]"#, fields.collect::<Vec<_>>().join(","))
    };
    assert!(Rules::parse(&lag("", "")).is_ok());
    let of = |kind: i32, rule: &str| format!(r#"[{{"type":{kind},"rule":[{rule}]}}]"#);
    let pack = |rule: &str| of(3, rule);
    let empty = |rule: &str| of(1, rule);
    let deep = format!("{}{}", "[".repeat(60_000), "]".repeat(4));
    let long = format!("[{}]", " ".repeat(MAX_TEXT));
    #[rustfmt::skip]
    let texts = [
        "nonsense", "{}", "[", "null", "1", "[1]", "[[]]", "[null]", "[{}]", "\0", "[{\"type\":4}]", "[{\"type\":-1}]",
        "[{\"type\":0}]", "[{\"type\":1,\"rule\":{}}]", "[{\"type\":1,\"rule\":[]}]", "[{\"type\":1e9}]", &deep, &long,
        &lag("start", "\"\""), &lag("start", "\"8\""), &lag("start", "\"a:b\""), &lag("start", "\"-1:00\""),
        &lag("start", "\"09:00\""), &lag("end", "\"25:00\""), &lag("end", "\"08:60\""), &lag("end", "800"),
        &lag("end", "\"08:59:59\""), &lag("dltInM", "20"), &lag("dltInM", "1e40"), &lag("dltInM", "null"),
        &lag("limitInM", "-1"), &lag("freqInMs", "199"), &lag("freqInMs", "4294967296"),
        &empty(r#"{"zeroCnt":0,"freqInMs":1}"#), &empty(r#"{"zeroCnt":1,"freqInMs":-1}"#), &empty(r#"{"zeroCnt":1}"#),
        &empty("7"), &pack("{},{}"), &pack(r#"{"filterFreqInMs":1}"#), &pack(r#"{"minDataFilterFreqInMs":1}"#),
        &pack(r#"{"filterFreqInMs":2,"minDataFilterFreqInMs":1}"#), &pack(r#"{"normFreqInMs":300001}"#),
    ];
    for text in texts {
        let error = Rules::parse(text).expect_err(text);
        assert!(error.to_string().starts_with("the master sent invalid flow control rules"), "{error}");
        let mut set = flow(RULES, "").group;
        assert!(!set.take(Some(2), Some(text)), "{text}");
        assert_eq!(
            (set.id, &*set.rules),
            (1, &Rules::parse(RULES).unwrap()),
            "the previous rules still apply"
        );
    }
}

#[test]
fn rules_hold_until_others_come_under_another_number() {
    let mut set = flow(RULES, "").group;
    for (id, text) in [(None, ""), (Some(-2), " "), (Some(1), " ")] {
        assert!(!set.take(id, Some(text)));
    }
    assert_eq!(*set.rules, Rules::parse(RULES).unwrap());
    assert!(set.take(Some(2), Some(" ")));
    assert_eq!((set.id, &*set.rules), (2, &Rules::default()));
    assert!(!set.take(Some(i64::MAX), None), "another number for the same");
    assert_eq!(set.id, i64::MAX);
}

#[test]
fn without_rules_nobody_waits() {
    let (mut pace, now) = pace(true, Flow::default(), at(12, 0));
    for step in 0..200 {
        let now = now + MS(500) * step;
        assert_eq!(pace.wait(now, fetch(100 << 20, i64::MAX)), MS(0));
        assert_eq!(pace.wait(now, FetchInfo::default()), MS(0));
        assert!(!pace.is_limited(now));
    }
}

#[test]
fn who_lags_and_took_its_share_of_five_seconds_waits() {
    let (mut pace, now) = pace(false, flow(RULES, ""), at(12, 0));
    let share = (20 << 20) / 12;
    // The first response starts the minute, and reports the lag.
    assert_eq!(pace.wait(now, fetch(1 << 20, 2000)), MS(0));
    assert_eq!(pace.wait(now + MS(1), fetch(share - 1, 2000)), MS(0));
    assert_eq!(pace.wait(now + MS(2), fetch(1, 2000)), MS(1000));
    // The next five seconds have a share of their own.
    assert_eq!(pace.wait(now + MS(5003), fetch(1, 2000)), MS(0));
    assert_eq!(pace.wait(now + MS(5004), fetch(share, 2000)), MS(1000));
}

#[test]
fn who_took_its_share_of_the_minute_waits_until_it_is_over() {
    let (mut pace, now) = pace(false, flow(RULES, ""), at(12, 0));
    assert_eq!(pace.wait(now, fetch(0, 2000)), MS(0));
    let mut taken = 0;
    for step in 1..60 {
        // Below the share of each five seconds.
        let bytes = 1 << 20;
        let step_ms = 5_001 * step;
        if step_ms > 60_000 {
            break;
        }
        taken += bytes;
        assert_eq!(pace.wait(now + MS(step_ms), fetch(bytes, 2000)), MS(0), "{taken} bytes");
    }
    assert_eq!(pace.wait(now + MS(59_999), fetch((20 << 20) - taken, 2000)), MS(1000));
    assert_eq!(pace.wait(now + MS(60_001), fetch(1, 2000)), MS(0), "a new minute");
}

#[test]
fn the_limit_goes_by_lag_and_time_of_day_when_the_minute_begins() {
    let limited = |wall_ms, lag| {
        let (mut pace, now) = pace(false, flow(RULES, ""), wall_ms);
        pace.wait(now, fetch(0, lag));
        pace.wait(now + MS(1), fetch(10 << 20, lag))
    };
    assert_eq!(limited(at(12, 0), 2000), MS(1000));
    assert_eq!(limited(at(12, 0), 1000), MS(0));
    assert_eq!(limited(at(19, 0), 2000), MS(5000));
    assert_eq!(limited(at(23, 0), 2000), MS(0));
    // Time advances from the moment at which the wall clock was set.
    let (mut pace, now) = pace(false, flow(RULES, ""), at(23, 0));
    let later = now + MS(9 * 3_600_000);
    pace.wait(later, fetch(0, 2000));
    assert_eq!(pace.wait(later + MS(1), fetch(10 << 20, 2000)), MS(1000));
}

#[test]
fn the_groups_rules_come_before_the_clusters() {
    let text = r#"[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":21,"limitInM":0,"freqInMs":700}]},
                   {"type":1,"rule":[{"zeroCnt":1,"freqInMs":900}]}]"#;
    let wait = |flow: &Flow, lag| {
        let (mut pace, now) = pace(false, flow.clone(), at(12, 0));
        pace.wait(now, fetch(0, lag));
        (
            pace.wait(now + MS(1), fetch(10 << 20, lag)),
            pace.wait(now + MS(2), FetchInfo::default()),
            pace.is_limited(now),
        )
    };
    assert_eq!(wait(&flow(RULES, text), 2000), (MS(1000), MS(0), true));
    assert_eq!(wait(&flow(RULES, text), 500), (MS(700), MS(0), true), "below the group's lag");
    assert_eq!(wait(&flow("", text), 500), (MS(700), MS(900), false));
}

#[test]
fn looks_at_an_empty_partition_become_rarer() {
    let (mut pace, now) = pace(false, flow(RULES, ""), at(12, 0));
    let mut waits = || (0..9).map(|_| pace.wait(now, FetchInfo::default()).as_millis()).collect::<Vec<_>>();
    assert_eq!(waits(), [0, 0, 300, 300, 300, 300, 300, 1000, 1000]);
    assert_eq!(pace.wait(now, fetch(0, 0)), MS(0), "messages for others count as found");
    assert_eq!(pace.wait(now, FetchInfo::default()), MS(0), "the count starts again");
}

#[test]
fn packs_are_paced_by_whether_there_are_filters() {
    let text =
        r#"[{"type":3,"rule":[{"normFreqInMs":50,"filterFreqInMs":100,"minDataFilterFreqInMs":400}]}]"#;
    let wait = |filtered, text, slow| {
        let (mut pace, now) = pace(filtered, flow(text, ""), at(12, 0));
        pace.wait(now, FetchInfo { slow, ..fetch(1, 0) })
    };
    assert_eq!(wait(false, text, true), MS(50));
    assert_eq!(wait(true, text, false), MS(100));
    assert_eq!(wait(true, text, true), MS(400));
    let negligible = r#"[{"type":3,"rule":[{"normFreqInMs":10}]}]"#;
    assert_eq!(wait(false, negligible, false), MS(0));
}

#[test]
fn new_rules_hold_at_once_and_the_same_ones_change_nothing() {
    let rule = |ms: u32| format!(r#"[{{"type":3,"rule":[{{"normFreqInMs":{ms}}}]}}]"#);
    let (mut pace, now) = pace(false, Flow::default(), at(12, 0));
    assert_eq!(pace.wait(now, fetch(1, 0)), MS(0));
    pace.set(flow("", &rule(50)), now, at(12, 0));
    assert_eq!(pace.wait(now, fetch(1, 0)), MS(50));
    let group = flow(RULES, &rule(50));
    pace.set(group.clone(), now, at(12, 0));
    pace.wait(now, fetch(0, 2000));
    assert_eq!(pace.wait(now, fetch(2 << 20, 2000)), MS(1000));
    pace.set(group, now, at(12, 0));
    assert_eq!(pace.wait(now, fetch(0, 2000)), MS(1000), "the window goes on");
    // Nor does it wait for the lag.
    let mut pace = Pace::new(false, now);
    pace.set(flow("", &rule(50)), now, at(12, 0));
    assert_eq!(pace.wait(now, FetchInfo { lag: None, ..fetch(1, 0) }), MS(50));
}

#[test]
fn a_broker_may_let_a_pack_pass() {
    let (mut pace, now) = pace(false, flow(RULES, ""), at(12, 0));
    pace.wait(now, fetch(0, 2000));
    assert_eq!(pace.wait(now, FetchInfo { free: true, ..fetch(100 << 20, 2000) }), MS(0));
    assert_eq!(pace.wait(now, fetch(0, 2000)), MS(1000));
}

#[test]
fn no_rule_stops_consumption() {
    let text = r#"[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":21,"limitInM":9223372036854775807,
                   "freqInMs":2147483647},{"start":"0:0","end":"23:59","dltInM":21,"limitInM":0,"freqInMs":2147483647}]},
                   {"type":1,"rule":[{"zeroCnt":1,"freqInMs":2147483647}]}]"#;
    let (mut pace, now) = pace(false, flow(text, ""), i64::MAX);
    assert!(pace.wait(now, FetchInfo::default()) <= MAX_WAIT);
    for lag in [i64::MAX, i64::MIN, 0] {
        assert!(pace.wait(now, fetch(usize::MAX, lag)) <= MAX_WAIT);
        assert!(pace.wait(now, fetch(usize::MAX, lag)) <= MAX_WAIT);
    }
}
