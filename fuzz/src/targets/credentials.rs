//! Tokens and user files: what is accepted was signed, and a file is read as a whole or refused
//! with its line.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_broker::auth::TokenKeys;
use forebay_broker::mqtt::Passwords;
use forebay_broker::tubemq::Users;
use forebay_tubemq::pb::AuthenticateInfo;
use crate::meter::Meter;
use crate::rule::BEFORE;
use crate::script::Script;
use ring::hmac;

const SECRET: &[u8] = b"a secret of more than sixteen bytes";
const NOW_MS: u64 = 1_700_000_000_000;

/// A token with this header and these claims.
fn signed(header: &[u8], claims: &[u8]) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn token(key: &TokenKeys, mut script: Script<'_>) {
    let kind = script.byte();
    if kind & 1 == 0 {
        key.verify(script.0, NOW_MS).expect_err("it was not signed");
        return;
    }
    let header: &[u8] = match kind >> 1 & 3 {
        0 => script.take(usize::from(kind >> 3)),
        1 => br#"{"alg":"none"}"#,
        _ => br#"{"alg":"HS256"}"#,
    };
    let claims = script.0;
    let token = signed(header, claims);
    if let Ok(found) = key.verify(token.as_bytes(), NOW_MS) {
        assert!(!found.subject.is_empty() && found.expires_ms.is_none_or(|at| at > NOW_MS));
        assert!(header.windows(5).any(|part| part == b"HS256"), "the algorithm is not the token's choice");
        let once_more = key.verify(token.as_bytes(), NOW_MS).expect("as before");
        assert_eq!(found, once_more);
        if let Some(at) = found.expires_ms {
            key.verify(token.as_bytes(), at).expect_err("it has expired");
        }
        let own = key.sign(&found.subject, found.expires_ms.map(|at| at.saturating_add(1000)));
        assert_eq!(key.verify(own.as_bytes(), NOW_MS).expect("its own").subject, found.subject);
        // One byte less, and it is another token.
        key.verify(&token.as_bytes()[..token.len() - 1], NOW_MS).expect_err("a byte is missing");
        TokenKeys::new(b"another secret of that length")
            .unwrap()
            .verify(token.as_bytes(), NOW_MS)
            .unwrap_err();
    }
}

fn users(mut script: Script<'_>) {
    let (user_name, signature, timestamp) = (script.text(), script.text(), script.number() as i64);
    let text = String::from_utf8_lossy(script.0);
    let lines = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    match Users::parse(&text) {
        Ok(users) => {
            assert!(text.trim_start_matches('\u{feff}').lines().filter(lines).all(|line| line.contains(':')));
            let oth_params = String::new();
            let info = AuthenticateInfo { user_name, timestamp, nonce: 1, oth_params, signature };
            users.verify(&info, NOW_MS).expect_err("it was not signed");
            let near = AuthenticateInfo { timestamp: NOW_MS as i64, ..info };
            users.verify(&near, NOW_MS).expect_err("it was not signed");
        }
        Err(error) => assert!(error.message().contains("line "), "{error}"),
    }
    if let Err(error) = Passwords::parse(&text) {
        assert!(error.message().contains("line "), "{error}");
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    let key = TokenKeys::new(SECRET).unwrap();
    let mut meter = Meter::default();
    meter.came(data.len());
    meter.run(|| if first & 1 == 0 { token(&key, script) } else { users(script) });
    meter.check(BEFORE, 2);
}
