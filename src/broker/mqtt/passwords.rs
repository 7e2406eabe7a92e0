//! User names and passwords, in the file format of `mosquitto_passwd`: one `name:$7$iterations$salt$hash` line
//! for each user, where the hash is PBKDF2 with HMAC-SHA-512. Other kinds of hash are refused: `$6$` is a
//! single round of SHA-512, which is too fast to resist guessing.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::pbkdf2;

use crate::error::{Error, ErrorKind, Result};
use crate::random::HashMap;

/// Limit on the iterations of a hash, because passwords are checked on the broker's thread. `mosquitto_passwd`
/// uses 1000.
const MAX_ITERATIONS: u32 = 20_000;

/// The users of a password file.
#[derive(Clone)]
pub struct Passwords {
    users: HashMap<String, Hash>,
    /// Checked for unknown names, so that the response time does not reveal which names exist.
    unknown: Hash,
}

#[derive(Clone)]
struct Hash {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    expected: Vec<u8>,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passwords").field("users", &self.users.len()).finish_non_exhaustive()
    }
}

impl Passwords {
    /// Parses a password file. Empty lines and lines that start with `#` are ignored.
    pub fn parse(text: &str) -> Result<Self> {
        let mut users = HashMap::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = Self::parse_line(line).map_err(|why| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("mqtt_password_file, line {}: {why}", number + 1),
                )
            })?;
            users.insert(name, hash);
        }
        let iterations = users.values().map(|hash| hash.iterations).max().unwrap_or(NonZeroU32::MIN);
        Ok(Self { users, unknown: Hash { iterations, salt: vec![0; 12], expected: vec![0; 64] } })
    }

    fn parse_line(line: &str) -> std::result::Result<(String, Hash), &'static str> {
        // A name may contain a colon, a hash does not.
        let (name, hash) = line.rsplit_once(':').ok_or("expected name:hash")?;
        if name.is_empty() {
            return Err("the user name is empty");
        }
        let mut parts = hash.split('$');
        match (parts.next(), parts.next()) {
            (Some(""), Some("7")) => {}
            (Some(""), Some(_)) => {
                return Err("only hashes that start with $7$ (PBKDF2 with SHA-512) are supported");
            }
            _ => return Err("the password is not hashed: use mosquitto_passwd or penstock passwd"),
        }
        let iterations = parts
            .next()
            .and_then(|text| text.parse().ok())
            .filter(|n: &NonZeroU32| n.get() <= MAX_ITERATIONS)
            .ok_or("the number of iterations must be 1 to 20000")?;
        let mut base64 = || parts.next().and_then(|text| STANDARD.decode(text).ok());
        let salt = base64().filter(|salt| !salt.is_empty()).ok_or("the salt is not base64")?;
        let expected =
            base64().filter(|hash| hash.len() == 64).ok_or("the hash is not 64 bytes of base64")?;
        if parts.next().is_some() {
            return Err("unexpected text after the hash");
        }
        Ok((name.to_owned(), Hash { iterations, salt, expected }))
    }

    /// Whether the user exists and has this password. Takes equally long for every answer.
    pub fn verify(&self, user: &str, password: &[u8]) -> bool {
        let hash = self.users.get(user);
        let Hash { iterations, salt, expected } = hash.unwrap_or(&self.unknown);
        let good = pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA512, *iterations, salt, password, expected).is_ok();
        good && hash.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(user: &str, password: &[u8]) -> String {
        let mut hash = [0; 64];
        let iterations = NonZeroU32::new(101).unwrap();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA512, iterations, b"salt of mine", password, &mut hash);
        format!("{user}:$7$101${}${}", STANDARD.encode("salt of mine"), STANDARD.encode(hash))
    }

    #[test]
    fn a_file_of_mosquitto_passwd_is_read() {
        // Written by mosquitto_passwd 2.0.11.
        let file = "# users\n\ntill:$7$101$dkowch7IvcMGC9ZP$LWnT8hQq9KQjwhFy+BJZzeRv+47iAysVi4D7fS6Au6TcZWCkQuZK4EC2\
                    qpt4vGwToQeYy/hIwX9gZ6JyPQf4pg==\n";
        let passwords = Passwords::parse(file).unwrap();
        assert!(passwords.verify("till", b"drop"));
        assert!(!passwords.verify("till", b"Drop"));
        assert!(!passwords.verify("till", b""));
        assert!(!passwords.verify("stranger", b"drop"));
        assert!(!passwords.verify("", b""));
    }

    #[test]
    fn a_name_may_have_a_colon() {
        assert!(Passwords::parse(&line("a:b", b"x")).unwrap().verify("a:b", b"x"));
    }

    #[test]
    fn a_line_that_is_no_user_is_named() {
        let good = line("u", b"x");
        for (text, why) in [
            ("u", "expected name:hash"),
            (":$7$1$c2FsdA==$AA==", "user name is empty"),
            ("u:plain", "not hashed"),
            ("u:$6$c2FsdA==$AA==", "$7$"),
            ("u:$7$0$c2FsdA==$AA==", "iterations"),
            ("u:$7$999999999$c2FsdA==$AA==", "iterations"),
            ("u:$7$1$!!$AA==", "salt"),
            ("u:$7$1$c2FsdA==$AA==", "64 bytes"),
            (&(good.clone() + "$x"), "after the hash"),
        ] {
            let error = Passwords::parse(&format!("{good}\n{text}\n")).unwrap_err();
            assert!(error.message().contains("line 2") && error.message().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn hashes_are_not_printed() {
        assert_eq!(
            format!("{:?}", Passwords::parse(&line("u", b"x")).unwrap()),
            "Passwords { users: 1, .. }"
        );
    }
}
