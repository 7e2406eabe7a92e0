//! JSON Web Tokens (RFC 7519), signed with HMAC-SHA-256 (HS256), RSA (RS256) or ECDSA on P-256
//! (ES256).
//!
//! The option `token_key` is one of
//! * a secret, for HS256;
//! * public keys in PEM, or one in DER, each for the algorithm of its kind;
//! * a JSON Web Key, a list or a set of them (RFC 7517), by which keys are changed: tokens of the
//!   old and of the new one are good as long as both are in the set, and a token with a `kid` is
//!   verified with the key of that name only.
//!
//! Public keys are published. If one of them were read as a secret, everybody could sign tokens
//! with it. A text with any sign of a public key is therefore never a secret: either its keys are
//! read or it is rejected. The log names the kinds of the keys when the broker starts. Other text
//! that is hardly a secret is rejected as well: markup, several lines, and what names a file.
//! Random bytes in base64 may have several lines, as `openssl rand -base64 64` writes them.
//!
//! A key has one algorithm, whatever the header of a token says: a public key is no secret, and
//! `none` is no algorithm. The expiry time is returned with the claims, so that a session can end
//! with its token.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::{Mutex, Rank};
use forebay_net::der::{BITS, INTEGER, OID, SEQUENCE, element};

/// Least bytes of a secret: a short one can be guessed.
const LEAST_SECRET: usize = 16;
/// Least characters of a full line of base64: OpenSSL writes 64, others more.
const WRAPPED: usize = 64;
/// Bits of an RSA key: *ring* verifies no others.
const LEAST_RSA: usize = 2048;
const MOST_RSA: usize = 8192;
/// Bytes of a point on P-256, as ES256 has it: `04`, x and y.
const POINT: usize = 65;

/// Object identifiers of RSA, of keys on elliptic curves, and of P-256, in DER (RFC 3279, RFC
/// 5480).
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

#[derive(Clone)]
enum Verifier {
    Secret(hmac::Key),
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
}

impl Verifier {
    fn secret(secret: &[u8]) -> Result<Self> {
        if secret.len() < LEAST_SECRET {
            return Err(wrong(format!("is too short: use at least {LEAST_SECRET} bytes, better 32")));
        }
        if secret.iter().all(|byte| *byte == 0) {
            return Err(wrong("is nothing but NUL bytes: its file may be damaged"));
        }
        Ok(Self::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    fn rsa(n: &[u8], e: &[u8]) -> Result<Self> {
        // Numbers in DER begin with a zero if their first bit is set.
        let without_zeros = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect();
        let (n, e): (Vec<u8>, Vec<u8>) = (without_zeros(n), without_zeros(e));
        if n.len() < LEAST_RSA / 8 || n.len() > MOST_RSA / 8 || e.is_empty() {
            return Err(wrong(format!("has an RSA key that has not {LEAST_RSA} to {MOST_RSA} bits")));
        }
        Ok(Self::Rsa { n, e })
    }

    fn p256(point: Vec<u8>) -> Result<Self> {
        match point.len() == POINT && point[0] == 4 {
            true => Ok(Self::P256(point)),
            false => Err(wrong("has a key on P-256 that is no uncompressed point")),
        }
    }

    /// The algorithm that the header of its tokens names.
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Secret(_) => "HS256",
            Self::Rsa { .. } => "RS256",
            Self::P256(_) => "ES256",
        }
    }

    /// Whether the signature is one of this key. That of a secret is compared in constant time.
    fn accepts(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Secret(key) => hmac::verify(key, signed, signature).is_ok(),
            Self::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }
        }
    }
}

#[derive(Clone)]
struct Key {
    /// Its name in the headers of tokens (`kid`).
    id: Option<String>,
    verifier: Verifier,
}

/// The keys that verify tokens, as the [module](self) describes. All parts of a broker share them,
/// so that they can be replaced.
pub struct TokenKeys {
    keys: Mutex<Arc<[Key]>>,
    /// The name of this broker in tokens (`aud`).
    audience: Option<String>,
}

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKeys(***)")
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

fn wrong(what: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("token_key {}", what.as_ref()))
}

impl TokenKeys {
    /// Reads a secret, public keys in PEM or DER, or JSON Web Keys.
    pub fn new(text: &[u8]) -> Result<Self> {
        let keys = match stated(text)? {
            Some(keys) => keys,
            None => vec![Key { id: None, verifier: Verifier::secret(text)? }],
        };
        if keys.is_empty() {
            return Err(wrong("has no key that tokens can be verified with"));
        }
        Ok(Self { keys: Mutex::new(Rank::Leaf, keys.into()), audience: None })
    }

    /// Whether a text is read as a secret, which can sign.
    pub fn is_secret(text: &[u8]) -> Result<bool> {
        Ok(stated(text)?.is_none())
    }

    /// With the name of this broker, which tokens must have as their audience (`aud`). Without one,
    /// a token that is for an audience is refused: it is meant for somewhere else (RFC 7519,
    /// 4.1.3).
    #[must_use]
    pub fn with_audience(self, audience: Option<String>) -> Self {
        Self { audience, ..self }
    }

    /// Replaces the keys by others.
    pub fn replace(&self, with: &Self) {
        let keys = with.keys();
        *self.keys.lock() = keys;
    }

    /// Number of keys.
    pub fn count(&self) -> usize {
        self.keys().len()
    }

    /// The algorithm of each key, for the log: `RS256, ES256`.
    pub fn algorithms(&self) -> String {
        self.keys().iter().map(|key| key.verifier.algorithm()).collect::<Vec<_>>().join(", ")
    }

    fn keys(&self) -> Arc<[Key]> {
        self.keys.lock().clone()
    }

    /// Verifies a token at the time `wall_ms`.
    pub fn verify(&self, token: &[u8], wall_ms: u64) -> Result<Claims> {
        self.check(token, wall_ms).map_err(|why| Error::new(ErrorKind::Authentication, why))
    }

    /// Whether the token has the signature of a key, whatever its claims say.
    pub fn is_signed(&self, token: &[u8]) -> bool {
        self.signed(token).is_ok()
    }

    /// The encoded claims of a token, if its signature is right.
    fn signed<'t>(&self, token: &'t [u8]) -> std::result::Result<&'t str, &'static str> {
        let text = std::str::from_utf8(token).map_err(|_| "the token is not text")?;
        let (signed, signature) = text.rsplit_once('.').ok_or("the token has no signature")?;
        let (header, claims) = signed.split_once('.').ok_or("the token has no claims")?;
        let header = json(header).ok_or("the token's header is not JSON")?;
        // A token with extensions that the verifier does not know is refused (RFC 7515, 4.1.11).
        if header.get("crit").is_some() {
            return Err("the token's header demands extensions (crit), and none is supported");
        }
        let named = match header.get("kid") {
            None => None,
            Some(id) => Some(id.as_str().ok_or("the name of the token's key (kid) is not text")?),
        };
        let algorithm = header.get("alg").and_then(Value::as_str);
        let signature =
            URL_SAFE_NO_PAD.decode(signature).map_err(|_| "the token's signature is not base64")?;
        // A key without a name may be any.
        let of_name = |key: &&Key| named.is_none() || key.id.is_none() || key.id.as_deref() == named;
        let all = self.keys();
        let mut keys = all.iter().filter(of_name).peekable();
        keys.peek().ok_or("the token's key (kid) is not one of token_key")?;
        let mut keys = keys.filter(|key| Some(key.verifier.algorithm()) == algorithm).peekable();
        keys.peek().ok_or("the token's algorithm is not that of the key")?;
        if !keys.any(|key| key.verifier.accepts(signed.as_bytes(), &signature)) {
            return Err("the token's signature does not match");
        }
        Ok(claims)
    }

    fn check(&self, token: &[u8], wall_ms: u64) -> std::result::Result<Claims, &'static str> {
        let claims = json(self.signed(token)?).ok_or("the token's claims are not JSON")?;
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
        let audiences = match claims.get("aud") {
            None => Vec::new(),
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            Some(one) => one.as_str().into_iter().collect(),
        };
        match &self.audience {
            Some(own) if !audiences.contains(&own.as_str()) => {
                return Err("the token is not for this broker (aud is not token_audience)");
            }
            None if claims.get("aud").is_some() => {
                return Err("the token is for an audience (aud), and the broker has no token_audience");
            }
            _ => {}
        }
        let subject = claims
            .get("sub")
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
            .ok_or("the token has no subject (sub)")?;
        Ok(Claims { subject: subject.to_owned(), expires_ms })
    }

    /// Signs claims with the secret, for tests.
    ///
    /// # Panics
    /// If the first key is a public one, with which nothing can be signed.
    pub fn sign(&self, subject: &str, expires_ms: Option<u64>) -> String {
        let mut claims = serde_json::json!({ "sub": subject });
        if let Some(at) = expires_ms {
            claims["exp"] = (at / 1000).into();
        }
        self.sign_parts(r#"{"alg":"HS256","typ":"JWT"}"#, &claims.to_string())
    }

    fn sign_parts(&self, header: &str, claims: &str) -> String {
        let Key { verifier: Verifier::Secret(key), .. } = &self.keys()[0] else {
            panic!("a public key signs nothing")
        };
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(key, signed.as_bytes())))
    }
}

/// A part of a token.
fn json(part: &str) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Signs of a public key: PEM with a damaged first line, OpenSSH, RFC 4716, JSON behind a comment,
/// and .NET.
const PUBLIC_KEY_SIGNS: [&[u8]; 6] =
    [b"PUBLIC KEY", b"---- BEGIN ", b"ssh-rsa ", b"ecdsa-sha2-", b"\"kty\"", b"<RSAKeyValue"];

/// The keys that a text states as the [module](self) describes; `None` if the text is itself a
/// secret.
fn stated(text: &[u8]) -> Result<Option<Vec<Key>>> {
    let has = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|found| found == part);
    // Editors on Windows write a byte order mark.
    let start = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text).trim_ascii();
    if start.starts_with(b"{") || start.starts_with(b"[") {
        if std::str::from_utf8(start).is_ok() {
            return of_json(start).map(Some);
        }
    } else if has(start, b"-----BEGIN ") {
        return of_pem(start).map(Some);
    }
    if let Some(der) = whole_der(start) {
        let verifier = of_der(&der).ok_or_else(|| {
            wrong("is DER, but not a public key (SubjectPublicKeyInfo) that is RSA or on the curve P-256")
        })??;
        return Ok(Some(vec![Key { id: None, verifier }]));
    }
    // Without the zeros of UTF-16.
    let letters: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
    if PUBLIC_KEY_SIGNS.iter().any(|sign| has(&letters, sign)) {
        return Err(wrong(
            "contains a public key in a form that cannot be read: pass PEM (-----BEGIN PUBLIC KEY-----) or JSON Web Keys, \
             in UTF-8 and without other text",
        ));
    }
    check_secret(text)?;
    Ok(None)
}

/// Refuses text that was hardly meant to be a secret: a page that a failed download left, or the
/// name of a file. Others can guess it.
fn check_secret(secret: &[u8]) -> Result<()> {
    let nuls = secret.iter().filter(|byte| **byte == 0).count();
    if nuls >= secret.len() / 3 && (secret.starts_with(&[0xff, 0xfe]) || secret.starts_with(&[0xfe, 0xff])) {
        return Err(wrong("is text in UTF-16: save it as UTF-8"));
    }
    let Ok(text) = std::str::from_utf8(secret) else { return Ok(()) };
    if text.starts_with('\u{feff}') {
        return Err(wrong("begins with a byte order mark, which would be part of the secret: remove it"));
    }
    let text = text.trim();
    if text.starts_with('<') && text.ends_with('>') {
        return Err(wrong("is HTML or XML, not a secret"));
    }
    if text.starts_with("file:") || text.starts_with("env:") {
        return Err(wrong("names a file or a variable (file:, env:): pass the contents of the file"));
    }
    if text.chars().any(char::is_control) && !is_wrapped_base64(text) {
        return Err(wrong(
            "is text with line ends or other control characters in it: use one line of text, or random bytes",
        ));
    }
    Ok(())
}

/// Whether a text is base64 in full lines and a last one, as OpenSSL and `base64` write it. Lines
/// of a public key are not, even if some of them are missing.
fn is_wrapped_base64(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let [full @ .., last] = &lines[..] else { return false };
    let width = full.first().map_or(0, |line| line.len());
    let is_even = full.iter().all(|line| line.len() == width) && last.len() <= width;
    // Shorter ones may be words.
    if width < WRAPPED || !is_even {
        return false;
    }
    STANDARD.decode(lines.concat()).is_ok_and(|bytes| {
        // The beginnings of DER and of OpenSSH, and the usual end of an RSA key (65537).
        !matches!(
            bytes[..],
            [SEQUENCE, 0x82, _, _, SEQUENCE | INTEGER, ..]
                | [SEQUENCE, 0x81, _, SEQUENCE | INTEGER, ..]
                | [SEQUENCE, ..=0x7f, SEQUENCE | INTEGER, ..]
                | [0, 0, 0, ..]
                | [.., INTEGER, 3, 1, 0, 1]
        )
    })
}

/// The bytes of a text that is one element of DER, or the base64 of one.
fn whole_der(text: &[u8]) -> Option<Vec<u8>> {
    let is_der = |mut rest: &[u8]| {
        element(&mut rest, |tag| tag == SEQUENCE).is_some_and(|contents| {
            rest.is_empty() && matches!(contents.first(), Some(&(SEQUENCE | INTEGER)))
        })
    };
    if is_der(text) {
        return Some(text.to_vec());
    }
    let letters: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(letters).ok().filter(|der| is_der(der))
}

/// Public keys in PEM.
fn of_pem(text: &[u8]) -> Result<Vec<Key>> {
    if text.windows(12).any(|part| part == b"PRIVATE KEY-") {
        return Err(wrong("has a private key: the broker needs the public one (openssl pkey -pubout)"));
    }
    SubjectPublicKeyInfoDer::pem_slice_iter(text)
        .map(|found| {
            let der = found.map_err(|error| wrong(format!("is malformed PEM: {error}")))?;
            let verifier = of_der(&der)
                .ok_or_else(|| wrong("has a public key that is neither RSA nor on the curve P-256"))??;
            Ok(Key { id: None, verifier })
        })
        .collect()
}

/// A SubjectPublicKeyInfo (RFC 5280, 4.1); `None` if its kind is not known.
fn of_der(mut der: &[u8]) -> Option<Result<Verifier>> {
    let mut info = element(&mut der, |tag| tag == SEQUENCE)?;
    let mut algorithm = element(&mut info, |tag| tag == SEQUENCE)?;
    // No bit of the last byte is unused.
    let mut key = element(&mut info, |tag| tag == BITS)?.strip_prefix(&[0])?;
    let kind = element(&mut algorithm, |tag| tag == OID)?;
    if kind == RSA {
        let mut numbers = element(&mut key, |tag| tag == SEQUENCE)?;
        let n = element(&mut numbers, |tag| tag == INTEGER)?;
        let e = element(&mut numbers, |tag| tag == INTEGER)?;
        return Some(Verifier::rsa(n, e));
    }
    let curve = element(&mut algorithm, |tag| tag == OID)?;
    (kind == EC && curve == P256).then(|| Verifier::p256(key.to_vec()))
}

/// A JSON Web Key, a list or a set of them. Keys for other purposes are left out (RFC 7517, 5).
fn of_json(text: &[u8]) -> Result<Vec<Key>> {
    let json: Value =
        serde_json::from_slice(text).map_err(|error| wrong(format!("is not a JSON Web Key: {error}")))?;
    // The first of them would be ignored.
    if members(&json) != colons(text) {
        return Err(wrong("has a JSON object with the same member twice: keep one of them"));
    }
    let all = match (&json, &json["keys"]) {
        (Value::Array(keys), _) | (_, Value::Array(keys)) => &keys[..],
        (one, Value::Null) => std::slice::from_ref(one),
        _ => return Err(wrong("is no set of JSON Web Keys: \"keys\" is not a list")),
    };
    let mut keys = Vec::new();
    for key in all {
        if key["use"].as_str().is_some_and(|purpose| purpose != "sig") {
            continue;
        }
        if key.get("d").is_some() {
            return Err(wrong("has a private key: the broker needs the public one, without \"d\""));
        }
        let part = |name: &str| {
            let text =
                key[name].as_str().ok_or_else(|| wrong(format!("has a JSON Web Key without {name:?}")))?;
            let bytes = URL_SAFE_NO_PAD.decode(text);
            bytes.map_err(|_| wrong(format!("has a JSON Web Key whose {name:?} is not base64url")))
        };
        let verifier = match (key["kty"].as_str(), key["crv"].as_str()) {
            (Some("oct"), _) => Verifier::secret(&part("k")?)?,
            (Some("RSA"), _) => Verifier::rsa(&part("n")?, &part("e")?)?,
            (Some("EC"), Some("P-256")) => Verifier::p256([vec![4], part("x")?, part("y")?].concat())?,
            (Some(_), _) => continue,
            (None, _) => return Err(wrong("is no JSON Web Key: \"kty\" is missing")),
        };
        if key["alg"].as_str().is_some_and(|algorithm| algorithm != verifier.algorithm()) {
            continue;
        }
        keys.push(Key { id: key["kid"].as_str().map(str::to_owned), verifier });
    }
    Ok(keys)
}

/// Number of members of all objects.
fn members(json: &Value) -> usize {
    match json {
        Value::Object(object) => object.len() + object.values().map(members).sum::<usize>(),
        Value::Array(all) => all.iter().map(members).sum(),
        _ => 0,
    }
}

/// Number of colons outside the strings of JSON: one for each member that is written.
fn colons(json: &[u8]) -> usize {
    let (mut count, mut in_string) = (0, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' => drop(bytes.next()),
            b':' => count += usize::from(!in_string),
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TokenKeys {
        TokenKeys::new(b"0123456789abcdef0123456789abcdef").unwrap()
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
        key().sign_parts(r#"{"alg":"HS256"}"#, claims)
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
        assert!(TokenKeys::new(&[b'7'; 15]).is_err());
        assert!(TokenKeys::new(&[b'7'; 16]).is_ok());
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
        let other = TokenKeys::new(&[b'7'; 32]).unwrap().sign("x", None);
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
        assert!(TokenKeys::new(b"short").is_err());
    }

    #[test]
    fn a_token_that_demands_an_extension_is_refused() {
        for crit in [r#"["b64"]"#, r#"["exp"]"#, "[]", "null"] {
            let header = format!(r#"{{"alg":"HS256","crit":{crit},"b64":true}}"#);
            let token = key().sign_parts(&header, r#"{"sub":"till"}"#);
            let error = key().verify(token.as_bytes(), 0).unwrap_err();
            assert!(error.message().contains("(crit)"), "{crit}: {error}");
        }
    }

    #[test]
    fn the_secret_is_not_printed() {
        assert!(!format!("{:?}", key()).contains("0123"));
    }

    /// The keys and tokens of RFC 7515, A.2 and A.3, and the keys in PEM.
    const RS256: [&str; 3] = [
        r#"{"kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}"#,
        "-----BEGIN PUBLIC KEY-----\n\
         MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJj\n\
         NiuSfb4p4fAkd/wWJcyQoTbji9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEz\n\
         P1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b32690r2jZ47soMZo\n\
         9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTB\n\
         EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxX\n\
         FvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp\n\
         oQIDAQAB\n\
         -----END PUBLIC KEY-----\n",
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9\
         pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Q\
         c_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARN\
         PvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6I\
         eYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
    ];
    const ES256: [&str; 3] = [
        r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#,
        "-----BEGIN PUBLIC KEY-----\n\
         MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV7\n\
         6e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==\n\
         -----END PUBLIC KEY-----\n",
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9\
         pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqP\
         P3-Kg6NU1Q",
    ];

    /// The refusal of a token without a subject, which comes only if its signature is right.
    const SIGNED: &str = "the token has no subject (sub)";

    fn said(keys: &str, token: &str) -> String {
        TokenKeys::new(keys.as_bytes()).unwrap().verify(token.as_bytes(), 0).unwrap_err().message().to_owned()
    }

    #[test]
    fn the_signatures_of_the_standard_are_verified() {
        for [jwk, pem, token] in [RS256, ES256] {
            for keys in [jwk.to_owned(), pem.to_owned(), format!(r#"{{"keys":[{jwk}]}}"#), format!("\n{pem}")]
            {
                assert_eq!(said(&keys, token), SIGNED, "{keys}");
                let (signed, signature) = token.rsplit_once('.').unwrap();
                let mut other = URL_SAFE_NO_PAD.decode(signature).unwrap();
                other[40] ^= 1;
                let other = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(other));
                assert_eq!(said(&keys, &other), "the token's signature does not match");
            }
        }
        let both = format!("{}{}", RS256[1], ES256[1]);
        assert_eq!((said(&both, RS256[2]), said(&both, ES256[2])), (SIGNED.to_owned(), SIGNED.to_owned()));
    }

    #[test]
    fn a_public_key_is_no_secret() {
        for [jwk, pem, _] in [RS256, ES256] {
            for public in [jwk, pem] {
                let secret = Key { id: None, verifier: Verifier::secret(public.as_bytes()).unwrap() };
                let forged = TokenKeys { keys: Mutex::new(Rank::Leaf, [secret].into()), audience: None };
                let forged = forged.sign("root", None);
                assert_eq!(said(public, &forged), "the token's algorithm is not that of the key");
            }
        }
    }

    /// The forms in which the public key of RS256 is found, and whether its keys are read.
    fn public_texts() -> Vec<(Vec<u8>, bool)> {
        let [jwk, pem, _] = RS256;
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = STANDARD.decode(&body).unwrap();
        let wrapped = |text: &str| {
            text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n")
        };
        let utf16 = |text: &str| {
            [&[0xff, 0xfe], &*text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()].concat()
        };
        let texts = |read: bool, texts: &[String]| -> Vec<(Vec<u8>, bool)> {
            texts.iter().map(|text| (text.clone().into_bytes(), read)).collect()
        };
        let mut all = texts(
            true,
            &[
                pem.to_owned(),
                format!("# issuer.example, 2026\n{pem}"),
                format!("\u{feff}{pem}"),
                format!("Public-Key: (2048 bit)\nModulus:\n    00:a1\n{pem}"),
                format!("Bag Attributes\n    friendlyName: issuer\n{pem}"),
                pem.replace('\n', "\r\n"),
                format!("[{jwk}]"),
                format!("\u{feff}{jwk}"),
                format!(" {{\"keys\": [{jwk}]}}\n"),
                body.clone(),
                format!("{}\n{}\n", &body[..64], &body[64..]),
            ],
        );
        all.push((der.clone(), true));
        all.extend(texts(
            false,
            &[
                format!("# key of the issuer\n{jwk}"),
                format!("issuer = {jwk}"),
                pem.replace("-----BEGIN ", "----BEGIN "),
                pem.replace("-----BEGIN PUBLIC KEY-----\n", ""),
                format!("key: {pem}"),
                // Without its last line, and without its first.
                wrapped(&body[..320]),
                wrapped(&body[64..]),
                format!("{}\n{}\n", &"AAAAB3NzaC1yc2EAAAADAQABAAABAQDK".repeat(2), "pQpQ"),
                "[\"text, but no keys\"]".to_owned(),
                "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDKpQ issuer@example".to_owned(),
                "---- BEGIN SSH2 PUBLIC KEY ----\nAAAAB3NzaC1yc2EAAAADAQABAAABAQDKpQ\n".to_owned(),
                "<RSAKeyValue><Modulus>AQAB</Modulus></RSAKeyValue>".to_owned(),
            ],
        ));
        all.push((utf16(pem), false));
        all.push((utf16(jwk), false));
        // A certificate is a sequence, too, and so is the key in the form of PKCS #1.
        all.push((der[24..].to_vec(), false));
        all
    }

    #[test]
    fn a_text_with_a_public_key_is_never_a_secret() {
        for (text, read) in public_texts() {
            let shown = String::from_utf8_lossy(&text).into_owned();
            match TokenKeys::new(&text) {
                Ok(keys) => {
                    assert!(read, "{shown}");
                    assert_eq!(keys.algorithms(), "RS256", "{shown}");
                    let refusal = keys.verify(RS256[2].as_bytes(), 0).unwrap_err();
                    assert_eq!(refusal.message(), SIGNED, "{shown}");
                }
                Err(error) => assert!(!read, "{shown}: {error}"),
            }
        }
    }

    #[test]
    fn secrets_are_read_as_they_are() {
        for secret in [
            &b"0123456789abcdef0123456789abcdef"[..],
            b"  with spaces around it and at the end \n",
            b"12345678901234567890123456789012",
            b"{\xff\x00 random bytes that begin like JSON",
            b"[\xff\x00 random bytes that begin like JSON",
            &[0x30; 32],
            b"\x30\x1e\xff random bytes, a sequence of DER",
            b"MBYAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            // As `openssl rand -base64 64` and `head -c 64 /dev/urandom | base64` write it.
            b"q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8SNFZ4kKvN7xI0VniQ\nq83vEjRWeJCrze8SNFZ4kA==\n",
            b"q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCr\r\nze8SNFZ4kA==\r\n",
        ] {
            let keys = TokenKeys::new(secret).unwrap();
            assert_eq!(keys.algorithms(), "HS256");
            let token = format!(
                "{}.{}",
                URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#),
                URL_SAFE_NO_PAD.encode(r#"{"sub":"x"}"#)
            );
            let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), token.as_bytes());
            let token = format!("{token}.{}", URL_SAFE_NO_PAD.encode(signature));
            assert_eq!(keys.verify(token.as_bytes(), 0).unwrap().subject, "x");
        }
    }

    #[test]
    fn text_that_is_hardly_a_secret_is_none() {
        let utf16: Vec<u8> = "\u{feff}0123456789abcdef".encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (text, word) in [
            (&[0; 64][..], "control characters"),
            (b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n", "HTML"),
            (b"<Error><Code>AccessDenied</Code></Error>", "HTML or XML"),
            (b"file:/etc/forebay/token.key\n", "names a file"),
            (b"env:FOREBAY_TOKEN_KEY", "names a file or a variable"),
            (b"0123456789abcdef\n0123456789abcdef\n", "line ends"),
            (b"0123456789abcdef01234567-9abcdef0123456789abcdef0123456789abcdef\n0123", "line ends"),
            (b"0123456789abcdef\x000123456789abcdef", "control characters"),
            (b"0123456789abcdef\x1b[0m", "control characters"),
            (b"\xef\xbb\xbf0123456789abcdef", "byte order mark"),
            (&utf16, "UTF-16"),
        ] {
            let error = TokenKeys::new(text).unwrap_err();
            assert!(error.message().contains(word), "{text:?}: {error}");
            assert!(!error.message().contains("0123"), "{error}");
            assert!(TokenKeys::is_secret(text).is_err());
        }
        let members = r#"{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZg","x5c":[{"a\\\":":1},{"a":":"}]}"#;
        assert_eq!(TokenKeys::new(members.as_bytes()).unwrap().count(), 1);
    }

    #[test]
    fn a_token_for_an_audience_is_taken_only_there() {
        let (without, to) = (key(), |name: &str| key().with_audience(Some(name.to_owned())));
        let one = signed(r#"{"sub":"x","aud":"orders"}"#);
        let several = signed(r#"{"sub":"x","aud":["mail","orders"]}"#);
        let no_text = signed(r#"{"sub":"x","aud":7}"#);
        for token in [&one, &several] {
            assert!(to("orders").verify(token.as_bytes(), 0).is_ok());
            assert!(
                to("other").verify(token.as_bytes(), 0).unwrap_err().message().contains("token_audience")
            );
            assert!(without.verify(token.as_bytes(), 0).unwrap_err().message().contains("token_audience"));
        }
        for token in [&no_text, &signed(r#"{"sub":"x"}"#)] {
            assert!(to("orders").verify(token.as_bytes(), 0).is_err());
        }
        assert!(without.verify(no_text.as_bytes(), 0).is_err());
    }

    #[test]
    fn keys_are_replaced_for_all_who_have_them() {
        let keys = key();
        let (old, new) = (keys.sign("x", None), TokenKeys::new(&[b'7'; 32]).unwrap());
        keys.replace(&new);
        assert!(keys.verify(old.as_bytes(), 0).is_err());
        assert!(keys.verify(new.sign("x", None).as_bytes(), 0).is_ok());
        assert_eq!(keys.count(), 1);
    }

    #[test]
    fn the_keys_of_a_set_are_told_apart_by_their_names() {
        let secret = |byte: u8| URL_SAFE_NO_PAD.encode([byte; 32]);
        let jwk = |id: &str, byte| format!(r#"{{"kty":"oct","kid":"{id}","k":"{}"}}"#, secret(byte));
        let keys = format!(r#"{{"keys":[{},{}]}}"#, jwk("old", b'1'), jwk("new", b'2'));
        let keys = TokenKeys::new(keys.as_bytes()).unwrap();
        let token =
            |header: &str, byte| TokenKeys::new(&[byte; 32]).unwrap().sign_parts(header, r#"{"sub":"till"}"#);
        let check = |header, byte| keys.check(token(header, byte).as_bytes(), 0).map(|claims| claims.subject);
        let till = || Ok("till".to_owned());
        assert_eq!(check(r#"{"alg":"HS256","kid":"old"}"#, b'1'), till());
        assert_eq!(check(r#"{"alg":"HS256","kid":"new"}"#, b'2'), till());
        assert_eq!(check(r#"{"alg":"HS256"}"#, b'2'), till());
        assert_eq!(
            check(r#"{"alg":"HS256","kid":"new"}"#, b'1'),
            Err("the token's signature does not match")
        );
        assert_eq!(
            check(r#"{"alg":"HS256","kid":"other"}"#, b'1'),
            Err("the token's key (kid) is not one of token_key")
        );
        assert_eq!(
            check(r#"{"alg":"none","kid":"old"}"#, b'1'),
            Err("the token's algorithm is not that of the key")
        );
        assert!(check(r#"{"alg":"HS256","kid":1}"#, b'1').is_err());
    }

    #[test]
    fn what_is_wrong_with_keys_is_named() {
        let of_size = |bytes: usize| {
            format!(r#"{{"kty":"RSA","e":"AQAB","n":"{}"}}"#, URL_SAFE_NO_PAD.encode(vec![0xff; bytes]))
        };
        let (short, long) = (of_size(255), of_size(1025));
        let private = RS256[0].replace("\"e\"", "\"d\":\"AQAB\",\"e\"");
        for (keys, word) in [
            ("short", "too short"),
            ("{\"kty\":", "not a JSON Web Key"),
            ("{}", "kty"),
            (r#"{"keys":1}"#, "not a list"),
            (r#"{"keys":[]}"#, "no key"),
            (r#"{"kty":"oct"}"#, "without \"k\""),
            (r#"{"kty":"oct","k":"?"}"#, "not base64url"),
            (r#"{"kty":"oct","k":"AAAA"}"#, "too short"),
            (r#"{"kty":"OKP","crv":"Ed25519","x":"AAAA"}"#, "no key"),
            (r#"{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}"#, "no uncompressed point"),
            (&short, "2048 to 8192 bits"),
            (&long, "2048 to 8192 bits"),
            (&private, "private key"),
            (r#"{"keys":[],"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZg"}]}"#, "same member twice"),
            (r#"[{"kty":"oct","k":":\":","k":"MDEyMzQ1Njc4OWFiY2RlZg"}]"#, "same member twice"),
            (&format!(r#"{{"kty":"oct","k":"{}"}}"#, "A".repeat(43)), "nothing but NUL"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "private key"),
            ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "neither RSA nor"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no key"),
        ] {
            let error = TokenKeys::new(keys.as_bytes()).unwrap_err();
            assert!(error.message().contains(word), "{keys}: {error}");
        }
    }
}
