//! The broker's database, of any format, damaged: it is opened as a sound store or refused with an error. What is opened is
//! read by all protocols, and by the check of the store.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use forebay::broker::log::{Source, TopicIds};
use forebay::broker::protocol::{Clock, Protocol};
use forebay::broker::store::{self, Database, check};
use forebay::broker::{mqtt, pulsar, tubemq};
use forebay::sqlite::{Connection, Sync};
use forebay_fuzz::files::{damage, folder};
use forebay_fuzz::meter::Meter;
use forebay_fuzz::rule::AFTER;
use forebay_fuzz::script::Script;
use forebay_fuzz::settings;

/// Columns of format 1 and their values.
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

/// Topics of each protocol with entries and what refers to them.
const ROWS: &str = "
INSERT INTO topic VALUES (1, 'pulsar', 'persistent://public/default/a', 0, 1, 1, 5, 4),
    (2, 'pulsar', 'persistent://public/default/p', 2, 0, 1, 1, 0), (3, 'mqtt', 'mqtt', 0, 0, 1, 1, 0),
    (4, 'tubemq', 'demo', 1, 0, 1, 1, 0), (5, 'tubemq', 'demo:0', 0, 0, 0, 3, 0);
INSERT INTO entry (id, last_index, stored_ms, publish_ms, deliver_ms, count, batch, hash, crc, body)
    SELECT (t.column1 << 40) + n.column1, n.column1, 1000, 1000, 0, 1, 0, 7, NULL, x'300700036b2f3100787978'
    FROM (VALUES (1), (3), (5)) t, (VALUES (1), (2), (3)) n;
INSERT INTO producer VALUES (1, 'p', 3, 0);
INSERT INTO cursor (topic, subscription, kind, below, state) VALUES (1, 's', 1, 1, x'01010100'), (1, 't', 1, 2, x'0000'),
    (5, 'g', 0, 1, x'0000');
INSERT INTO schema VALUES ('persistent://public/default/a', 0, x'0a016e12027b7d1802');
INSERT INTO retained VALUES ('k/1', 1);
INSERT INTO session (id, client_id, expiry, ends_ms, will, will_delay) VALUES (1, 'c', 100, NULL, NULL, 0),
    (2, 'd', 4294967295, 5000, x'300700036b2f3100787978', 5);
INSERT INTO subscription VALUES (1, 'k/#', 1, NULL), (2, '$share/g/k/+', 2, 7);
INSERT INTO queue VALUES (1, 1, 2, 1, NULL, 0, 0), (1, 2, 3, 2, NULL, 5, 1), (2, 1, 2, 1, x'00000007', 0, 0);
INSERT INTO inflight VALUES (1, 9);
UPDATE meta SET value = 9 WHERE key = 'next_topic';
";

/// Undoes what a format added to the one before.
const BEFORE: [&str; 4] = [
    "ALTER TABLE session DROP COLUMN user; DROP TABLE garbage;",
    "ALTER TABLE entry DROP COLUMN sum; ALTER TABLE entry DROP COLUMN run_ms; DELETE FROM meta WHERE key = 'run_ms';",
    "ALTER TABLE cursor DROP COLUMN touched_ms;",
    "DROP TABLE retained; DROP TABLE session; DROP TABLE subscription; DROP TABLE queue; DROP TABLE inflight;",
];

/// The folder, and the database in each format, the newest first.
fn templates() -> &'static (PathBuf, Vec<Vec<u8>>) {
    static TEMPLATES: OnceLock<(PathBuf, Vec<Vec<u8>>)> = OnceLock::new();
    TEMPLATES.get_or_init(|| {
        let folder = folder("store");
        let path = folder.join("template.db");
        let _ = std::fs::remove_file(&path);
        let db = Connection::open(&path).unwrap();
        store::prepare(&db).unwrap();
        // Format 5, in which what follows is written; the newest one is made of it.
        let sums = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
            WHERE m.type = 'table' AND m.name <> 'entry' AND c.name LIKE '%sum%'";
        let mut statement = db.prepare(sums).unwrap();
        let added = statement.query_map([], |row| {
            Ok(format!("ALTER TABLE {} DROP COLUMN {};", row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        });
        let added: String = added.unwrap().map(Result::unwrap).collect();
        drop(statement);
        // The column is of format 7.
        let added = format!("{added} ALTER TABLE cursor DROP COLUMN owner;");
        db.execute_batch(&format!("{added} UPDATE meta SET value = 5 WHERE key = 'format'; {ROWS}")).unwrap();
        let older = std::fs::read(&path).unwrap();
        store::prepare(&db).unwrap();
        drop(db);
        let mut templates = vec![std::fs::read(&path).unwrap(), older.clone()];
        std::fs::write(&path, older).unwrap();
        let db = Connection::open(&path).unwrap();
        for (back, change) in BEFORE.iter().enumerate() {
            db.execute_batch(&format!("{change} UPDATE meta SET value = {} WHERE key = 'format'", 4 - back))
                .unwrap();
            templates.push(std::fs::read(&path).unwrap());
        }
        (folder, templates)
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

fn open(folder: &Path) -> forebay::error::Result<()> {
    let database = Database::open(folder, Sync::Os)?;
    let (now, run_ms) = (Instant::now(), database.run_ms()?);
    let topic_ids = TopicIds::new(database.next_topic()?);
    let clock = Clock::new(now, settings::WALL_MS).after_run(run_ms);
    let source =
        || -> forebay::error::Result<Option<Box<dyn Source>>> { Ok(Some(Box::new(database.reader()?))) };
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

fuzz_target!(|data: &[u8]| {
    let (folder, templates) = templates();
    let mut script = Script(data);
    let template = &templates[usize::from(script.byte()) % templates.len()];
    damage(&folder.join("broker.db"), template, &COLUMNS, &mut script);
    let mut meter = Meter::default();
    meter.came(template.len());
    let opened = meter.run(|| open(folder));
    if data.len() == 1 {
        opened.expect("it is not damaged");
    }
    let _ = meter.run(|| check::check(folder));
    meter.check(AFTER, 1);
});
