//! Users and their passwords. Clients prove that they know the password by a signature made with
//! it, so the broker needs the password itself, not a hash of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::lines;
use forebay_base::error::Result;
use forebay_base::random::HashMap;
use forebay_tubemq::pb;

/// Permitted difference of a client's clock in milliseconds, as in the real master.
const CLOCK_SLACK_MS: i64 = 20_000;

/// Users by name.
#[derive(Clone, Default)]
pub struct Users(HashMap<String, hmac::Key>);

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users").field("users", &self.0.len()).finish()
    }
}

impl Users {
    /// Parses a user file with one `name:password` line for each user. Empty lines and lines that
    /// start with `#` are ignored. An error names the line.
    pub fn parse(text: &str) -> Result<Self> {
        let form = "name:password";
        let key = |password: &str| match password {
            "" => Err(format!("expected {form}")),
            hash if is_hash(hash) => {
                Err("the password is a hash, as mosquitto_passwd writes it: TubeMQ needs the password itself"
                    .into())
            }
            _ => Ok(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes())),
        };
        let users = lines::users("tubemq_user_file", text, form, |line| line.split_once(':'), key)?;
        Ok(Self(users))
    }

    /// Whether there is a user of this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether the user has the same password there.
    pub(super) fn agree(&self, other: &Self, name: &str) -> bool {
        let trace = |users: &Self| users.0.get(name).map(|key| hmac::sign(key, b"password"));
        trace(self).zip(trace(other)).is_some_and(|(one, other)| one.as_ref() == other.as_ref())
    }

    /// Number of users.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Verifies the signature of a user and its age.
    pub fn verify(&self, info: &pb::AuthenticateInfo, wall_ms: u64) -> std::result::Result<(), &'static str> {
        if (wall_ms as i64).abs_diff(info.timestamp) > CLOCK_SLACK_MS as u64 {
            return Err(
                "the time of the signature differs by more than 20 s from the broker's: check the clocks",
            );
        }
        let wrong = "unknown user or wrong signature";
        let key = self.0.get(&info.user_name).ok_or(wrong)?;
        let tag = unquoted(&info.signature).and_then(|text| STANDARD.decode(text).ok()).ok_or(wrong)?;
        let text = format!("{}{}{}", info.user_name, info.timestamp, info.nonce);
        hmac::verify(key, text.as_bytes(), &tag).map_err(|_| wrong)
    }
}

/// Whether a password is `$kind$...$...`, as files of hashes have it.
fn is_hash(password: &str) -> bool {
    let mut parts = password.split('$');
    let kind = parts.nth(1).unwrap_or_default();
    let is_kind = !kind.is_empty() && kind.len() < 10 && kind.bytes().all(|c| c.is_ascii_alphanumeric());
    password.starts_with('$') && is_kind && parts.count() >= 2 && password.len() >= 20
}

/// Decodes percent-encoded Base64 text.
fn unquoted(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let code = u8::from_str_radix(rest.get(at + 1..at + 3)?, 16).ok()?;
        out.push(code as char);
        rest = &rest[at + 3..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(user: &str, timestamp: i64, signature: &str) -> pb::AuthenticateInfo {
        pb::AuthenticateInfo {
            user_name: user.into(),
            timestamp,
            nonce: 12_345,
            oth_params: String::new(),
            signature: signature.into(),
        }
    }

    #[test]
    fn a_signature_of_the_official_client_lets_in_for_20_s() {
        let users = Users::parse("# who may\nuser:pass\nother:word:with:colons\n").unwrap();
        let good = signed("user", 1_700_000_000_000, "RLhXalsHekYJuwfCUQXEBOxNoUc%3D");
        assert_eq!(users.verify(&good, 1_700_000_019_000), Ok(()));
        assert!(users.verify(&good, 1_700_000_021_000).is_err());
        for bad in [
            signed("other", good.timestamp, &good.signature),
            signed("stranger", good.timestamp, &good.signature),
            signed("user", good.timestamp + 1, &good.signature),
            signed("user", good.timestamp, ""),
            signed("user", good.timestamp, "%"),
            signed("user", good.timestamp, "RLhXalsHekYJuwfCUQXEBOxNoUc%"),
            signed("user", i64::MIN, "x"),
        ] {
            assert!(users.verify(&bad, 1_700_000_000_000).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for (line, why) in [
            ("c", "expected name:password"),
            ("c:", "expected name:password"),
            ("c:$7$101$dkowch7IvcMGC9ZP$LWnT8hQq9KQjwhFy+BJZzeRv+47iAysVi4D7fS6Au6Q==", "is a hash"),
            ("c:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC", "is a hash"),
            ("c:$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "is a hash"),
        ] {
            let error = Users::parse(&format!("a:b\n{line}")).unwrap_err();
            assert!(error.message().contains("tubemq_user_file, line 2: "), "{error}");
            assert!(error.message().contains(why), "{error}");
        }
        let dollars =
            Users::parse("a:$7$101\nb:$\nc:x$7$101$dkowch7IvcMGC9ZP$LWnT8hQq9KQjwhFy\n  # d:x\n").unwrap();
        assert_eq!(dollars.len(), 3);
    }
}
