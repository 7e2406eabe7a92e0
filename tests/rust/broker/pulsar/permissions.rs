//! What clients of Pulsar may do by the permissions, over its own protocol and over HTTP.

use forebay_broker::http::message::{Answer, Request};
use forebay_broker::permissions::Permissions;

use forebay_broker::store::StoredProducer;

use super::*;

const RULES: &str = "\
user ann
topic readwrite persistent://public/default/orders
topic read persistent://public/default/news
topic write non-persistent://public/default/+
user root
superuser
pattern write persistent://public/inbox/%u
";
const KEY: &[u8] = b"0123456789abcdef";
const NEWS: &str = "persistent://public/default/news";
const ORDERS: &str = "persistent://public/default/orders";

fn permissions(text: &str) -> Arc<Permissions> {
    Arc::new(Permissions::parse(text).unwrap())
}

fn bench() -> Bench {
    Bench::with(|settings| {
        settings.namespaces = vec!["*".into()];
        settings.session.tokens = Some(Arc::new(TokenKeys::new(KEY).unwrap()));
        settings.permissions = Some(permissions(RULES));
    })
}

fn connect_as(bench: &mut Bench, user: &str) -> u64 {
    let peer = bench.broker.connect(bench.now, "127.0.0.1:1");
    let token = TokenKeys::new(KEY).unwrap().sign(user, None);
    let connect = pb::CommandConnect {
        auth_method_name: Some("token".into()),
        auth_data: Some(token.into_bytes().into()),
        ..connect()
    };
    assert!(matches!(bench.ask(peer, Command::Connect(connect)), Command::Connected(_)));
    peer
}

fn denied(bench: &Bench) -> u64 {
    bench.broker.stats().denied
}

fn produce(bench: &mut Bench, peer: u64, id: u64, topic: &str) -> Command {
    bench.produce(peer, id, |producer| producer.topic = topic.into())
}

fn consume(bench: &mut Bench, peer: u64, id: u64, topic: &str) -> Command {
    let mut answers = bench.subscription(peer, id, SHARED, |consumer| consumer.topic = topic.into());
    answers.remove(0)
}

fn is_refused(answer: &Command) -> bool {
    match answer {
        Command::Error(error) => {
            assert!(error.message.contains("not authorized"), "{}", error.message);
            error.error == pb::ServerError::AuthorizationError as i32
        }
        Command::ProducerSuccess(_) | Command::Success(_) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn producers_and_consumers_need_the_permission_for_their_topic() {
    let mut bench = bench();
    let (ann, bob, root) =
        (connect_as(&mut bench, "ann"), connect_as(&mut bench, "bob"), connect_as(&mut bench, "root"));
    bench.broker.create_topic("parts", 2).unwrap();
    for (number, (peer, topic, write, read)) in [
        (ann, ORDERS, true, true),
        (ann, NEWS, false, true),
        (ann, "persistent://public/default/orders-partition-1", true, true),
        (ann, "persistent://public/default/parts-partition-1", false, false),
        (ann, "persistent://public/default/other", false, false),
        (ann, "non-persistent://public/default/x", true, false),
        (ann, "persistent://public/inbox/ann", true, false),
        (bob, "persistent://public/inbox/ann", false, false),
        (bob, ORDERS, false, false),
        (root, "persistent://public/default/other", true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let before = denied(&bench);
        let id = number as u64;
        assert_eq!(is_refused(&produce(&mut bench, peer, id, topic)), !write, "{topic}");
        assert_eq!(is_refused(&consume(&mut bench, peer, id, topic)), !read, "{topic}");
        assert_eq!(denied(&bench) - before, u64::from(!write) + u64::from(!read));
    }
    let topics = bench.broker.topics().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert!(!topics.contains(&"persistent://public/default/parts-partition-9".to_owned()));
    // A producer that makes a subscription makes what a consumer would.
    let with_subscription = |producer: &mut pb::CommandProducer| {
        producer.topic = "persistent://public/inbox/ann".into();
        producer.initial_subscription_name = Some("s".into());
    };
    assert!(is_refused(&bench.produce(ann, 99, with_subscription)));
}

#[test]
fn what_a_client_may_not_use_it_does_not_learn_of_nor_create() {
    let mut bench = bench();
    let (ann, bob) = (connect_as(&mut bench, "ann"), connect_as(&mut bench, "bob"));
    for topic in [ORDERS, NEWS, "persistent://public/default/secret", "parts"] {
        bench.broker.create_topic(topic, if topic == "parts" { 2 } else { 0 }).unwrap();
    }
    let namespace = |bench: &mut Bench, peer| {
        let command = pb::CommandGetTopicsOfNamespace {
            request_id: 1,
            namespace: "public/default".into(),
            ..Default::default()
        };
        match bench.ask(peer, Command::GetTopicsOfNamespace(Box::new(command))) {
            Command::GetTopicsOfNamespaceResponse(answer) => answer.topics,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(namespace(&mut bench, ann), [NEWS, ORDERS]);
    assert_eq!(namespace(&mut bench, bob), [] as [String; 0]);
    let watch = pb::CommandWatchTopicList {
        request_id: 2,
        watcher_id: 1,
        namespace: "public/default".into(),
        topics_pattern: "public/default/.*".into(),
        topics_hash: None,
    };
    let Command::WatchTopicListSuccess(watched) = bench.ask(ann, Command::WatchTopicList(watch.clone()))
    else {
        panic!("no list")
    };
    assert_eq!(watched.topic, [NEWS, ORDERS]);
    bench.ask(bob, Command::WatchTopicList(watch));
    bench.broker.delete_topic(NEWS).unwrap();
    bench.broker.delete_topic("secret").unwrap();
    bench.pass(Duration::from_secs(1));
    let Command::WatchTopicUpdate(update) = bench.one(ann) else { panic!("no update") };
    assert_eq!((update.deleted_topics, update.new_topics), (vec![NEWS.to_owned()], vec![]));
    assert_eq!(bench.commands(bob), []);

    let metadata = |bench: &mut Bench, peer, topic: &str| {
        let command =
            pb::CommandPartitionedTopicMetadata { topic: topic.into(), request_id: 3, ..Default::default() };
        match bench.ask(peer, Command::PartitionedMetadata(command)) {
            Command::PartitionedMetadataResponse(answer) => answer.error,
            other => panic!("{other:?}"),
        }
    };
    let lookup = |bench: &mut Bench, peer, topic: &str| {
        let command = pb::CommandLookupTopic { topic: topic.into(), request_id: 4, ..Default::default() };
        match bench.ask(peer, Command::Lookup(Box::new(command))) {
            Command::LookupResponse(answer) => answer.error,
            other => panic!("{other:?}"),
        }
    };
    let refused = Some(pb::ServerError::AuthorizationError as i32);
    for (peer, topic, expected) in [(ann, ORDERS, None), (bob, ORDERS, refused), (ann, "new", refused)] {
        assert_eq!(metadata(&mut bench, peer, topic), expected, "{topic}");
        assert_eq!(lookup(&mut bench, peer, topic), expected, "{topic}");
    }
    assert!(bench.broker.topics().iter().all(|(name, _)| !name.ends_with("/new")));
    let get = pb::CommandGetSchema { request_id: 5, topic: ORDERS.into(), schema_version: None };
    for (peer, expected) in
        [(ann, pb::ServerError::TopicNotFound), (bob, pb::ServerError::AuthorizationError)]
    {
        let Command::GetSchemaResponse(answer) = bench.ask(peer, Command::GetSchema(get.clone())) else {
            panic!("no answer")
        };
        assert_eq!(answer.error_code, Some(expected as i32));
    }
    let create = pb::CommandGetOrCreateSchema {
        request_id: 6,
        topic: ORDERS.into(),
        schema: pb::Schema::default(),
        producer_name: None,
    };
    let answer = bench.ask(bob, Command::GetOrCreateSchema(Box::new(create)));
    let Command::GetOrCreateSchemaResponse(answer) = answer else { panic!("{answer:?}") };
    assert_eq!(answer.error_code, refused);
}

#[test]
fn new_rules_end_producers_and_consumers_that_may_not_be_there_any_more() {
    let mut bench = bench();
    let ann = connect_as(&mut bench, "ann");
    assert!(!is_refused(&produce(&mut bench, ann, 1, ORDERS)));
    assert!(!is_refused(&produce(&mut bench, ann, 2, "non-persistent://public/default/x")));
    assert!(!is_refused(&consume(&mut bench, ann, 1, ORDERS)));
    assert!(!is_refused(&consume(&mut bench, ann, 2, NEWS)));
    let exclusive = |producer: &mut pb::CommandProducer| {
        producer.topic = "persistent://public/inbox/ann".into();
        producer.producer_access_mode = Some(pb::ProducerAccessMode::WaitForExclusive as i32);
    };
    for id in [3, 4] {
        bench.produce(ann, id, exclusive);
    }
    let kept = "user ann\ntopic write persistent://public/default/orders\ntopic read persistent://public/default/news\n";
    bench.broker.set_permissions(bench.now, permissions(kept));
    bench.settle();
    let mut closed = Vec::new();
    for command in bench.commands(ann) {
        match command {
            Command::CloseProducer(close) => closed.push(("producer", close.producer_id)),
            Command::CloseConsumer(close) => closed.push(("consumer", close.consumer_id)),
            Command::Error(error) if error.error == pb::ServerError::AuthorizationError as i32 => {
                closed.push(("waiting", 4));
            }
            // The one that waited may have had its turn in between.
            Command::ProducerSuccess(_) => {}
            other => panic!("{other:?}"),
        }
    }
    closed.sort_unstable();
    let last = closed.pop();
    assert_eq!(closed, [("consumer", 1), ("producer", 2), ("producer", 3)]);
    assert!(matches!(last, Some(("producer" | "waiting", 4))), "{last:?}");
    let stats = bench.broker.stats();
    assert_eq!((stats.producers, stats.consumers), (1, 1));
    assert!(is_refused(&consume(&mut bench, ann, 1, ORDERS)));
    // What stays goes on.
    bench.send(ann, 1, 0, |_| {});
    assert_eq!(receipt_of(&bench.one(ann)).0, 0);
}

fn request(bench: &mut Bench, method: &str, path: &str, user: Option<&str>) -> Answer {
    let request = Request::new(method.parse().unwrap(), &path.parse().unwrap()).unwrap();
    let request = Request { user: user.map(Into::into), body: "2".into(), ..request };
    let answer = bench.broker.handle_http(bench.now, &request).unwrap();
    bench.settle();
    answer
}

#[test]
fn over_http_clients_look_up_their_topics_and_a_superuser_administers() {
    let mut bench = bench();
    bench.broker.create_topic(ORDERS, 0).unwrap();
    bench.broker.create_topic("secret", 0).unwrap();
    let topics = "/admin/v2/namespaces/public/default/topics";
    let orders = "/admin/v2/persistent/public/default/orders";
    let secret = "/admin/v2/persistent/public/default/secret";
    for (method, path, ann, bob, root) in [
        ("GET", "/lookup/v2/topic/persistent/public/default/orders".to_owned(), 200, 403, 200),
        ("GET", format!("{orders}/partitions"), 200, 403, 200),
        ("GET", format!("{secret}/partitions"), 403, 403, 200),
        ("GET", "/admin/v2/schemas/public/default/orders/schema".into(), 404, 403, 404),
        ("GET", "/admin/v2/brokers/health".into(), 200, 200, 200),
        ("GET", format!("{orders}/stats"), 403, 403, 200),
        ("GET", format!("{orders}/subscriptions"), 403, 403, 200),
        ("GET", "/admin/v2/tenants".into(), 403, 403, 200),
        ("GET", "/admin/v2/persistent/public/default".into(), 403, 403, 200),
        ("PUT", "/admin/v2/persistent/public/default/new/partitions".into(), 403, 403, 204),
        ("DELETE", secret.into(), 403, 403, 204),
    ] {
        for (user, expected) in [(Some("ann"), ann), (Some("bob"), bob), (None, bob), (Some("root"), root)] {
            let before = denied(&bench);
            let answer = request(&mut bench, method, &path, user);
            assert_eq!(answer.status.as_u16(), expected, "{user:?} {method} {path}: {answer:?}");
            assert_eq!(denied(&bench) - before, u64::from(expected == 403));
        }
    }
    let list = |bench: &mut Bench, user| request(bench, "GET", topics, Some(user)).body;
    assert_eq!(list(&mut bench, "ann"), format!("[{ORDERS:?}]"));
    assert_eq!(list(&mut bench, "bob"), "[]");
    assert!(list(&mut bench, "root").len() > 60);
}

const OWNERS: &str = "\
user ann
topic readwrite persistent://public/default/+
user bob
topic readwrite persistent://public/default/+
user cat
topic readwrite persistent://public/default/+
subscription bil*
user root
superuser
";

fn bench_with_owners() -> Bench {
    Bench::with(|settings| {
        settings.session.tokens = Some(Arc::new(TokenKeys::new(KEY).unwrap()));
        settings.permissions = Some(permissions(OWNERS));
        settings.owners = true;
    })
}

fn subscribe(bench: &mut Bench, peer: u64, id: u64, topic: &str, name: &str) -> Command {
    let change = |consumer: &mut pb::CommandSubscribe| {
        (consumer.topic, consumer.subscription) = (topic.into(), name.into());
    };
    bench.subscription(peer, id, SHARED, change).remove(0)
}

fn owners(bench: &Bench, topic: &str) -> Vec<(String, Option<String>)> {
    let listed = bench.broker.topic_stats(topic).unwrap().subscriptions;
    listed.into_iter().map(|one| (one.name, one.owner)).collect()
}

#[test]
fn a_durable_subscription_belongs_to_the_user_that_made_it() {
    let mut bench = bench_with_owners();
    let [ann, bob, cat, root] = ["ann", "bob", "cat", "root"].map(|user| connect_as(&mut bench, user));
    assert!(!is_refused(&subscribe(&mut bench, ann, 1, ORDERS, "billing")));
    assert!(!is_refused(&subscribe(&mut bench, ann, 2, ORDERS, "audit")));
    let Command::Error(refused) = subscribe(&mut bench, bob, 1, ORDERS, "billing") else {
        panic!("it was not refused")
    };
    assert_eq!(refused.error, pb::ServerError::AuthorizationError as i32);
    assert_eq!(
        refused.message,
        format!(
            "Client is not authorized to use subscription billing of topic {ORDERS}: it belongs to another user"
        )
    );
    assert_eq!(denied(&bench), 1);
    for (peer, id, name, refused) in [
        (cat, 1, "billing", false),
        (cat, 2, "audit", true),
        (root, 1, "billing", false),
        (root, 2, "audit", false),
        (ann, 3, "audit", false),
        (bob, 2, "own", false),
    ] {
        assert_eq!(is_refused(&subscribe(&mut bench, peer, id, ORDERS, name)), refused, "{name}");
    }
    let of = |user: &str| Some(user.to_owned());
    let expected = [("audit".into(), of("ann")), ("billing".into(), of("ann")), ("own".into(), of("bob"))];
    assert_eq!(owners(&bench, ORDERS), expected, "those who share it do not get it");
    // The consumer that was refused cannot seek, nor end the subscription.
    bench.hear(bob);
    let heard = bench.seek(bob, 1, Some(id(0)), None);
    assert_eq!(error_of(&heard[0]), pb::ServerError::MetadataError);
    let unsubscribe = pb::CommandUnsubscribe { consumer_id: 1, request_id: 7, force: Some(true) };
    let answer = bench.ask(bob, Command::Unsubscribe(unsubscribe));
    assert_eq!(error_of(&answer), pb::ServerError::MetadataError);
    // A reader is not durable, and belongs to no user.
    let reader = |consumer: &mut pb::CommandSubscribe| {
        (consumer.subscription, consumer.durable) = ("reader".into(), Some(false));
    };
    assert!(!is_refused(&bench.subscription(ann, 9, SHARED, reader)[0]));
    assert!(!is_refused(&bench.subscription(bob, 9, SHARED, reader)[0]));
}

fn named(bench: &mut Bench, peer: u64, id: u64, topic: &str, name: &str) -> Command {
    let change = |producer: &mut pb::CommandProducer| {
        (producer.topic, producer.producer_name) = (topic.into(), Some(name.into()));
    };
    bench.produce(peer, id, change)
}

#[test]
fn the_name_of_a_producer_belongs_to_its_user_as_long_as_its_ids_are_kept() {
    let mut bench = bench_with_owners();
    let [ann, bob, root] = ["ann", "bob", "root"].map(|user| connect_as(&mut bench, user));
    assert!(!is_refused(&named(&mut bench, ann, 1, ORDERS, "till")));
    let Command::Error(refused) = named(&mut bench, bob, 1, ORDERS, "till") else {
        panic!("it was not refused")
    };
    assert_eq!(refused.error, pb::ServerError::AuthorizationError as i32);
    assert_eq!(
        refused.message,
        format!(
            "Client is not authorized to use producer name till of topic {ORDERS}: it belongs to another user"
        )
    );
    assert_eq!(denied(&bench), 1);
    // Nor does another user take over by a newer epoch, as the client itself does after a loss.
    let newer = bench.produce(bob, 1, |producer| {
        (producer.producer_name, producer.epoch) = (Some("till".into()), Some(9));
    });
    assert!(is_refused(&newer));
    bench.fill(ann, 1, 0..3);
    let close = |bench: &mut Bench, peer| {
        let close = pb::CommandCloseProducer { producer_id: 1, request_id: 9, ..Default::default() };
        bench.ask(peer, Command::CloseProducer(close));
    };
    close(&mut bench, ann);
    assert!(is_refused(&named(&mut bench, bob, 1, ORDERS, "till")), "its ids are ann's");
    let other = "persistent://public/default/other";
    assert!(!is_refused(&named(&mut bench, bob, 1, other, "till")), "another topic is another name");
    assert!(!is_refused(&named(&mut bench, root, 1, ORDERS, "till")));
    close(&mut bench, root);
    let Command::ProducerSuccess(again) = named(&mut bench, ann, 1, ORDERS, "till") else {
        panic!("it is hers")
    };
    assert_eq!(again.last_sequence_id, Some(2));
    close(&mut bench, ann);
    bench.pass(Duration::from_secs(6 * 3600 + 10));
    let bob = connect_as(&mut bench, "bob");
    assert!(!is_refused(&named(&mut bench, bob, 1, ORDERS, "till")), "it is forgotten");
}

#[test]
fn the_name_of_a_producer_has_its_owner_after_a_restart() {
    let mut bench = bench_with_owners();
    let producer = StoredProducer { name: "till".into(), last: 7, owner: Some("ann".into()) };
    let topic = StoredTopic {
        id: 9,
        name: ORDERS.into(),
        partitions: 0,
        epoch: 0,
        first: 0,
        next: 0,
        next_index: 0,
        last: None,
        cursors: Vec::new(),
        producers: vec![producer],
        terminated: false,
    };
    let found = Found { topics: vec![topic], ..Found::default() };
    bench.broker = Broker::new(bench.settings.clone(), found, None, bench.now);
    let [ann, bob] = ["ann", "bob"].map(|user| connect_as(&mut bench, user));
    assert!(is_refused(&named(&mut bench, bob, 1, ORDERS, "till")));
    let Command::ProducerSuccess(again) = named(&mut bench, ann, 1, ORDERS, "till") else {
        panic!("it is hers")
    };
    assert_eq!(again.last_sequence_id, Some(7));
}

#[test]
fn the_name_of_a_producer_has_one_owner_in_all_partitions() {
    let mut bench = bench_with_owners();
    let [ann, bob] = ["ann", "bob"].map(|user| connect_as(&mut bench, user));
    bench.broker.create_topic("parts", 3).unwrap();
    let part = |index: u64| format!("persistent://public/default/parts-partition-{index}");
    assert!(!is_refused(&named(&mut bench, ann, 1, &part(1), "till")));
    for index in 0..3 {
        assert!(is_refused(&named(&mut bench, bob, index, &part(index), "till")), "{index}");
    }
    for index in [0, 2] {
        assert!(!is_refused(&named(&mut bench, ann, 10 + index, &part(index), "till")));
    }
}

#[test]
fn a_subscription_has_one_owner_in_all_partitions() {
    let mut bench = bench_with_owners();
    let [ann, bob] = ["ann", "bob"].map(|user| connect_as(&mut bench, user));
    bench.broker.create_topic("parts", 3).unwrap();
    let part = |index: u32| format!("persistent://public/default/parts-partition-{index}");
    assert!(!is_refused(&subscribe(&mut bench, ann, 1, &part(1), "s")));
    for index in 0..3 {
        assert!(is_refused(&subscribe(&mut bench, bob, index.into(), &part(index), "s")), "{index}");
    }
    for index in [0, 2] {
        assert!(!is_refused(&subscribe(&mut bench, ann, 10 + u64::from(index), &part(index), "s")));
    }
    bench.broker.grow_topic("parts", 4).unwrap();
    let all = owners(&bench, "persistent://public/default/parts");
    assert_eq!(all, vec![("s".to_owned(), Some("ann".to_owned())); 4], "also in those that are added");
}

#[test]
fn a_producer_makes_its_own_subscription_and_an_operator_one_for_all() {
    let mut bench = bench_with_owners();
    let [ann, bob] = ["ann", "bob"].map(|user| connect_as(&mut bench, user));
    let with_subscription = |producer: &mut pb::CommandProducer| {
        producer.initial_subscription_name = Some("dead".into());
    };
    assert!(!is_refused(&bench.produce(ann, 1, with_subscription)));
    assert!(is_refused(&subscribe(&mut bench, bob, 1, ORDERS, "dead")));
    assert!(!is_refused(&subscribe(&mut bench, ann, 1, ORDERS, "dead")));
    let path = "/admin/v2/persistent/public/default/orders/subscription/free";
    let made = Request::new("PUT".parse().unwrap(), &path.parse().unwrap()).unwrap();
    let made = Request { user: Some("root".into()), ..made };
    assert_eq!(bench.broker.handle_http(bench.now, &made).unwrap().status.as_u16(), 204);
    bench.settle();
    for peer in [ann, bob] {
        assert!(!is_refused(&subscribe(&mut bench, peer, 2, ORDERS, "free")));
    }
    assert_eq!(owners(&bench, ORDERS), [("dead".into(), Some("ann".into())), ("free".into(), None)]);
    // An operator may also take it away.
    for (user, expected) in [("bob", 403), ("root", 204)] {
        let path = "/admin/v2/persistent/public/default/orders/subscription/dead?force=true";
        assert_eq!(request(&mut bench, "DELETE", path, Some(user)).status.as_u16(), expected);
    }
    assert!(!is_refused(&subscribe(&mut bench, bob, 3, ORDERS, "dead")), "it is a new one");
}

#[test]
fn without_owners_a_subscription_is_of_everyone_who_may_read_the_topic() {
    let mut bench = Bench::with(|settings| {
        settings.session.tokens = Some(Arc::new(TokenKeys::new(KEY).unwrap()));
    });
    for (id, user) in [(1, "ann"), (2, "bob")] {
        let peer = connect_as(&mut bench, user);
        assert!(!is_refused(&subscribe(&mut bench, peer, id, ORDERS, "s")));
    }
    assert_eq!(owners(&bench, ORDERS), [("s".into(), None)]);
}

#[test]
fn new_rules_end_consumers_that_shared_a_subscription() {
    let mut bench = bench_with_owners();
    let [ann, cat] = ["ann", "cat"].map(|user| connect_as(&mut bench, user));
    for peer in [ann, cat] {
        assert!(!is_refused(&subscribe(&mut bench, peer, 1, ORDERS, "billing")));
    }
    bench.hear(ann);
    bench.hear(cat);
    bench.broker.set_permissions(bench.now, permissions(&OWNERS.replace("subscription bil*\n", "")));
    bench.settle();
    assert!(matches!(bench.one(cat), Command::CloseConsumer(_)));
    assert_eq!(bench.commands(ann), []);
    assert!(is_refused(&subscribe(&mut bench, cat, 1, ORDERS, "billing")));
}
