//! Listeners: who may connect from other machines, and what a connection's entry gives it in each
//! protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use forebay_base::error::ErrorKind;
use forebay_broker::{Address, Broker, Listener, MqttOptions, Options, TubeMqOptions};

/// A user of `mosquitto_passwd`.
pub(crate) const USER: &str = "till:$7$101$dkowch7IvcMGC9ZP$LWnT8hQq9KQjwhFy+BJZzeRv+47iAysVi4D7fS6Au6TcZWCkQuZK4EC2qpt4vGwToQeYy/hIwX9gZ6JyPQf4pg==";
/// CONNECT of MQTT 3.1.1 without credentials, and the length of its answer.
const NAMELESS: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01p";
/// The same of another client.
const OTHER: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01q";

fn lan(protocols: &[&str]) -> Vec<Listener> {
    protocols.iter().map(|protocol| Listener::tcp(protocol, "0.0.0.0", 0)).collect()
}

fn refusal(options: Options) -> String {
    let error = Broker::start(options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    error.message().to_owned()
}

/// The return code of CONNACK.
fn return_code(stream: &mut (impl Read + Write), connect: &[u8]) -> u8 {
    stream.write_all(connect).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    answer[3]
}

fn tcp(url: &str) -> TcpStream {
    let stream = TcpStream::connect(url.trim_start_matches("mqtt://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn listeners_that_would_let_other_machines_in_are_named_with_what_they_lack() {
    let all = ["pulsar", "mqtt", "tubemq", "http"];
    let text = refusal(Options { listeners: lan(&all), ..Options::default() });
    for part in [
        "the pulsar listener on 0.0.0.0:0: set token_key",
        "the mqtt listener on 0.0.0.0:0: set mqtt_password_file or token_key",
        "the tubemq listener on 0.0.0.0:0: set tubemq_user_file",
        "the http listener on 0.0.0.0:0: set token_key",
        "allow_anonymous",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let tokens = Options { listeners: lan(&all), token_key: Some(vec![b'1'; 32]), ..Options::default() };
    let text = refusal(tokens.clone());
    assert!(text.contains("tubemq listener") && !text.contains("pulsar listener"), "{text}");
    let tubemq = TubeMqOptions { users: Some("a:b".into()), ..TubeMqOptions::default() };
    let broker = Broker::start(Options { tubemq, ..tokens.clone() }).unwrap();
    assert!(broker.urls().0.iter().all(|one| one.in_the_clear), "{:?}", broker.urls());
    // Those of this machine need nothing.
    let local = all.map(Listener::local).to_vec();
    let broker = Broker::start(Options { listeners: local, ..Options::default() }).unwrap();
    assert!(!broker.urls().0.iter().any(|one| one.in_the_clear), "{:?}", broker.urls());
    // What is meant is allowed, for that listener alone.
    let open = |protocol| Listener { anonymous: true, ..Listener::tcp(protocol, "0.0.0.0", 0) };
    Broker::start(Options { listeners: vec![open("mqtt")], ..Options::default() }).unwrap();
    let mixed = vec![open("mqtt"), Listener::tcp("mqtt", "0.0.0.0", 0)];
    refusal(Options { listeners: mixed, ..Options::default() });
}

#[test]
fn a_protocol_without_a_listener_is_not_spoken() {
    let broker =
        Broker::start(Options { listeners: vec![Listener::local("mqtt")], ..Options::default() }).unwrap();
    assert_eq!(broker.url(), broker.urls().of("mqtt").unwrap());
    assert_eq!(broker.urls().of("pulsar"), None);
    let status = broker.status().unwrap();
    assert_eq!(status.protocols.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["mqtt"]);
    assert_eq!(broker.create_topic("a", 0).unwrap_err().kind(), ErrorKind::InvalidTopic);
    let text = refusal(Options { listeners: Vec::new(), ..Options::default() });
    assert!(text.contains("nothing to listen on"), "{text}");
    let text = refusal(Options { listeners: vec![Listener::local("mqtts")], ..Options::default() });
    assert!(text.contains("pulsar, mqtt, tubemq, http") && text.contains("\"mqtts\""), "{text}");
    for protocol in ["pulsar", "tubemq", "http"] {
        let websocket = Listener { websocket: true, ..Listener::local(protocol) };
        let text = refusal(Options { listeners: vec![websocket], ..Options::default() });
        assert!(text.contains("over WebSocket"), "{text}");
    }
    let path = tempfile::tempdir().unwrap().path().join("socket");
    let unix = Listener { address: Address::Unix { path, mode: 0o600 }, ..Listener::local("pulsar") };
    let text = refusal(Options { listeners: vec![unix], ..Options::default() });
    assert!(text.contains("over a Unix socket"), "{text}");
}

#[test]
fn an_anonymous_listener_stands_beside_one_that_asks() {
    let mqtt = MqttOptions { passwords: Some(USER.into()), ..MqttOptions::default() };
    let open = Listener { anonymous: true, websocket: false, ..Listener::local("mqtt") };
    let listeners = vec![Listener::local("mqtt"), open];
    let broker = Broker::start(Options { listeners, mqtt, ..Options::default() }).unwrap();
    let urls: Vec<_> = broker.urls().all("mqtt").map(str::to_owned).collect();
    assert_eq!(return_code(&mut tcp(&urls[0]), NAMELESS), 5, "it asks");
    assert_eq!(return_code(&mut tcp(&urls[1]), NAMELESS), 0);
    // With a name it is not anonymous, and a wrong password is a wrong password.
    let named = b"\x10\x16\0\x04MQTT\x04\xc2\0\0\0\x01q\0\x04till\0\x01x";
    assert_eq!(return_code(&mut tcp(&urls[1]), named), 4);
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_a_listener_like_others() {
    use std::os::unix::net::UnixStream;

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let listener = |protocol: &str| Listener {
        address: Address::Unix { path: path(protocol), mode: 0o600 },
        ..Listener::local(protocol)
    };
    let listeners = vec![listener("mqtt"), listener("http"), Listener::local("mqtt")];
    let mut broker = Broker::start(Options { listeners: listeners.clone(), ..Options::default() }).unwrap();
    assert_eq!(broker.url(), format!("mqtt+unix://{}", path("mqtt").display()));
    assert_eq!(return_code(&mut UnixStream::connect(path("mqtt")).unwrap(), NAMELESS), 0);
    assert_eq!(return_code(&mut tcp(&broker.urls().0[2].url), NAMELESS), 0);
    let get = |target: &str| {
        let mut http = UnixStream::connect(path("http")).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        http.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        http.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    };
    get("/healthz");
    // Both are connected: one shows its socket, the other one its address.
    let (mut unix, mut loopback) = (UnixStream::connect(path("mqtt")).unwrap(), tcp(&broker.urls().0[2].url));
    assert_eq!((return_code(&mut unix, NAMELESS), return_code(&mut loopback, OTHER)), (0, 0));
    let found = get("/forebay/v1/clients");
    assert!(found.contains(&format!("\"unix:{}\"", path("mqtt").display())), "{found}");
    assert!(found.contains("\"127.0.0.1:") && !found.contains("\"127.0.0.1:0\""), "{found}");
    let taken = Broker::start(Options { listeners, ..Options::default() }).unwrap_err();
    assert!(taken.message().contains("another process listens there"), "{taken}");
    assert_eq!(return_code(&mut UnixStream::connect(path("mqtt")).unwrap(), NAMELESS), 0, "still there");
    assert!(broker.stop(Duration::from_secs(60)));
    assert!(!path("mqtt").exists() && !path("http").exists());
}
