//! JSON Web Tokens signed with HMAC-SHA-256 (HS256). No other algorithm is accepted, so a token cannot choose a
//! weaker one such as `none`. Signatures are compared in constant time. The expiry time is returned with the
//! claims, so that a session can end with its token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;

use crate::error::{Error, ErrorKind, Result};

/// The secret that signs tokens.
#[derive(Clone)]
pub struct TokenKey(Hmac<Sha256>);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(***)")
    }
}

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Subject (`sub`).
    pub subject: String,
    /// Expiry (`exp`) in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

impl TokenKey {
    /// Creates a key from the secret. A short secret can be guessed, so it is refused.
    pub fn new(secret: &[u8]) -> Result<Self> {
        if secret.len() < 16 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "token_key is too short: use at least 16 bytes, better 32",
            ));
        }
        let mac = Hmac::new_from_slice(secret)
            .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("token_key: {error}")))?;
        Ok(Self(mac))
    }

    /// Verifies a token at the time `wall_ms`.
    pub fn verify(&self, token: &[u8], wall_ms: u64) -> Result<Claims> {
        self.check(token, wall_ms).map_err(|why| Error::new(ErrorKind::Authentication, why))
    }

    fn check(&self, token: &[u8], wall_ms: u64) -> std::result::Result<Claims, &'static str> {
        let text = std::str::from_utf8(token).map_err(|_| "the token is not text")?;
        let (signed, signature) = text.rsplit_once('.').ok_or("the token has no signature")?;
        let (header, claims) = signed.split_once('.').ok_or("the token has no claims")?;
        let json = |part: &str| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let header = json(header).ok_or("the token's header is not JSON")?;
        if header.get("alg").and_then(Value::as_str) != Some("HS256") {
            return Err("the token's algorithm is not HS256");
        }
        let signature =
            URL_SAFE_NO_PAD.decode(signature).map_err(|_| "the token's signature is not base64")?;
        let mut mac = self.0.clone();
        mac.update(signed.as_bytes());
        mac.verify_slice(&signature).map_err(|_| "the token's signature does not match")?;
        let claims = json(claims).ok_or("the token's claims are not JSON")?;
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(seconds) if seconds >= 0.0 => Ok(Some((seconds * 1000.0) as u64)),
                _ => Err("a time in the token is not a number"),
            },
        };
        let expires_ms = time("exp")?;
        if expires_ms.is_some_and(|at| at <= wall_ms) {
            return Err("the token has expired");
        }
        if time("nbf")?.is_some_and(|at| at > wall_ms) {
            return Err("the token is not valid yet");
        }
        let subject = claims
            .get("sub")
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
            .ok_or("the token has no subject (sub)")?;
        Ok(Claims { subject: subject.to_owned(), expires_ms })
    }

    /// Signs claims, for tests and for a command that creates tokens.
    pub fn sign(&self, subject: &str, expires_ms: Option<u64>) -> String {
        let mut claims = serde_json::json!({ "sub": subject });
        if let Some(at) = expires_ms {
            claims["exp"] = (at / 1000).into();
        }
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let mut mac = self.0.clone();
        mac.update(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TokenKey {
        TokenKey::new(b"0123456789abcdef0123456789abcdef").unwrap()
    }

    #[test]
    fn a_good_token_names_its_subject_until_it_expires() {
        let token = key().sign("till", Some(5_000));
        let claims = key().verify(token.as_bytes(), 4_999).unwrap();
        assert_eq!(claims, Claims { subject: "till".into(), expires_ms: Some(5_000) });
        assert!(key().verify(token.as_bytes(), 5_000).is_err());
        assert_eq!(key().verify(key().sign("x", None).as_bytes(), u64::MAX).unwrap().expires_ms, None);
    }

    /// A token that is signed as it should be, with any claims.
    fn signed(claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", part(r#"{"alg":"HS256"}"#), part(claims));
        let mut mac = key().0.clone();
        mac.update(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    #[test]
    fn a_time_in_a_token_is_a_number_of_seconds_since_1970() {
        assert!(key().verify(signed(r#"{"sub":"till","nbf":0}"#).as_bytes(), 0).is_ok());
        let half = key().verify(signed(r#"{"sub":"till","exp":1.5}"#).as_bytes(), 1_499).unwrap();
        assert_eq!(half.expires_ms, Some(1_500));
        for time in ["-1", "\"5\"", "null", "true"] {
            let token = signed(&format!(r#"{{"sub":"till","nbf":{time}}}"#));
            let error = key().verify(token.as_bytes(), 5_000).unwrap_err();
            assert!(error.message().contains("not a number"), "{time}: {}", error.message());
        }
    }

    #[test]
    fn a_secret_has_at_least_16_bytes() {
        assert!(TokenKey::new(&[7; 15]).is_err());
        assert!(TokenKey::new(&[7; 16]).is_ok());
    }

    #[test]
    fn a_token_is_refused_until_its_not_before_has_come() {
        let token = signed(r#"{"sub":"till","nbf":5}"#);
        assert!(key().verify(token.as_bytes(), 4_999).unwrap_err().message().contains("not valid yet"));
        assert_eq!(key().verify(token.as_bytes(), 5_000).unwrap().subject, "till");
    }

    #[test]
    fn unsigned_foreign_and_malformed_tokens_are_refused() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let none = format!("{}.{}.", part(r#"{"alg":"none"}"#), part(r#"{"sub":"x"}"#));
        let other = TokenKey::new(&[7; 32]).unwrap().sign("x", None);
        let mut cut = key().sign("x", None);
        cut.pop();
        let anonymous = key().sign("", None);
        for token in [none.as_str(), &other, &cut, &anonymous, "", ".", "..", "a.b.c"] {
            assert_eq!(
                key().verify(token.as_bytes(), 0).unwrap_err().kind(),
                ErrorKind::Authentication,
                "{token}"
            );
        }
        assert!(key().verify(&[0xff, 0xfe], 0).is_err());
        assert!(TokenKey::new(b"short").is_err());
    }

    #[test]
    fn the_secret_is_not_printed() {
        assert!(!format!("{:?}", key()).contains("0123"));
    }
}
