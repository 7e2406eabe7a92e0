//! Hashes of passwords as `mosquitto_passwd` writes them: `$7$iterations$salt$hash` is PBKDF2 with
//! HMAC-SHA-512, and `$argon2id$v=19$m=KiB,t=passes,p=lanes$salt$hash` is Argon2id (RFC 9106),
//! which Mosquitto knows from version 2.1 on.
//!
//! What a hash costs is in the file, so both kinds have limits: about a second of one core and 256
//! MiB.

use std::num::NonZeroU32;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::rand::SecureRandom as _;
use ring::{hmac, pbkdf2};

use super::logins::AT_ONCE;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::{Mutex, MutexGuard, Rank};

/// Limit on the iterations of PBKDF2, which take about a second. `mosquitto_passwd` uses 1000,
/// `forebay passwd` 210,000.
const MAX_ITERATIONS: u32 = 2_000_000;
/// Limit on the memory of Argon2id, in KiB. `mosquitto_passwd` uses 47,104 in one pass, `forebay
/// passwd` 19,456 in two.
const MAX_MEMORY: u32 = 256 << 10;
/// Limit on the memory that all passes of Argon2id together go through, in KiB, which takes about a
/// second.
const MAX_MEMORY_PASSES: u64 = 1 << 20;
/// Blocks of 1 KiB up to which memory is kept for the next hash. Allocators return larger memory to
/// the system.
const REUSED: usize = 32 << 10;
/// Lengths of a hash by Argon2id, in bytes. Shorter ones are allowed by its standard, and can be
/// found by trying.
const ARGON2_HASH: std::ops::RangeInclusive<usize> = 16..=128;

/// KiB, passes and lanes of new hashes. OWASP recommends several, equally strong; these need 19
/// MiB, so that small machines can run the broker.
const NEW: (u32, u32, u32) = (19_456, 2, 1);

/// A hash, with all that is needed to verify a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Hash {
    cost: Cost,
    salt: Vec<u8>,
    expected: Vec<u8>,
}

/// Cost of the verification of a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cost {
    /// PBKDF2 with HMAC-SHA-512.
    Pbkdf2 { iterations: NonZeroU32 },
    /// Argon2id, version 19.
    Argon2id { kib: u32, passes: u32, lanes: u32 },
}

impl Cost {
    /// The least that a hash can cost.
    pub(super) const LEAST: Self = Self::Pbkdf2 { iterations: NonZeroU32::MIN };

    /// A hash of this cost that fits no password.
    pub(super) fn unknown(self) -> Hash {
        let (salt, hash) = match self {
            Self::Pbkdf2 { .. } => (12, 64),
            Self::Argon2id { .. } => (16, 32),
        };
        Hash { cost: self, salt: vec![0; salt], expected: vec![0; hash] }
    }
}

impl Hash {
    /// Parses what follows the name of a user.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        let mut parts = text.split('$');
        let (before, kind) = (parts.next(), parts.next());
        let parsed = match kind {
            Some("7") if before == Some("") => Self::parse_pbkdf2(&mut parts)?,
            Some("argon2id") if before == Some("") => Self::parse_argon2id(&mut parts)?,
            Some(_) if before == Some("") => {
                return Err(
                    "only hashes that start with $7$ (PBKDF2 with SHA-512) or $argon2id$ are supported",
                );
            }
            _ => return Err("the password is not hashed: use mosquitto_passwd or forebay passwd"),
        };
        if parts.next().is_some() {
            return Err("unexpected text after the hash");
        }
        Ok(parsed)
    }

    fn parse_pbkdf2<'a>(
        parts: &mut impl Iterator<Item = &'a str>,
    ) -> std::result::Result<Self, &'static str> {
        let iterations = parts
            .next()
            .and_then(|text| text.parse().ok())
            .filter(|n: &NonZeroU32| n.get() <= MAX_ITERATIONS)
            .ok_or("the number of iterations must be 1 to 2000000")?;
        let mut base64 = || parts.next().and_then(|text| STANDARD.decode(text).ok());
        let salt = base64().filter(|salt| !salt.is_empty()).ok_or("the salt is not base64")?;
        let expected =
            base64().filter(|hash| hash.len() == 64).ok_or("the hash is not 64 bytes of base64")?;
        Ok(Self { cost: Cost::Pbkdf2 { iterations }, salt, expected })
    }

    fn parse_argon2id<'a>(
        parts: &mut impl Iterator<Item = &'a str>,
    ) -> std::result::Result<Self, &'static str> {
        if parts.next() != Some("v=19") {
            return Err("only version 19 of Argon2id is supported: expected v=19");
        }
        let mut costs = parts.next().unwrap_or_default().split(',');
        let mut number = |name: &str| costs.next()?.strip_prefix(name)?.parse::<u32>().ok();
        let (kib, passes, lanes) = (number("m="), number("t="), number("p="));
        let (Some(kib), Some(passes), Some(lanes), None) = (kib, passes, lanes, costs.next()) else {
            return Err("expected the parameters m=KIB,t=PASSES,p=LANES");
        };
        if kib > MAX_MEMORY {
            return Err("the memory m must be at most 262144 KiB");
        }
        if u64::from(kib) * u64::from(passes) > MAX_MEMORY_PASSES {
            return Err("the memory m times the passes t must be at most 1048576 KiB");
        }
        if Params::new(kib, passes, lanes, None).is_err() {
            return Err("the passes t and the lanes p must be 1 or more, the memory m 8 KiB for each lane");
        }
        // The reference implementation writes base64 without padding.
        let mut base64 = || parts.next().and_then(|text| STANDARD_NO_PAD.decode(text).ok());
        let salt = base64()
            .filter(|salt| salt.len() >= argon2::MIN_SALT_LEN)
            .ok_or("the salt is not 8 bytes or more of base64 without padding")?;
        let expected = base64()
            .filter(|hash| ARGON2_HASH.contains(&hash.len()))
            .ok_or("the hash is not 16 to 128 bytes of base64 without padding")?;
        Ok(Self { cost: Cost::Argon2id { kib, passes, lanes }, salt, expected })
    }

    /// Cost of its verification.
    pub(super) fn cost(&self) -> Cost {
        self.cost
    }

    /// Whether the hash is of this password, compared in constant time. Takes about as long as
    /// [`Cost`] says.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        match self.cost {
            Cost::Pbkdf2 { iterations } => {
                let algorithm = pbkdf2::PBKDF2_HMAC_SHA512;
                pbkdf2::verify(algorithm, iterations, &self.salt, password, &self.expected).is_ok()
            }
            Cost::Argon2id { kib, passes, lanes } => {
                let mut hash = vec![0; self.expected.len()];
                argon2id(kib, passes, lanes, password, &self.salt, &mut hash).is_some_and(|()| {
                    // Tags by a key that is constant do as well: what counts is that `hmac::verify`
                    // looks at all bytes.
                    let key = hmac::Key::new(hmac::HMAC_SHA256, &self.salt);
                    hmac::verify(&key, &hash, hmac::sign(&key, &self.expected).as_ref()).is_ok()
                })
            }
        }
    }
}

/// Fills `hash`. Gives `None` if a parameter is out of range, or if the memory is not there.
fn argon2id(kib: u32, passes: u32, lanes: u32, password: &[u8], salt: &[u8], hash: &mut [u8]) -> Option<()> {
    let params = Params::new(kib, passes, lanes, Some(hash.len())).ok()?;
    let count = params.block_count();
    let mut memory = if count <= REUSED { free_memory().pop().unwrap_or_default() } else { Vec::new() };
    // A machine without that much memory refuses one login, where an ordinary allocation would end
    // the process.
    memory.try_reserve_exact(count.saturating_sub(memory.len())).ok()?;
    memory.resize(count.max(memory.len()), Block::new());
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let result = argon2.hash_password_into_with_memory(password, salt, hash, &mut memory[..count]);
    let mut free = free_memory();
    if memory.len() <= REUSED && free.len() < AT_ONCE {
        free.push(memory);
    }
    result.ok()
}

/// Memory of hashes that are done, for the next ones. Returned to the allocator, it would be kept
/// once for each thread that has computed a hash.
fn free_memory() -> MutexGuard<'static, Vec<Vec<Block>>> {
    static FREE: Mutex<Vec<Vec<Block>>> = Mutex::new(Rank::Leaf, Vec::new());
    FREE.lock()
}

/// Frees the memory that is kept for the next hashes.
pub(crate) fn forget_memory() {
    free_memory().clear();
}

/// A hash by Argon2id with a new salt, as it is in a file of users:
/// `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`.
///
/// Uses 19 MiB of memory for some ten milliseconds.
///
/// # Errors
///
/// [`ErrorKind::Io`] if the system has no random numbers, or not enough memory.
pub fn hash_password(password: &[u8]) -> Result<String> {
    let (mut salt, mut hash) = ([0; 16], [0; 32]);
    ring::rand::SystemRandom::new()
        .fill(&mut salt)
        .map_err(|_| Error::new(ErrorKind::Io, "the system gives no random numbers"))?;
    let (kib, passes, lanes) = NEW;
    argon2id(kib, passes, lanes, password, &salt, &mut hash)
        .ok_or_else(|| Error::new(ErrorKind::Io, format!("a hash needs {kib} KiB of memory")))?;
    let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
    Ok(format!("$argon2id$v=19$m={kib},t={passes},p={lanes}${salt}${hash}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(hash: &str, password: &str) -> bool {
        Hash::parse(hash).unwrap().verify(password.as_bytes())
    }

    /// The vector of RFC 9106, section 5.3. It has a secret and associated data, which files of
    /// users do not have, so it is computed by the crate alone.
    #[test]
    fn the_crate_computes_the_vector_of_the_standard() {
        let data = argon2::AssociatedData::new(&[4; 12]).unwrap();
        let params =
            argon2::ParamsBuilder::new().m_cost(32).t_cost(3).p_cost(4).data(data).output_len(32).build();
        let argon2 =
            Argon2::new_with_secret(&[3; 8], Algorithm::Argon2id, Version::V0x13, params.unwrap()).unwrap();
        let mut memory = vec![Block::new(); 32];
        let mut hash = [0; 32];
        argon2.hash_password_into_with_memory(&[1; 32], &[2; 16], &mut hash, &mut memory[..]).unwrap();
        let expected = [
            0x0d, 0x64, 0x0d, 0xf5, 0x8d, 0x78, 0x76, 0x6c, 0x08, 0xc0, 0x37, 0xa3, 0x4a, 0x8b, 0x53, 0xc9,
            0xd0, 0x1e, 0xf0, 0x45, 0x2d, 0x75, 0xb6, 0x5e, 0xb5, 0x25, 0x20, 0xe9, 0x6b, 0x01, 0xe6, 0x59,
        ];
        assert_eq!(hash, expected);
    }

    /// Of `test.c` of the reference implementation, phc-winner-argon2.
    #[test]
    fn hashes_of_the_reference_implementation_are_verified() {
        for hash in [
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
            "$argon2id$v=19$m=65536,t=1,p=1$c29tZXNhbHQ$9qWtwbpyPd3vm1rB1GThgPzZ3/ydHL92zKL+15XZypg",
        ] {
            assert!(verify(hash, "password") && !verify(hash, "passwore") && !verify(hash, ""), "{hash}");
        }
        assert!(verify(
            "$argon2id$v=19$m=65536,t=2,p=1$ZGlmZnNhbHQ$vfMrBczELrFdWP0ZsfhWsRPaHppYdP3MVEMIVlqoFBw",
            "password"
        ));
    }

    #[test]
    fn hashes_of_other_programs_are_verified() {
        // By the reference implementation (argon2-cffi 25.1.0), with the parameters of
        // mosquitto_passwd 2.1: one pass over 46 MiB, and 64 bytes of salt and hash.
        let mosquitto = "$argon2id$v=19$m=47104,t=1,p=1$x1HQRgRQKx1lVSSW4t2Teqs+7Sj9nCxiJFC07bkyC8huqgv3+RNDTd+/HUu2rVZmk0Q\
                         ybhld+tvRvjlZNSPHcw$+x6DYN5jdW4ROLiPciH3aHjCu33aQkjevoDvcnErpuMCyuEAVvjOSXiRwVEZNRXEJIjbmfnArRRI\
                         ScDVwvBu4w";
        // The defaults of argon2-cffi 25.1.0.
        let cffi = "$argon2id$v=19$m=65536,t=3,p=4$KMSOZ+Ub0CB1Q7Q2Fp9BRQ$vub+tSEm89duma16vqde0ZKXRUjNYT4DwHkS87/AdGc";
        // Written by mosquitto_passwd 2.0.11.
        let old = "$7$101$dkowch7IvcMGC9ZP$LWnT8hQq9KQjwhFy+BJZzeRv+47iAysVi4D7fS6Au6TcZWCkQuZK4EC2qpt4vGwToQeYy/hIwX9gZ6J\
                   yPQf4pg==";
        for hash in [mosquitto, cffi, old] {
            assert!(verify(hash, "drop") && !verify(hash, "Drop"), "{hash}");
        }
    }

    #[test]
    fn verifications_use_the_memory_of_earlier_ones() {
        let hashes = [
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
        ];
        let mut kept = 0;
        for _ in 0..10 {
            let threads = [0, 1].map(|n| {
                std::thread::spawn(move || assert!(verify(hashes[n], "password") && !verify(hashes[n], "x")))
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let free = free_memory();
            assert!(free.len() <= AT_ONCE);
            assert!(free.iter().all(|memory| memory.len() <= REUSED));
            kept = kept.max(free.len());
        }
        // Other tests of the process take some of it, but not each time.
        assert!(kept > 0);
    }

    #[test]
    fn a_new_hash_is_of_its_password_and_has_a_salt_of_its_own() {
        let (one, other) = (hash_password(b"drop").unwrap(), hash_password(b"drop").unwrap());
        assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && one != other);
        assert!(verify(&one, "drop") && verify(&other, "drop") && !verify(&one, "Drop"));
        assert_eq!(Hash::parse(&one).unwrap().cost(), Cost::Argon2id { kib: 19_456, passes: 2, lanes: 1 });
    }

    #[test]
    fn a_hash_that_fits_no_password_costs_the_same() {
        for cost in [Cost::LEAST, Cost::Argon2id { kib: 64, passes: 1, lanes: 4 }] {
            let hash = cost.unknown();
            assert!(hash.cost() == cost && !hash.verify(b"") && !hash.verify(&[0; 32]));
        }
    }

    #[test]
    fn a_hash_that_costs_too_much_or_is_none_is_refused() {
        let argon2 = |costs: &str| format!("$argon2id$v=19${costs}$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA");
        for costs in ["m=8,t=1,p=1", "m=262144,t=4,p=1", "m=8,t=131072,p=1", "m=262144,t=1,p=32768"] {
            assert!(Hash::parse(&argon2(costs)).is_ok(), "{costs}");
        }
        for (costs, why) in [
            ("m=262145,t=1,p=1", "at most 262144"),
            ("m=4294967295,t=4294967295,p=1", "at most 262144"),
            ("m=262144,t=5,p=1", "at most 1048576"),
            ("m=8,t=131073,p=1", "at most 1048576"),
            ("m=7,t=1,p=1", "8 KiB for each lane"),
            ("m=8,t=0,p=1", "1 or more"),
            ("m=8,t=1,p=0", "1 or more"),
            ("m=8,t=1,p=2", "8 KiB for each lane"),
            ("m=8,t=1,p=4294967295", "8 KiB for each lane"),
            ("m=4294967296,t=1,p=1", "expected the parameters"),
            ("t=1,m=8,p=1", "expected the parameters"),
            ("m=8,t=1", "expected the parameters"),
            ("m=8,t=1,p=1,keyid=a", "expected the parameters"),
            ("", "expected the parameters"),
        ] {
            let error = Hash::parse(&argon2(costs)).err();
            assert!(error.is_some_and(|error| error.contains(why)), "{costs}: {error:?}");
        }
        for (hash, why) in [
            ("$argon2id$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "v=19"),
            ("$argon2id$v=16$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "v=19"),
            ("$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", "$argon2id$"),
            ("$argon2id$v=19$m=8,t=1,p=1$c2FsdA$AAAAAAAAAAAAAAAAAAAAAA", "the salt"),
            ("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ=$AAAAAAAAAAAAAAAAAAAAAA", "the salt"),
            ("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAA", "the hash"),
            ("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ", "the hash"),
            ("$argon2id", "v=19"),
        ] {
            let error = Hash::parse(hash).err();
            assert!(error.is_some_and(|error| error.contains(why)), "{hash}: {error:?}");
        }
        let error = Hash::parse(&(argon2("m=8,t=1,p=1") + "$x")).err();
        assert!(error.is_some_and(|error| error.contains("after the hash")), "{error:?}");
    }
}
