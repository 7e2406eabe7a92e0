//! URLs, and the names of topics and filters of the three protocols: what is accepted stays what it
//! is when it is written again, and a filter matches what a naive model says.

use forebay_broker::tree::{MAX_LEVELS, Tree, fits};
use forebay_mqtt::topic::{self, Filter};
use forebay_net::url::ServiceUrl;
use forebay_pulsar::topic::TopicName;
use forebay_tubemq::topic::{Condition, check_group, check_topic};
use crate::script::Script;

fn url(text: &str) {
    let Ok(url) = ServiceUrl::parse(text) else { return };
    let hosts: Vec<String> = url
        .addresses
        .iter()
        .map(|one| {
            let bracket = one.host.contains(':');
            if bracket {
                format!("[{}]:{}", one.host, one.port)
            } else {
                format!("{}:{}", one.host, one.port)
            }
        })
        .collect();
    let scheme = text.split("://").next().unwrap();
    let again = format!("{scheme}://{}{}", hosts.join(","), url.path);
    assert_eq!(ServiceUrl::parse(&again).unwrap(), url, "{again}");
}

fn pulsar(text: &str) {
    let Ok(name) = TopicName::parse(text) else { return };
    let again = TopicName::parse(&name.to_string()).unwrap();
    assert_eq!(again.to_string(), name.to_string());
    for partition in [0, 7, u32::MAX] {
        let part = name.without_partition().with_partition(partition);
        assert_eq!(part.partition(), Some(partition), "{part}");
        assert_eq!(part.without_partition().to_string(), name.without_partition().to_string());
    }
}

/// Whether the levels of a filter match those of a topic.
fn matches(filter: &[&str], topic: &[&str]) -> bool {
    match (filter, topic) {
        (["#"], _) | ([], []) => true,
        ([first, filter @ ..], [level, topic @ ..]) => {
            (*first == "+" || first == level) && matches(filter, topic)
        }
        _ => false,
    }
}

fn mqtt(filters: &[&str], name: &str) {
    let mut tree: Tree<u64> = Tree::default();
    let named = topic::check_name(name).is_ok();
    let levels: Vec<&str> = name.split('/').collect();
    let mut expected = Vec::new();
    for (number, text) in filters.iter().enumerate() {
        let Ok(filter) = Filter::parse(*text) else {
            assert!(
                text.is_empty() || text.len() > topic::MAX_LENGTH || text.contains(['+', '#', '\0', '$'])
            );
            continue;
        };
        assert_eq!(Filter::parse(filter.as_str()).unwrap().pattern(), filter.pattern());
        if !fits(filter.pattern()) {
            continue;
        }
        let pattern: Vec<&str> = filter.pattern().split('/').collect();
        let wild = ["+", "#"].contains(&pattern[0]);
        let model = matches(&pattern, &levels) && !(wild && name.starts_with('$'));
        if named {
            assert_eq!(filter.matches(name), model, "{filter:?} {name:?}");
        }
        *tree.entry(filter.pattern()) |= 1 << number;
        if model {
            expected.push(number);
        }
    }
    if !named || levels.len() > MAX_LEVELS {
        return;
    }
    let mut found = 0;
    assert!(tree.matching(name, &mut 10_000_000, &mut |bits| found |= bits));
    assert_eq!((0..64).filter(|number| found >> number & 1 == 1).collect::<Vec<_>>(), expected);
    for text in filters {
        if let Ok(filter) = Filter::parse(*text).map_err(drop)
            && fits(filter.pattern())
        {
            tree.remove(filter.pattern());
        }
    }
    assert!(tree.is_empty());
}

fn tubemq(text: &str) {
    if let Ok(condition) = Condition::parse(text) {
        assert_eq!(Condition::parse(&condition.to_string()).unwrap(), condition);
    }
    if check_topic(text).is_ok() {
        check_group(text).expect("a topic's name is a group's name");
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    let Ok(text) = std::str::from_utf8(script.0) else { return };
    match first % 4 {
        0 => url(text),
        1 => pulsar(text),
        2 => tubemq(text),
        _ => {
            let mut lines = text.split('\n');
            let name = lines.next().unwrap_or_default();
            mqtt(&lines.take(60).collect::<Vec<_>>(), name);
        }
    }
}
