//! User names and passwords, in the file format of `mosquitto_passwd`: one `name:$7$iterations$salt$hash` line
//! for each user, where the hash is PBKDF2 with HMAC-SHA-512. Other kinds of hash are refused: `$6$` is a
//! single round of SHA-512, which is too fast to resist guessing.
//!
//! A good hash takes a tenth of a second, so it is verified on another thread ([`Passwords::verification`]). A user that
//! was let in once is recognised by a keyed hash of its password, which is in memory only.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::{hmac, pbkdf2};

use crate::error::{Error, ErrorKind, Result};
use crate::random::HashMap;

/// Limit on the iterations of a hash, which take about a second. `mosquitto_passwd` uses 1000, `penstock passwd` 210,000.
const MAX_ITERATIONS: u32 = 2_000_000;

/// The users of a password file.
#[derive(Clone)]
pub struct Passwords {
    users: HashMap<String, Hash>,
    /// Checked for unknown names, so that the response time does not reveal which names exist.
    unknown: Hash,
    /// Keyed hashes of the passwords that were verified.
    verified: HashMap<String, hmac::Tag>,
    key: hmac::Key,
}

#[derive(Clone, PartialEq, Eq)]
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
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
            .map_err(|_| Error::new(ErrorKind::Io, "the system gives no random numbers"))?;
        let unknown = Hash { iterations, salt: vec![0; 12], expected: vec![0; 64] };
        Ok(Self { users, unknown, verified: HashMap::default(), key })
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
            .ok_or("the number of iterations must be 1 to 2000000")?;
        let mut base64 = || parts.next().and_then(|text| STANDARD.decode(text).ok());
        let salt = base64().filter(|salt| !salt.is_empty()).ok_or("the salt is not base64")?;
        let expected =
            base64().filter(|hash| hash.len() == 64).ok_or("the hash is not 64 bytes of base64")?;
        if parts.next().is_some() {
            return Err("unexpected text after the hash");
        }
        Ok((name.to_owned(), Hash { iterations, salt, expected }))
    }

    /// Number of users.
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether the file names the user.
    pub(super) fn has(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// Whether this password of the user was verified before. Takes microseconds.
    pub(super) fn recognise(&self, user: &str, password: &[u8]) -> bool {
        self.verified.get(user).is_some_and(|tag| hmac::verify(&self.key, password, tag.as_ref()).is_ok())
    }

    /// Verifies that the user exists and has this password. Takes equally long for every answer.
    pub(super) fn verification(&self, user: &str, password: Bytes) -> impl FnOnce() -> bool + Send + use<> {
        let known = self.has(user);
        let Hash { iterations, salt, expected } = self.users.get(user).unwrap_or(&self.unknown).clone();
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA512;
        move || pbkdf2::verify(algorithm, iterations, &salt, &password, &expected).is_ok() && known
    }

    /// Notes that the verification of this password succeeded.
    pub(super) fn remember(&mut self, user: &str, password: &[u8]) {
        if self.has(user) {
            self.verified.insert(user.to_owned(), hmac::sign(&self.key, password));
        }
    }

    /// Replaces the users. Gives back the former ones.
    pub(super) fn replace(&mut self, new: Self) -> Self {
        let mut old = std::mem::replace(self, new);
        self.key = old.key.clone();
        self.verified = std::mem::take(&mut old.verified);
        self.verified.retain(|user, _| self.users.get(user) == old.users.get(user));
        old
    }

    /// Whether the user is the same, with the same password, in both.
    pub(super) fn agree(&self, other: &Self, user: &str) -> bool {
        self.has(user) && self.users.get(user) == other.users.get(user)
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

    fn verify(passwords: &Passwords, user: &str, password: &'static [u8]) -> bool {
        passwords.verification(user, Bytes::from_static(password))()
    }

    #[test]
    fn a_file_of_mosquitto_passwd_is_read() {
        // Written by mosquitto_passwd 2.0.11.
        let file = "# users\n\ntill:$7$101$dkowch7IvcMGC9ZP$LWnT8hQq9KQjwhFy+BJZzeRv+47iAysVi4D7fS6Au6TcZWCkQuZK4EC2\
                    qpt4vGwToQeYy/hIwX9gZ6JyPQf4pg==\n";
        let passwords = Passwords::parse(file).unwrap();
        assert!(verify(&passwords, "till", b"drop"));
        assert!(!verify(&passwords, "till", b"Drop"));
        assert!(!verify(&passwords, "till", b""));
        assert!(!verify(&passwords, "stranger", b"drop"));
        assert!(!verify(&passwords, "", b""));
    }

    #[test]
    fn a_name_may_have_a_colon() {
        assert!(verify(&Passwords::parse(&line("a:b", b"x")).unwrap(), "a:b", b"x"));
    }

    #[test]
    fn a_password_is_recognised_until_it_is_another_one() {
        let mut passwords = Passwords::parse(&format!("{}\n{}", line("a", b"x"), line("b", b"x"))).unwrap();
        assert_eq!((passwords.len(), Passwords::parse("# none").unwrap().len()), (2, 0));
        passwords.remember("a", b"x");
        passwords.remember("stranger", b"x");
        assert!(passwords.recognise("a", b"x") && !passwords.recognise("a", b"y"));
        assert!(!passwords.recognise("b", b"x") && !passwords.recognise("stranger", b"x"));
        let same = Passwords::parse(&line("a", b"x")).unwrap();
        let old = passwords.replace(same);
        assert!(passwords.recognise("a", b"x") && passwords.agree(&old, "a") && !passwords.agree(&old, "b"));
        assert!(!passwords.agree(&old, "stranger"), "in neither of them");
        passwords.replace(Passwords::parse(&line("a", b"new")).unwrap());
        assert!(!passwords.recognise("a", b"x"), "the password is another one now");
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
