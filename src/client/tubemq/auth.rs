//! Credentials for masters and brokers.

use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::tubemq::options::ClientOptions;
use forebay_base::clock::wall_ms;
use forebay_base::error::Result;
use forebay_base::random;
use forebay_base::sync::Mutex;
use forebay_tubemq::{UNDEFINED, pb};

/// URL-encoded Base64 of the HMAC-SHA1, keyed with the password, of user name, milliseconds and
/// nonce.
pub fn signature(user: &str, password: &str, timestamp: i64, nonce: i32) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
    let tag = ring::hmac::sign(&key, format!("{user}{timestamp}{nonce}").as_bytes());
    let text = STANDARD.encode(tag);
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

/// Authorization sent to brokers with each registration, heartbeat and message.
#[derive(Debug)]
pub(super) struct Visit {
    /// The last visit token issued by a master.
    token: AtomicI64,
    /// User name, time, nonce and signature of the last call to a master.
    credentials: Mutex<Option<String>>,
}

impl Default for Visit {
    fn default() -> Self {
        Self { token: AtomicI64::new(UNDEFINED), credentials: Mutex::default() }
    }
}

impl Visit {
    pub(super) fn set_token(&self, token: i64) {
        self.token.store(token, Ordering::Relaxed);
    }

    pub(super) fn info(&self) -> pb::AuthorizedInfo {
        pb::AuthorizedInfo {
            visit_authorized_token: self.token.load(Ordering::Relaxed),
            auth_authorized_token: self.credentials.lock().clone(),
        }
    }
}

/// A certificate for the next call to a master, which `visit` shows to brokers from now on. Masters
/// require one with each call, and accept a time of at most 20 s ago.
pub(super) async fn certificate(
    options: &ClientOptions,
    visit: &Visit,
) -> Result<Option<pb::MasterCertificateInfo>> {
    let Some(user) = &options.username else { return Ok(None) };
    let password = match &options.password {
        None => String::new(),
        Some(password) => password.get("password", options.connect_timeout).await?,
    };
    let timestamp = wall_ms() as i64;
    let nonce = (random::bits() & 0x7fff_ffff) as i32;
    let signature = signature(user, &password, timestamp, nonce);
    *visit.credentials.lock() = Some(format!("{user} {timestamp} {nonce} {signature}"));
    Ok(Some(pb::MasterCertificateInfo {
        auth_info: Some(pb::AuthenticateInfo {
            user_name: user.clone(),
            timestamp,
            nonce,
            oth_params: String::new(),
            signature,
        }),
        authorized_token: None,
    }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_signature_is_that_of_the_official_client() {
        let signature = super::signature("user", "pass", 1_700_000_000_000, 12_345);
        assert_eq!(signature, "RLhXalsHekYJuwfCUQXEBOxNoUc%3D");
    }
}
