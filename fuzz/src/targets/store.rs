//! The broker's database, damaged: it is opened as a sound store or refused with an error. What is
//! opened is read by all protocols, and by the check of the store. Half of the inputs give the
//! damaged rows checksums that match.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use forebay_broker::log::{Source, TopicIds};
use forebay_broker::protocol::{Clock, Protocol};
use forebay_broker::store::{self, Database, check};
use forebay_broker::{mqtt, pulsar, tubemq};
use forebay_sqlite::{Connection, Sync};
use crate::files::{damage, folder};
use crate::meter::Meter;
use crate::rule::AFTER;
use crate::script::Script;
use crate::settings;

/// Columns that are damaged.
const COLUMNS: [(&str, &str); 44] = [
    ("meta", "value"),
    ("topic", "id"),
    ("topic", "domain"),
    ("topic", "name"),
    ("topic", "partitions"),
    ("topic", "epoch"),
    ("topic", "first"),
    ("topic", "next"),
    ("topic", "next_index"),
    ("entry", "id"),
    ("entry", "last_index"),
    ("entry", "stored_ms"),
    ("entry", "publish_ms"),
    ("entry", "deliver_ms"),
    ("entry", "count"),
    ("entry", "batch"),
    ("entry", "hash"),
    ("entry", "crc"),
    ("entry", "body"),
    ("entry", "run_ms"),
    ("producer", "topic"),
    ("producer", "last_sequence"),
    ("producer", "touched_ms"),
    ("cursor", "topic"),
    ("cursor", "kind"),
    ("cursor", "below"),
    ("cursor", "state"),
    ("cursor", "touched_ms"),
    ("schema", "name"),
    ("schema", "version"),
    ("schema", "data"),
    ("retained", "sequence"),
    ("session", "id"),
    ("session", "expiry"),
    ("session", "ends_ms"),
    ("session", "will"),
    ("session", "will_delay"),
    ("subscription", "filter"),
    ("subscription", "options"),
    ("queue", "position"),
    ("queue", "sequence"),
    ("queue", "flags"),
    ("queue", "packet_id"),
    ("inflight", "packet_id"),
];

/// Topics of each protocol with entries and what refers to them. `sum` columns are written
/// afterwards.
const ROWS: &str = "
INSERT INTO topic (id, domain, name, partitions, epoch, first, next, next_index)
    VALUES (1, 'pulsar', 'persistent://public/default/a', 0, 1, 1, 5, 4),
    (2, 'pulsar', 'persistent://public/default/p', 2, 0, 1, 1, 0), (3, 'mqtt', 'mqtt', 0, 0, 1, 1, 0),
    (4, 'tubemq', 'demo', 1, 0, 1, 1, 0), (5, 'tubemq', 'demo:0', 0, 0, 0, 3, 0);
INSERT INTO entry (id, last_index, stored_ms, publish_ms, deliver_ms, count, batch, hash, crc, body, run_ms)
    SELECT (t.column1 << 40) + n.column1, n.column1, 1000, 1000, 0, 1, 0, 7, NULL, x'300700036b2f3100787978', 0
    FROM (VALUES (1), (3), (5)) t, (VALUES (1), (2), (3)) n;
INSERT INTO producer (topic, name, last_sequence, touched_ms) VALUES (1, 'p', 3, 0);
INSERT INTO cursor (topic, subscription, kind, below, state, touched_ms)
    VALUES (1, 's', 1, 1, x'01010100', 0), (1, 't', 1, 2, x'0000', 0), (5, 'g', 0, 1, x'0000', 0);
INSERT INTO schema (name, version, data) VALUES ('persistent://public/default/a', 0, x'0a016e12027b7d1802');
INSERT INTO retained (topic, sequence) VALUES ('k/1', 1);
INSERT INTO session (id, client_id, expiry, ends_ms, will, will_delay) VALUES (1, 'c', 100, NULL, NULL, 0),
    (2, 'd', 4294967295, 5000, x'300700036b2f3100787978', 5);
INSERT INTO subscription (session, filter, options, identifier) VALUES (1, 'k/#', 1, NULL), (2, '$share/g/k/+', 2, 7);
INSERT INTO queue (session, position, sequence, flags, ids, packet_id, released)
    VALUES (1, 1, 2, 1, NULL, 0, 0), (1, 2, 3, 2, NULL, 5, 1), (2, 1, 2, 1, x'00000007', 0, 0);
INSERT INTO inflight (session, packet_id) VALUES (1, 9);
UPDATE meta SET value = 9 WHERE key = 'next_topic';
";

/// The folder, and the database.
fn template() -> &'static (PathBuf, Vec<u8>) {
    static TEMPLATE: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let folder = folder("store");
        let path = folder.join("template.db");
        let _ = std::fs::remove_file(&path);
        let db = Connection::open(&path).unwrap();
        store::prepare(&db).unwrap();
        db.execute_batch(ROWS).unwrap();
        store::renew_sums(&db).unwrap();
        drop(db);
        let bytes = std::fs::read(&path).unwrap();
        (folder, bytes)
    })
}

fn turn(mut broker: impl Protocol, mut now: Instant) {
    let id = broker.connect(now, "127.0.0.1:1");
    for _ in 0..3 {
        while broker.poll_op().is_some() {}
        while broker.poll_wake().is_some() {}
        now += Duration::from_secs(1000);
        broker.handle_timeout(now);
    }
    broker.disconnect(now, id);
    let _ = broker.stats();
    if let Some(topics) = broker.topics() {
        for (name, _) in topics.list() {
            let _ = topics.topic_stats(&name);
        }
    }
    broker.shut_down(now);
}

fn open(folder: &Path) -> forebay_base::error::Result<()> {
    let database = Database::open(folder, Sync::Os)?;
    let (now, run_ms) = (Instant::now(), database.run_ms()?);
    let topic_ids = TopicIds::new(database.next_topic()?);
    let clock = Clock::new(now, settings::WALL_MS).after_run(run_ms);
    let source =
        || -> forebay_base::error::Result<Option<Box<dyn Source>>> { Ok(Some(Box::new(database.reader()?))) };
    let found = store::load(database.connection(), "pulsar", run_ms)?;
    let settings = pulsar::options::Settings {
        clock,
        retention: Duration::from_secs(10),
        retention_bytes: 1 << 10,
        topic_ids: topic_ids.clone(),
        ..settings::pulsar(now)
    };
    turn(pulsar::Broker::new(settings, found, source()?, now), now);
    let found = store::load(database.connection(), "tubemq", run_ms)?;
    let settings = tubemq::Settings {
        clock,
        retention: Duration::from_secs(60),
        offset_retention: Duration::from_secs(60),
        topic_ids: topic_ids.clone(),
        ..settings::tubemq(now)
    };
    turn(tubemq::Broker::new(settings, found, source()?, now), now);
    let found = store::mqtt::load(database.connection(), &topic_ids)?;
    let settings = mqtt::Settings { clock, ..settings::mqtt(now) };
    turn(mqtt::Broker::new(settings, found, source()?, now), now);
    Ok(())
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let (folder, template) = template();
    let mut script = Script(data);
    let renews = script.byte() % 2 == 1;
    let renew = |db: &Connection| {
        if renews {
            // A row whose key cannot be read keeps its checksum.
            let _ = store::renew_sums(db);
        }
    };
    damage(&folder.join("broker.db"), template, &COLUMNS, renew, &mut script);
    let mut meter = Meter::default();
    meter.came(template.len());
    let opened = meter.run(|| open(folder));
    if data.len() == 1 {
        opened.expect("it is not damaged");
    }
    let _ = meter.run(|| check::check(folder));
    meter.check(AFTER, 1);
}
