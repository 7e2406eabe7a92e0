//! What follows a connection that the broker refuses or ends. Its session may be taken over by
//! another client, or by a CONNECT of the same client that the network delivers late.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use forebay_client::Engine;
use forebay_client::mqtt::Client;
use forebay_client::mqtt::options::ClientOptions;
use forebay_mqtt::Version;

/// What a broker does with a connection.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Ends it without an answer to CONNECT.
    Swallow,
    /// Refuses it with this code of CONNACK.
    Refuse(u8),
    /// Accepts it, and ends it.
    Cut,
    /// Accepts it, and ends it with this reason of DISCONNECT.
    Dismiss(u8),
    Accept,
}

/// Says that another connection has taken over the session.
const TAKE_OVER: Act = Act::Dismiss(0x8E);

/// Serves a connection. What follows CONNACK waits for `go`.
fn serve(mut stream: TcpStream, version: Version, act: Act, go: impl FnOnce()) {
    let mut chunk = [0; 4096];
    // The client writes CONNECT at once.
    let _ = stream.read(&mut chunk);
    let mut answer = |code: u8| {
        let answer: &[u8] = if version == Version::V5 { &[0x20, 3, 0, code, 0] } else { &[0x20, 2, 0, code] };
        let _ = stream.write_all(answer);
    };
    match act {
        Act::Swallow => return,
        Act::Refuse(code) => return answer(code),
        Act::Cut | Act::Dismiss(_) | Act::Accept => answer(0),
    }
    go();
    if let Act::Dismiss(code) = act {
        let _ = stream.write_all(&[0xE0, 1, code]);
    }
    while !matches!(act, Act::Cut) && stream.read(&mut chunk).is_ok_and(|length| length > 0) {}
}

/// Follows the script, and lets the client either stay with its last connection or end for good.
/// Returns how long that took.
fn follow(version: Version, script: &[Act], ends: bool) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    let served = Arc::new(AtomicUsize::new(0));
    let serving = Arc::clone(&served);
    let (up, is_up) = mpsc::channel();
    let acts = script.to_vec();
    std::thread::spawn(move || {
        for act in acts {
            let (stream, _) = listener.accept().unwrap();
            let number = serving.fetch_add(1, Ordering::SeqCst);
            serve(stream, version, act, || {
                if number == 0 {
                    is_up.recv().unwrap();
                }
            });
        }
    });
    let engine = Engine::start(1).unwrap();
    let begun = Instant::now();
    let followed = async {
        let options = ClientOptions {
            url,
            client_id: "late".into(),
            version: Some(version),
            ..ClientOptions::default()
        };
        let client = Client::connect(options).await.unwrap();
        up.send(()).unwrap();
        let stays = || served.load(Ordering::SeqCst) == script.len() && client.is_connected();
        while if ends { !client.is_closed() } else { !stays() } {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(client.is_closed(), ends, "{script:?}");
    };
    let limit = async { tokio::time::timeout(Duration::from_secs(60), followed).await };
    engine.handle().block_on(limit).unwrap_or_else(|_| panic!("{script:?}: it did not come to that"));
    begun.elapsed()
}

#[test]
fn a_session_taken_over_by_an_own_late_connect_is_taken_up_again() {
    follow(Version::V5, &[Act::Cut, Act::Swallow, TAKE_OVER, Act::Accept], false);
}

#[test]
fn each_connect_that_may_come_late_excuses_one_take_over() {
    follow(Version::V5, &[Act::Cut, Act::Swallow, Act::Swallow, TAKE_OVER, TAKE_OVER, TAKE_OVER], true);
}

#[test]
fn a_session_taken_over_by_another_client_ends_the_client() {
    follow(Version::V5, &[TAKE_OVER], true);
    follow(Version::V5, &[Act::Cut, TAKE_OVER], true);
}

/// The broker may mend what it refuses now.
#[test]
fn a_refusal_of_a_later_connect_does_not_end_the_client() {
    // 3.2.2.2, 3.14.2.1
    for code in [0x81, 0x82, 0x83, 0x84, 0x85, 0x87, 0x8A, 0x90, 0x95, 0x99, 0x9A, 0x9B, 0x9F] {
        follow(Version::V5, &[Act::Cut, Act::Refuse(code), Act::Accept], false);
    }
    for code in [0x82, 0x83, 0x87, 0x8F, 0x90, 0x95, 0x98, 0x99, 0x9E, 0xA1, 0xA2] {
        follow(Version::V5, &[Act::Dismiss(code), Act::Accept], false);
    }
    for code in 1..=5 {
        follow(Version::V3_1_1, &[Act::Cut, Act::Refuse(code), Act::Accept], false);
    }
}

#[test]
fn the_pauses_grow_while_the_broker_ends_what_it_accepts() {
    let script = [Act::Cut, Act::Cut, Act::Cut, Act::Cut, Act::Cut, Act::Accept];
    let pauses = [50, 100, 200, 400, 800].map(Duration::from_millis);
    assert!(follow(Version::V5, &script, false) >= pauses.iter().sum());
}
