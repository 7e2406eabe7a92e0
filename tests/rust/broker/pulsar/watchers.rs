//! Watchers of lists of topics.

use std::time::Duration;

use super::*;

const SOON: Duration = Duration::from_millis(60);

fn name(local: &str) -> String {
    format!("persistent://public/default/{local}")
}

fn command(watcher_id: u64, pattern: &str, topics_hash: Option<String>) -> Command {
    Command::WatchTopicList(pb::CommandWatchTopicList {
        request_id: 1,
        watcher_id,
        namespace: "public/default".into(),
        topics_pattern: name(pattern),
        topics_hash,
    })
}

fn watch(bench: &mut Bench, peer: u64, id: u64, pattern: &str) -> pb::CommandWatchTopicListSuccess {
    match bench.ask(peer, command(id, pattern, None)) {
        Command::WatchTopicListSuccess(success) => success,
        other => panic!("{other:?}"),
    }
}

/// The new and the deleted topics of each update.
fn told(bench: &mut Bench, peer: u64) -> Vec<(Vec<String>, Vec<String>)> {
    bench.pass(SOON);
    let updates = bench.commands(peer).into_iter().map(|command| match command {
        Command::WatchTopicUpdate(update) => (update.new_topics, update.deleted_topics),
        other => panic!("{other:?}"),
    });
    updates.collect()
}

#[test]
fn a_watcher_gets_the_topics_that_match_and_hears_of_changes() {
    let mut bench = Bench::new();
    let (peer, other) = (bench.connect(), bench.connect());
    for topic in ["a-1", "b-1", "other/ns/a-2"] {
        bench.broker.create_topic(topic, 0).unwrap();
    }
    bench.settle();
    let success = watch(&mut bench, peer, 7, "a-.*");
    assert_eq!((success.watcher_id, &success.topic[..]), (7, &[name("a-1")][..]));
    assert_eq!(told(&mut bench, peer), []);
    for topic in ["a-2", "b-2", "other/ns/a-3"] {
        bench.broker.create_topic(topic, 0).unwrap();
    }
    bench.broker.delete_topic("a-1").unwrap();
    bench.settle();
    assert_eq!(told(&mut bench, peer), [(vec![name("a-2")], vec![name("a-1")])]);
    // A topic that a producer makes.
    bench.produce(other, 1, |producer| producer.topic = name("a-3"));
    bench.commands(other);
    assert_eq!(told(&mut bench, peer), [(vec![name("a-3")], vec![])]);
    // Partitions one by one, and not their topic.
    bench.broker.create_topic("a-4", 2).unwrap();
    bench.settle();
    let parts = vec![name("a-4-partition-0"), name("a-4-partition-1")];
    assert_eq!(told(&mut bench, peer), [(parts, vec![])]);
    assert_eq!(told(&mut bench, other), []);
}

#[test]
fn the_hash_of_an_update_is_that_of_the_list_it_leads_to() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    watch(&mut bench, peer, 1, "a.*");
    for topic in ["a2", "a1", "b"] {
        bench.broker.create_topic(topic, 0).unwrap();
    }
    bench.settle();
    bench.pass(SOON);
    let Command::WatchTopicUpdate(update) = bench.one(peer) else { panic!() };
    let known = Some(update.topics_hash.clone());
    let Command::WatchTopicListSuccess(again) = bench.ask(peer, command(1, "a.*", known)) else { panic!() };
    assert_eq!((again.topic.len(), again.topics_hash), (0, update.topics_hash));
}

#[test]
fn a_watcher_that_is_closed_or_replaced_hears_nothing() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    watch(&mut bench, peer, 1, ".*");
    watch(&mut bench, peer, 1, "b.*");
    watch(&mut bench, peer, 2, ".*");
    for watcher_id in [2, 99] {
        let close = pb::CommandWatchTopicListClose { request_id: 5, watcher_id };
        assert!(matches!(bench.ask(peer, Command::WatchTopicListClose(close)), Command::Success(_)));
    }
    bench.broker.create_topic("a", 0).unwrap();
    bench.settle();
    assert_eq!(told(&mut bench, peer), []);
    bench.broker.create_topic("b", 0).unwrap();
    bench.settle();
    assert_eq!(told(&mut bench, peer), [(vec![name("b")], vec![])]);
}

#[test]
fn patterns_and_watchers_beyond_the_limits_are_refused() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    for pattern in ["(", &"a".repeat(300), r"(a{100}){1000}", r"\pL"] {
        let answer = bench.ask(peer, command(1, pattern, None));
        assert_eq!(error_of(&answer), pb::ServerError::NotAllowedError);
    }
    for id in 0..100 {
        watch(&mut bench, peer, id, "same");
    }
    assert_eq!(error_of(&bench.ask(peer, command(100, "same", None))), pb::ServerError::TooManyRequests);
    watch(&mut bench, peer, 99, "other");
    // A connection that ends leaves room.
    for _ in 0..3 {
        let peers = [bench.connect(), bench.connect()];
        for (at, peer) in peers.into_iter().enumerate() {
            for id in 0..99 {
                watch(&mut bench, peer, id, &format!("p{at}-{id}"));
            }
        }
        assert_eq!(
            error_of(&bench.ask(peers[0], command(99, "more", None))),
            pb::ServerError::TooManyRequests
        );
        watch(&mut bench, peers[0], 99, "p1-0");
        let now = bench.now;
        peers.into_iter().for_each(|peer| bench.broker.disconnect(now, peer));
    }
}

#[test]
fn a_client_that_does_not_read_gets_the_whole_list_afterwards() {
    let mut bench = Bench::with(|settings| settings.max_topics = 100_000);
    let peer = bench.connect();
    watch(&mut bench, peer, 1, ".*");
    let long = "x".repeat(900);
    let mut made = 0;
    for _ in 0..20 {
        for _ in 0..1000 {
            bench.broker.create_topic(&format!("{long}{made}"), 0).unwrap();
            made += 1;
        }
        bench.settle();
        bench.pass(SOON);
    }
    let mut names = std::collections::BTreeSet::new();
    let (mut output, mut looks) = (0, 0);
    while names.len() < made && looks < 10 {
        looks += 1;
        for (new, _) in told(&mut bench, peer) {
            output = output.max(new.len());
            names.extend(new);
        }
    }
    assert_eq!(names.len(), made, "after {looks} looks");
    assert!(output <= 1000);
}
