//! HTTP of the embedded broker, by plain requests over sockets: health, metrics, administration,
//! and what is refused.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_broker::auth::TokenKeys;
use forebay_broker::{Broker, Listener, MqttOptions, Options};
use serde_json::Value;

const SECRET: [u8; 32] = [b'7'; 32];

fn ports(protocols: &[&str]) -> Vec<Listener> {
    protocols.iter().map(|protocol| Listener::local(protocol)).collect()
}

fn options() -> Options {
    Options { listeners: ports(&["pulsar", "http"]), ..Options::default() }
}

/// An answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

fn address(broker: &Broker) -> String {
    broker.urls().of("http").unwrap().trim_start_matches("http://").to_owned()
}

fn connect(broker: &Broker) -> TcpStream {
    let stream = TcpStream::connect(address(broker)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// The next answer on a connection.
fn hear(stream: &mut TcpStream) -> Answer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    Answer { status, head, body }
}

/// Bytes of a request; `headers` are lines.
fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}{length}\r\n{body}").into_bytes()
}

fn ask_with(broker: &Broker, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut stream = connect(broker);
    stream.write_all(&request(method, path, headers, body)).unwrap();
    hear(&mut stream)
}

fn ask(broker: &Broker, method: &str, path: &str) -> Answer {
    ask_with(broker, method, path, "", "")
}

/// Whether the broker closes the connection within `limit`.
fn ends(stream: &mut TcpStream, limit: Duration) -> bool {
    stream.set_read_timeout(Some(limit)).unwrap();
    let (since, mut buffer) = (Instant::now(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) if since.elapsed() < limit => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            _ => return false,
        }
    }
}

#[test]
fn it_is_off_unless_asked_for() {
    let broker = Broker::start(Options::default()).unwrap();
    assert_eq!(broker.urls().of("http"), None);
}

#[test]
fn health_and_metrics_tell_what_the_broker_has() {
    let data = tempfile::tempdir().unwrap();
    let listeners = ports(&["pulsar", "mqtt", "http"]);
    let broker = Broker::start(Options { data: Some(data.path().into()), listeners, ..options() }).unwrap();
    let mut stream = connect(&broker);
    for (path, expected) in [("/healthz", "ok\n"), ("/readyz", "\"ready\":true")] {
        // One connection for all.
        stream.write_all(&request("GET", path, "", "")).unwrap();
        let answer = hear(&mut stream);
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains(expected), "{answer:?}");
    }
    broker.create_topic("persistent://public/default/a\"b", 2).unwrap();
    let path = "/admin/v2/persistent/public/default/a%22b/subscription/s";
    assert_eq!(ask(&broker, "PUT", path).status, 204);
    let answer = ask(&broker, "GET", "/metrics");
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{answer:?}");
    let text = answer.text();
    for line in [
        "forebay_broker_store_writable 1",
        "forebay_broker_topics{protocol=\"pulsar\"} 2",
        "forebay_broker_topics{protocol=\"mqtt\"} 0",
        "forebay_broker_http_answers_total{status=\"2xx\"} 3",
        "forebay_subscription_backlog_entries{protocol=\"pulsar\",topic=\"persistent://public/default/a\\\"b\",subscription=\"s\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let free = text.lines().find_map(|line| line.strip_prefix("forebay_broker_disk_free_bytes "));
    assert!(free.unwrap().parse::<u64>().unwrap() > 0);
    let head = ask(&broker, "GET", "/metrics");
    assert!(head.head.contains("cache-control: no-store") && head.head.contains("nosniff"), "{}", head.head);
}

#[test]
fn what_is_not_there_is_said_with_a_status_and_a_reason() {
    let broker = Broker::start(Options {
        listeners: ports(&["pulsar", "mqtt", "tubemq", "http"]),
        ..Options::default()
    })
    .unwrap();
    for (method, path, status) in [
        ("GET", "/page", 404),
        ("POST", "/", 405),
        ("GET", "/forebay/v1/nothing", 404),
        ("POST", "/forebay/v1/clients", 405),
        ("DELETE", "/forebay/v1/clients/pulsar/7", 404),
        ("DELETE", "/forebay/v1/clients/smtp/1", 404),
        ("GET", "/forebay/v1/mqtt/publish", 405),
        ("GET", "/forebay/v1/pulsar/publish", 405),
        ("GET", "/forebay/v1/tubemq/publish", 405),
        ("DELETE", "/forebay/v1/mqtt/sessions?client_id=x", 404),
        ("DELETE", "/forebay/v1/mqtt/sessions", 400),
        ("DELETE", "/forebay/v1/mqtt/retained?topic=x", 404),
        ("GET", "/forebay/v1/mqtt/retained?filter=a/%23/b", 400),
        ("GET", "/forebay/v1/mqtt/sessions?after=x", 400),
        ("GET", "/admin", 404),
        ("GET", "/admin/v2/nothing", 404),
        ("GET", "/healthz/x", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/healthz", 405),
        ("PATCH", "/admin/v2/persistent/public/default/t", 405),
        ("GET", "/admin/v2/persistent/public/default/t/stats", 404),
        ("GET", "/admin/v2/persistent/public/default/..%2ft/stats", 412),
        ("GET", "/admin/v2/persistent/public/default/../t/stats", 400),
        ("GET", "/admin/v2/persistent/public/%2e%2e/t/stats", 400),
        ("GET", "/lookup/v2/topic/file/public/default/t", 404),
        ("GET", "/lookup/v2/topic/persistent/pub%20lic/default/t", 412),
    ] {
        let answer = ask(&broker, method, path);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        assert!(!answer.json()["reason"].as_str().unwrap().is_empty());
    }
    assert!(broker.topics().unwrap().is_empty());
}

#[test]
fn strangers_get_nothing_and_change_nothing() {
    let broker = Broker::start(Options { token_key: Some(SECRET.to_vec()), ..options() }).unwrap();
    broker.create_topic("secret-topic", 0).unwrap();
    let before = broker.topics().unwrap();
    let key = TokenKeys::new(&SECRET).unwrap();
    let topic = "/admin/v2/persistent/public/default/secret-topic";
    let paths = [
        ("GET", "/metrics".to_owned()),
        ("GET", "/admin/v2/persistent/public/default".to_owned()),
        ("GET", "/lookup/v2/topic/persistent/public/default/secret-topic".to_owned()),
        (
            "GET",
            "/admin/v2/persistent/public/default/other/partitions?checkAllowAutoCreation=true".to_owned(),
        ),
        ("GET", format!("{topic}/stats")),
        ("DELETE", format!("{topic}?force=true")),
        ("POST", format!("{topic}/terminate")),
        ("PUT", format!("{topic}/subscription/s")),
        ("GET", "/nothing".to_owned()),
        ("GET", "/healthz/../metrics".to_owned()),
    ];
    let wrong = [
        String::new(),
        format!("Authorization: Bearer {}\r\n", TokenKeys::new(&[b'8'; 32]).unwrap().sign("till", None)),
        format!("Authorization: Bearer {}\r\n", key.sign("till", Some(1000))),
        "Authorization: Basic dGlsbDp0aWxs\r\n".to_owned(),
    ];
    for credentials in &wrong {
        for (method, path) in &paths {
            let answer = ask_with(&broker, method, path, credentials, "");
            assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
            assert!(answer.head.contains("www-authenticate: bearer"), "{answer:?}");
            // The same for what there is and what there is not.
            assert_eq!(answer.text(), "{\"reason\":\"a valid token is required\"}");
        }
    }
    assert_eq!(broker.topics().unwrap(), before);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(&broker, "GET", path).status, 200);
    }
    let good = format!("Authorization: Bearer {}\r\n", key.sign("till", None));
    assert_eq!(ask_with(&broker, "GET", &format!("{topic}/stats"), &good, "").status, 200);
    let cross = format!("{good}Origin: http://evil.example\r\n");
    assert_eq!(ask_with(&broker, "DELETE", topic, &cross, "").status, 403);
    assert_eq!(broker.topics().unwrap(), before);
}

#[test]
fn a_web_page_reaches_nothing_by_its_own_name_or_from_another_site() {
    let broker = Broker::start(options()).unwrap();
    let rebound = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let mut stream = connect(&broker);
    stream.write_all(rebound.as_bytes()).unwrap();
    assert_eq!(hear(&mut stream).status, 421);
    for header in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n", "Origin: null\r\n"] {
        let path = "/admin/v2/persistent/public/default/t";
        assert_eq!(ask_with(&broker, "PUT", path, header, "").status, 403, "{header}");
        let path = format!("{path}/partitions?checkAllowAutoCreation=true");
        assert_eq!(ask_with(&broker, "GET", &path, header, "").status, 403, "{header}");
        let path = "/forebay/v1/tubemq/groups/reset";
        assert_eq!(ask_with(&broker, "POST", path, header, "{}").status, 403, "{header}");
    }
    assert!(broker.topics().unwrap().is_empty());
    let host = address(&broker);
    let own = format!(
        "PUT /admin/v2/persistent/public/default/t HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\r\n"
    );
    let mut stream = connect(&broker);
    stream.write_all(own.as_bytes()).unwrap();
    assert_eq!(hear(&mut stream).status, 204);
    assert_eq!(broker.topics().unwrap().len(), 1);
}

#[test]
fn requests_that_are_too_large_are_refused() {
    let broker = Broker::start(options()).unwrap();
    let path = "/admin/v2/schemas/public/default/t/schema";
    let claims = |length: &str| {
        let mut stream = connect(&broker);
        let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    // More than the limit is claimed: nothing is allocated for it, and nothing waited for.
    let answer = hear(&mut claims("Content-Length: 1099511627776\r\n"));
    assert_eq!(answer.status, 413, "{answer:?}");
    // The same without a claim.
    let mut chunked = claims("Transfer-Encoding: chunked\r\n");
    let chunk = [b"80000\r\n", &[b'x'; 0x80000][..], b"\r\n"].concat();
    while chunked.write_all(&chunk).is_ok() {}
    for (head, status) in [
        (format!("GET /{} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "x".repeat(9_000)), 414),
        (format!("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n", "X: x\r\n".repeat(100)), 431),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400),
        ("\0\0\0\x10\0\0\0\x0c\r\n\r\n".to_owned(), 400),
    ] {
        let mut stream = connect(&broker);
        // The broker may close before everything is written.
        let _ = stream.write_all(head.as_bytes());
        assert_eq!(hear(&mut stream).status, status, "{head:.60}");
    }
    // A head that does not end is cut off: the answer may be lost with the bytes that were not read
    // any more.
    let mut endless = connect(&broker);
    endless.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ").unwrap();
    let mut sent = 0;
    while endless.write_all(&[b'x'; 1 << 16]).is_ok() {
        sent += 1 << 16;
        assert!(sent < 64 << 20, "it takes any number of bytes");
    }
    assert_eq!(ask(&broker, "GET", "/healthz").status, 200);
}

/// A connection with a request whose body of 2 MiB has not come whole yet.
fn unfinished(broker: &Broker, method: &str, path: &str, body: usize) -> TcpStream {
    let mut stream = connect(broker);
    let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", 2 << 20);
    // One that is refused may be closed before everything is written.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b'x'; body]));
    stream
}

#[test]
fn bodies_that_are_being_read_have_a_limit_together() {
    let broker = Broker::start(options()).unwrap();
    let path = "/admin/v2/schemas/public/default/t/schema";
    // 40 MiB.
    let mut streams: Vec<_> = (0..20).map(|_| unfinished(&broker, "POST", path, (2 << 20) - 1)).collect();
    for stream in &streams {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    }
    let mut statuses = Vec::new();
    while !statuses.contains(&503) {
        assert!(!streams.is_empty(), "none was refused for the others: {statuses:?}");
        streams.retain_mut(|stream| match stream.peek(&mut [0]) {
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => true,
            // Its answer was lost with the bytes that were not read any more.
            Err(_) | Ok(0) => false,
            Ok(_) => {
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                statuses.push(hear(stream).status);
                false
            }
        });
    }
    // Requests with short bodies, or none, go on.
    assert_eq!(ask(&broker, "GET", "/metrics").status, 200);
    drop(streams);
    let schema = r#"{"type": "STRING", "schema": "", "properties": {}}"#;
    let since = Instant::now();
    let large = request("POST", path, "", &format!("{schema}{}", " ".repeat(1 << 20)));
    // One that is refused may be closed before its answer is read.
    let status = |mut stream: TcpStream| {
        let mut head = [0; 12];
        stream.write_all(&large).and_then(|()| stream.read_exact(&mut head)).is_ok().then_some(head)
    };
    while status(connect(&broker)).is_none_or(|head| head.ends_with(b"503")) {
        assert!(since.elapsed() < Duration::from_secs(60), "the room is not given back");
    }
}

#[test]
fn bodies_of_strangers_and_those_that_mean_nothing_are_not_waited_for() {
    let broker = Broker::start(Options { token_key: Some(SECRET.to_vec()), ..options() }).unwrap();
    for (method, path, status) in [
        ("POST", "/healthz", 405),
        ("GET", "/healthz", 200),
        ("POST", "/admin/v2/schemas/public/default/t/schema", 401),
        ("GET", "/metrics", 401),
    ] {
        assert_eq!(hear(&mut unfinished(&broker, method, path, 1000)).status, status, "{method} {path}");
    }
}

/// Clients that are slow in several ways, and one that sends a byte at a time, with the time that
/// it lasts.
fn slow_clients(broker: &Broker) -> (Vec<(&'static str, TcpStream)>, JoinHandle<Duration>) {
    let slow = [
        ("silent", ""),
        ("half a head", "GET /metrics HTTP/1.1\r\nHost: 127"),
        ("half a body", "PUT /admin/v2/persistent/public/default/t/partitions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n1"),
        ("idle", "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    ]
    .into_iter()
    .map(|(what, bytes)| {
        let mut stream = connect(broker);
        stream.write_all(bytes.as_bytes()).unwrap();
        (what, stream)
    })
    .collect();
    let mut drip = connect(broker);
    let dripping = std::thread::spawn(move || {
        let since = Instant::now();
        for byte in b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ".iter().chain(std::iter::repeat(&b'x'))
        {
            if drip.write_all(&[*byte]).is_err() || since.elapsed() > Duration::from_secs(120) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        since.elapsed()
    });
    (slow, dripping)
}

#[test]
fn slow_clients_lose_their_connection_and_hold_nobody_up() {
    let broker = Broker::start(options()).unwrap();
    // An answer may be late on a busy machine, but not each time.
    let attempt = |_| {
        let clients = slow_clients(&broker);
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(5) {
            let asked = Instant::now();
            assert_eq!(ask(&broker, "GET", "/healthz").status, 200);
            if asked.elapsed() >= Duration::from_secs(2) {
                return None;
            }
        }
        Some(clients)
    };
    let (mut slow, dripping) = (0..3).find_map(attempt).expect("answers within two seconds");
    for (what, stream) in &mut slow {
        assert!(ends(stream, Duration::from_secs(90)), "{what}: the connection stays");
    }
    assert!(dripping.join().unwrap() < Duration::from_secs(90), "it does not last longer");
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_is_given_up() {
    let broker = Broker::start(options()).unwrap();
    let long = "x".repeat(900);
    for topic in 0..9 {
        broker.create_topic(&format!("persistent://public/default/{long}-{topic}"), 1_000).unwrap();
    }
    // The answer has 8.5 MB, more than the buffers of the kernel take.
    let mut deaf = connect(&broker);
    deaf.write_all(&request("GET", "/admin/v2/persistent/public/default", "", "")).unwrap();
    let connections = || {
        let text = ask(&broker, "GET", "/metrics").text();
        let name = "forebay_broker_connections{protocol=\"http\"} ";
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<usize>().unwrap()
    };
    let since = Instant::now();
    let (mut seen, mut alone) = (false, 0);
    // The one that asks is there, too, and the one that asked before may not have ended yet.
    while alone < 5 {
        let now = connections();
        seen |= now > 1;
        alone = if now == 1 { alone + 1 } else { 0 };
        assert!(since.elapsed() < Duration::from_secs(120), "{now} connections stay");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(seen && since.elapsed() > Duration::from_secs(5), "it had time: {:?}", since.elapsed());
    drop(deaf);
}

#[test]
fn connections_have_a_share_and_leave_the_protocols_theirs() {
    let broker = Broker::start(Options { max_connections: 8, ..options() }).unwrap();
    let flood: Vec<TcpStream> = (0..20).map(|_| connect(&broker)).collect();
    flood.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let is_up =
        |stream: &TcpStream| stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    let since = Instant::now();
    while flood.iter().filter(|stream| is_up(stream)).count() > 6 {
        assert!(since.elapsed() < Duration::from_secs(60), "too few of them were refused");
        std::thread::sleep(Duration::from_millis(10));
    }
    let url = broker.url().trim_start_matches("pulsar://").to_owned();
    let mut peer = TcpStream::connect(url).unwrap();
    assert!(!ends(&mut peer, Duration::from_millis(500)), "Pulsar has connections left");
    drop(flood);
    let since = Instant::now();
    loop {
        let mut stream = connect(&broker);
        if stream.write_all(&request("GET", "/metrics", "", "")).is_ok()
            && stream.peek(&mut [0]).is_ok_and(|n| n > 0)
        {
            let text = hear(&mut stream).text();
            let refused = "forebay_broker_connections_refused_total{protocol=\"http\"} ";
            let refused = text.lines().find_map(|line| line.strip_prefix(refused)).unwrap();
            assert!(refused.parse::<u64>().unwrap() >= 14, "three quarters of 8: {refused} were refused");
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn other_machines_need_credentials_here_too() {
    // Users of MQTT, and HTTP without credentials.
    let mqtt = MqttOptions { passwords: Some(super::listeners::USER.into()), ..MqttOptions::default() };
    let listeners = ["mqtt", "http"].map(|protocol| Listener::tcp(protocol, "0.0.0.0", 0)).to_vec();
    let lan = Options { mqtt, listeners, ..Options::default() };
    let text = Broker::start(lan.clone()).unwrap_err().to_string();
    assert!(text.contains("the http listener on 0.0.0.0:0: set token_key"), "{text}");
    assert!(!text.contains("mqtt listener"), "{text}");
    Broker::start(Options { token_key: Some(SECRET.to_vec()), ..lan }).unwrap();
}

#[test]
fn topics_and_subscriptions_are_administered_and_kept() {
    let data = tempfile::tempdir().unwrap();
    let start = || Broker::start(Options { data: Some(data.path().into()), ..options() }).unwrap();
    let mut broker = start();
    let topic = "/admin/v2/persistent/public/default/t";
    let said = |method: &str, path: &str, body: &str| {
        ask_with(&broker, method, &format!("{topic}{path}"), "", body).status
    };
    for (method, path, body, status) in [
        ("PUT", "/partitions", "0", 406),
        ("PUT", "/partitions", "x", 400),
        ("PUT", "/partitions", "99999999999", 406),
        ("PUT", "/partitions", "2", 204),
        ("PUT", "/partitions", "2", 409),
        ("PUT", "/subscription/s", "", 204),
        ("PUT", "/subscription/s", "", 409),
        ("PUT", "/subscription/x", "[]", 400),
        ("POST", "/partitions", "1", 422),
        ("POST", "/partitions", "3", 204),
        ("POST", "/subscription/s/skip_all", "", 204),
        ("POST", "/subscription/none/skip_all", "", 404),
        ("POST", "/subscription/s/skip/1", "", 405),
        ("POST", "/subscription/s/resetcursor/0", "", 204),
        ("POST", "/subscription/s/resetcursor/x", "", 400),
        ("POST", "/subscription/s/expireMessages/10", "", 409),
        ("DELETE", "", "", 409),
    ] {
        assert_eq!(said(method, path, body), status, "{method} {path} {body}");
    }
    assert!(broker.stop(Duration::from_secs(60)));
    let broker = start();
    let answer = ask(&broker, "GET", &format!("{topic}/partitions")).json();
    assert_eq!(answer["partitions"], 3);
    for partition in 0..3 {
        let names = ask(&broker, "GET", &format!("{topic}-partition-{partition}/subscriptions")).json();
        assert_eq!(names, serde_json::json!(["s"]), "{partition}");
    }
    assert_eq!(ask(&broker, "DELETE", &format!("{topic}/partitions")).status, 204);
    assert_eq!(ask(&broker, "GET", &format!("{topic}/partitions")).status, 404);
}

#[test]
fn messages_of_a_topic_are_examined_from_either_end() {
    let broker = Broker::start(options()).unwrap();
    broker.create_topic("t", 0).unwrap();
    broker.create_topic("split", 2).unwrap();
    broker.create_topic("non-persistent://public/default/n", 0).unwrap();
    let examine =
        |topic: &str, query: &str| ask(&broker, "GET", &format!("/admin/v2/{topic}/examinemessage{query}"));
    let topic = "persistent/public/default/t";
    assert_eq!(examine(topic, "").status, 412, "it is empty");
    for payload in ["one", "two", "three"] {
        let body = serde_json::json!({"topic": "t", "payload": payload}).to_string();
        assert_eq!(ask_with(&broker, "POST", "/forebay/v1/pulsar/publish", "", &body).status, 200);
    }
    for (query, payload) in [
        ("", "three"),
        ("?messagePosition=0", "three"),
        ("?initialPosition=latest&messagePosition=2", "two"),
        ("?initialPosition=earliest", "one"),
        ("?initialPosition=earliest&messagePosition=3", "three"),
    ] {
        let answer = examine(topic, query);
        assert_eq!((answer.status, &*answer.text()), (200, payload), "{query}");
        assert!(answer.head.contains("x-pulsar-message-id: "), "{answer:?}");
    }
    for (topic, query, status) in [
        (topic, "?messagePosition=4", 404),
        (topic, "?initialPosition=earliest&messagePosition=4", 404),
        (topic, "?messagePosition=x", 400),
        (topic, "?initialPosition=middle", 400),
        ("persistent/public/default/split", "", 405),
        ("non-persistent/public/default/n", "", 405),
        ("persistent/public/default/none", "", 404),
    ] {
        assert_eq!(examine(topic, query).status, status, "{topic} {query}");
    }
    assert_eq!(ask(&broker, "POST", &format!("/admin/v2/{topic}/examinemessage")).status, 405);
}
