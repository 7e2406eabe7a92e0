//! User names and passwords, in the file format of `mosquitto_passwd`: one `name:hash` line for
//! each user. The hashes that can be read are those of [`password_hash`](super::password_hash).
//! Others are refused: `$6$` is a single round of SHA-512, which is too fast to resist guessing.
//!
//! A good hash takes a tenth of a second, so it is verified on another thread
//! ([`Passwords::verification`]). A user that was let in once is recognised by a keyed hash of its
//! password, which is in memory only.

use bytes::Bytes;
use ring::hmac;

use super::password_hash::{Cost, Hash};
use crate::lines;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;

/// The users of a password file.
#[derive(Clone)]
pub struct Passwords {
    users: HashMap<String, Hash>,
    /// Costs of the hashes of the users. An unknown name costs one of these, always the same one,
    /// so that the response time does not reveal which names exist.
    costs: Vec<Cost>,
    /// Keyed hashes of the passwords that were verified.
    verified: HashMap<String, hmac::Tag>,
    key: hmac::Key,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passwords").field("users", &self.users.len()).finish_non_exhaustive()
    }
}

impl Passwords {
    /// Parses a password file. Empty lines and lines that start with `#` are ignored. An error
    /// names the line.
    pub fn parse(text: &str) -> Result<Self> {
        // A name may contain a colon, a hash does not.
        let users = lines::users(
            "mqtt_password_file",
            text,
            "name:hash",
            |line| line.trim_end().rsplit_once(':'),
            |hash| Hash::parse(hash).map_err(str::to_owned),
        )?;
        let mut costs: Vec<Cost> = users.values().map(Hash::cost).collect();
        costs.sort_unstable();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
            .map_err(|_| Error::new(ErrorKind::Io, "the system gives no random numbers"))?;
        Ok(Self { users, costs, verified: HashMap::default(), key })
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

    /// Verifies that the user exists and has this password. Takes equally long for every password,
    /// and for names that do not exist as for those that do.
    pub(super) fn verification(&self, user: &str, password: Bytes) -> impl FnOnce() -> bool + Send + use<> {
        let known = self.has(user);
        let hash = self.users.get(user).cloned().unwrap_or_else(|| self.unknown(user));
        move || hash.verify(&password) && known
    }

    /// A hash for a name that does not exist.
    fn unknown(&self, user: &str) -> Hash {
        let tag = hmac::sign(&self.key, user.as_bytes());
        let number = tag.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let place = number.checked_rem(self.costs.len() as u64);
        place.and_then(|place| self.costs.get(place as usize)).unwrap_or(&Cost::LEAST).unknown()
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
    use std::num::NonZeroU32;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use ring::pbkdf2;

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
    fn both_kinds_of_hash_are_in_one_file() {
        let argon2 =
            "ann:$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        let passwords = Passwords::parse(&format!("{argon2}\n{}", line("bob", b"x"))).unwrap();
        assert!(verify(&passwords, "ann", b"password") && verify(&passwords, "bob", b"x"));
        assert!(!verify(&passwords, "ann", b"x") && !verify(&passwords, "bob", b"password"));
    }

    #[test]
    fn an_unknown_name_costs_what_the_users_cost_and_always_the_same() {
        let argon2 =
            |user: &str| format!("{user}:$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA");
        let mut passwords = Passwords::parse(&[line("a", b"x"), argon2("b")].join("\n")).unwrap();
        let names: Vec<String> = (0..200).map(|number| format!("stranger{number}")).collect();
        let costs = |passwords: &Passwords| -> Vec<Cost> {
            names.iter().map(|name| passwords.unknown(name).cost()).collect()
        };
        let found = costs(&passwords);
        assert_eq!(found, costs(&passwords));
        let slow = found.iter().filter(|cost| matches!(cost, Cost::Argon2id { kib: 8, .. })).count();
        assert!((50..150).contains(&slow), "as many as among the users, about: {slow}");
        // Even when the file is read again.
        passwords.replace(Passwords::parse(&[line("c", b"y"), argon2("d")].join("\n")).unwrap());
        assert_eq!(found, costs(&passwords));
        assert_eq!(Passwords::parse("").unwrap().unknown("stranger").cost(), Cost::LEAST);
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
            ("u:$argon2id$v=19$m=999999999,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "memory m"),
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
