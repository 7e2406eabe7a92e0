//! Connections: the handshake, tokens, and bytes that are no commands.

use super::*;

#[test]
fn anything_before_connect_ends_the_connection() {
    let mut bench = Bench::new();
    let peer = bench.broker.connect(bench.now, "x");
    assert!(bench.tell(peer, Command::Ping).is_err());
    let peer = bench.connect();
    assert!(bench.tell(peer, Command::Connect(connect())).is_err(), "a second CONNECT");
    let peer = bench.connect();
    assert!(bench.tell(peer, Command::Unknown(99)).is_err());
    let peer = bench.connect();
    assert!(bench.tell(peer, Command::Flow(hot::Flow { consumer_id: 1, permits: 0 })).is_err());
    let peer = bench.broker.connect(bench.now, "x");
    let mut huge = BytesMut::from(&(100_u32 << 10).to_be_bytes()[..]);
    assert!(bench.broker.handle_input(bench.now, peer, &mut huge).is_err(), "strangers get 64 KiB");
}

#[test]
fn a_silent_peer_is_asked_once_and_then_left() {
    let mut bench = Bench::new();
    let peer = bench.connect();
    assert_eq!(bench.ask(peer, Command::Ping), Command::Pong);
    let mut pings = 0;
    let ended = (0..5).any(|_| {
        bench.now = bench.broker.session_timeout(peer).unwrap();
        let ended = bench.broker.handle_session_timeout(bench.now, peer).is_err();
        pings += bench.commands(peer).iter().filter(|c| **c == Command::Ping).count();
        ended
    });
    assert!(ended && pings == 1, "{pings}");
    let stranger = bench.broker.connect(bench.now, "x");
    bench.now += Duration::from_secs(10);
    assert!(bench.broker.handle_session_timeout(bench.now, stranger).is_err(), "no CONNECT within 10 s");
}

#[test]
fn a_token_is_asked_for_checked_and_renewed_before_its_session_ends() {
    let key = Arc::new(TokenKeys::new(KEY).unwrap());
    let mut bench = Bench::with(|settings| settings.session.tokens = Some(key.clone()));
    let enter = |bench: &mut Bench, token: &str| {
        let peer = bench.broker.connect(bench.now, "x");
        let connect = pb::CommandConnect {
            auth_method_name: Some("token".into()),
            auth_data: Some(Bytes::copy_from_slice(token.as_bytes())),
            feature_flags: Some(pb::FeatureFlags { supports_auth_refresh: Some(true), ..Default::default() }),
            ..connect()
        };
        let result = bench.tell(peer, Command::Connect(connect));
        (peer, result, bench.one(peer))
    };
    let (_, result, answer) = enter(&mut bench, "not.a.token");
    assert!(result.is_err() && error_of(&answer) == pb::ServerError::AuthenticationError);
    let stranger = bench.broker.connect(bench.now, "x");
    assert!(bench.tell(stranger, Command::Connect(connect())).is_err());

    let (peer, result, _) = enter(&mut bench, &key.sign("till", Some(WALL_MS + 20_000)));
    result.unwrap();
    let renew = |token: String| {
        let data = pb::AuthData { auth_method_name: Some("token".into()), auth_data: Some(token.into()) };
        Command::AuthResponse(pb::CommandAuthResponse { response: Some(data), ..Default::default() })
    };
    bench.now = bench.start + Duration::from_secs(20);
    bench.broker.handle_session_timeout(bench.now, peer).unwrap();
    let Command::AuthChallenge(challenge) = bench.one(peer) else { panic!() };
    assert_eq!(challenge.challenge.unwrap().auth_data.unwrap(), "PulsarAuthRefresh");
    bench.tell(peer, renew(key.sign("till", Some(WALL_MS + 60_000)))).unwrap();
    bench.now = bench.start + Duration::from_secs(60);
    bench.broker.handle_session_timeout(bench.now, peer).unwrap();
    assert!(bench.commands(peer).iter().any(|c| matches!(c, Command::AuthChallenge(_))));
    assert!(bench.tell(peer, renew(key.sign("another", None))).is_err(), "the principal must not change");
    bench.now += Duration::from_secs(10);
    assert!(bench.broker.handle_session_timeout(bench.now, peer).is_err(), "the challenge was not answered");
}

#[test]
fn random_bytes_and_random_commands_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bench = Bench::new();
    for _ in 0..300 {
        let peer = bench.connect();
        for _ in 0..20 {
            let mut bytes = BytesMut::new();
            // A frame with a plausible head: [total][size][08 type][field, length, random bytes].
            let number = 2 + random() % 40;
            let body: Vec<u8> = (0..random() % 40).map(|_| (random() % 24) as u8).collect();
            forebay_base::wire::put_varint_field(&mut bytes, 1, number);
            forebay_base::wire::put_bytes_field(&mut bytes, number as u32, &body);
            let mut frame = BytesMut::new();
            frame.extend_from_slice(&(bytes.len() as u32 + 4).to_be_bytes());
            frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            frame.extend_from_slice(&bytes);
            let ended = bench.broker.handle_input(bench.now, peer, &mut frame).is_err();
            bench.settle();
            if ended {
                break;
            }
        }
        bench.broker.disconnect(bench.now, peer);
    }
    assert_eq!(bench.broker.stats().connections, 0);
}
