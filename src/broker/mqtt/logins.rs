//! Logins that wait for their password to be verified.
//!
//! ```text
//! waiting --its address's turn--> being verified --right--> admitted
//!                                        +--wrong--> refused after [`PAUSE`]; the address pays for it
//! ```
//! A password hash costs a tenth of a second and more, so it is verified on another thread, a few at a time. Addresses
//! take turns, and one that sent many wrong passwords waits between two attempts: a flood of guesses delays neither
//! the clients that are connected nor the logins from other addresses.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::mqtt::packet::Connect;

/// Time from the result to the refusal of a wrong password.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Passwords that are verified at the same time.
const AT_ONCE: usize = 2;
/// Price of a wrong password: the address gets one attempt in this time on average.
const PRICE: Duration = Duration::from_secs(1);
/// Wrong passwords that an address may send without waiting.
const BURST: u32 = 10;
/// Limit on the bytes of the CONNECT packets that wait.
const WAITING_BYTES: usize = 64 << 20;
/// Limit on those of one address.
const WAITING_BYTES_OF_ADDRESS: usize = WAITING_BYTES / 2;

/// A login.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) connection: u64,
    pub(super) connect: Box<Connect>,
    address: IpAddr,
}

impl Login {
    /// Bytes of the packet, about.
    fn size(&self) -> usize {
        let connect = &self.connect;
        let will = connect.will.as_ref().map_or(0, |will| will.payload.len() + will.topic.len());
        let password = connect.password.as_ref().map_or(0, |password| password.len());
        let user = connect.user_name.as_ref().map_or(0, |name| name.len());
        512 + will + password + user + connect.client_id.len()
    }
}

#[derive(Debug, Default)]
struct Queue {
    logins: VecDeque<Login>,
    bytes: usize,
}

/// Logins, as the [module](self) describes.
#[derive(Debug, Default)]
pub(super) struct Logins {
    waiting: BTreeMap<IpAddr, Queue>,
    waiting_bytes: usize,
    /// The address that had the last turn.
    last: Option<IpAddr>,
    /// Logins whose password is being verified, by a number of their own.
    verifying: BTreeMap<u64, Login>,
    next_number: u64,
    /// Until when the wrong passwords of an address are paid for.
    paid_at: BTreeMap<IpAddr, Instant>,
}

impl Logins {
    /// Adds a login. Gives it back if too many wait.
    pub(super) fn add(
        &mut self,
        connection: u64,
        connect: Box<Connect>,
        address: IpAddr,
    ) -> Result<(), Box<Connect>> {
        let login = Login { connection, connect, address };
        let size = login.size();
        let queue = self.waiting.entry(address).or_default();
        if self.waiting_bytes + size > WAITING_BYTES || queue.bytes + size > WAITING_BYTES_OF_ADDRESS {
            return Err(login.connect);
        }
        queue.bytes += size;
        self.waiting_bytes += size;
        queue.logins.push_back(login);
        Ok(())
    }

    /// The login whose turn it is. It must be passed to [`Self::verify`], unless it needs no verification.
    pub(super) fn next(&mut self, now: Instant) -> Option<Login> {
        if self.verifying.len() >= AT_ONCE {
            return None;
        }
        self.paid_at.retain(|_, at| *at > now);
        let may = |address: &IpAddr| self.free_at(address).is_none_or(|at| at <= now);
        let behind = self.last.map(|last| (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded));
        let address = behind
            .and_then(|range| self.waiting.range(range).map(|(address, _)| *address).find(may))
            .or_else(|| self.waiting.keys().copied().find(may))?;
        self.last = Some(address);
        let queue = self.waiting.get_mut(&address)?;
        let login = queue.logins.pop_front();
        let size = login.as_ref().map_or(0, Login::size);
        queue.bytes -= size;
        self.waiting_bytes -= size;
        if queue.logins.is_empty() {
            self.waiting.remove(&address);
        }
        login
    }

    /// When the address may try again; `None` means at any time.
    fn free_at(&self, address: &IpAddr) -> Option<Instant> {
        self.paid_at.get(address).and_then(|at| at.checked_sub(PRICE * BURST))
    }

    /// Notes that a login's password is being verified, and gives the number of that.
    pub(super) fn verify(&mut self, login: Login) -> u64 {
        self.next_number += 1;
        self.verifying.insert(self.next_number, login);
        self.next_number
    }

    /// Lets all logins wait again, because the passwords are other ones now. Results that are under way do not count.
    pub(super) fn restart(&mut self) {
        for login in std::mem::take(&mut self.verifying).into_values().rev() {
            let size = login.size();
            let queue = self.waiting.entry(login.address).or_default();
            queue.bytes += size;
            self.waiting_bytes += size;
            queue.logins.push_front(login);
        }
    }

    /// Handles a result of the verification and gives the login.
    pub(super) fn verified(&mut self, now: Instant, number: u64, good: bool) -> Option<Login> {
        let login = self.verifying.remove(&number)?;
        if !good {
            let paid_at = self.paid_at.entry(login.address).or_insert(now);
            *paid_at = (*paid_at).max(now) + PRICE;
        }
        Some(login)
    }

    /// When [`Self::next`] may give something that it does not give now.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.verifying.len() >= AT_ONCE {
            return None;
        }
        self.waiting.keys().filter_map(|address| self.free_at(address)).min()
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The address that pays for the wrong passwords of a client: for IPv6 its network, whose addresses cost nothing.
pub(super) fn payer(address: &str) -> IpAddr {
    let address = address.parse::<SocketAddr>().map(|address| address.ip().to_canonical());
    match address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::Version;

    fn add(logins: &mut Logins, connection: u64, address: &str) -> bool {
        let connect = Box::new(Connect::new(Version::V5, "c"));
        logins.add(connection, connect, payer(address)).is_ok()
    }

    /// The connection whose password is verified now, and the number of that.
    fn start(logins: &mut Logins, now: Instant) -> Option<(u64, u64)> {
        let login = logins.next(now)?;
        Some((login.connection, logins.verify(login)))
    }

    #[test]
    fn addresses_take_turns_and_few_passwords_are_verified_at_once() {
        let now = Instant::now();
        let mut logins = Logins::default();
        (0..5).for_each(|connection| assert!(add(&mut logins, connection, "10.0.0.1:1")));
        assert!(add(&mut logins, 9, "10.0.0.2:1"));
        assert_eq!(start(&mut logins, now), Some((0, 1)));
        assert_eq!(start(&mut logins, now), Some((9, 2)), "behind one attempt, not behind five");
        assert_eq!(start(&mut logins, now), None);
        assert!(logins.verified(now, 1, true).is_some());
        assert_eq!(start(&mut logins, now), Some((1, 3)));
        logins.restart();
        assert!(logins.verified(now, 2, true).is_none(), "by a password that is another one now");
        assert_eq!(start(&mut logins, now), Some((9, 4)));
        assert_eq!(start(&mut logins, now), Some((1, 5)));
    }

    #[test]
    fn an_address_pays_for_wrong_passwords_and_others_do_not() {
        let mut now = Instant::now();
        let mut logins = Logins::default();
        (0..BURST + 5).for_each(|connection| assert!(add(&mut logins, connection.into(), "[2001:db8::1]:1")));
        let mut tried = 0;
        while let Some((_, number)) = start(&mut logins, now) {
            tried += 1;
            logins.verified(now, number, false);
        }
        assert_eq!(tried, BURST + 1);
        assert!(add(&mut logins, 98, "[2001:db8::2]:1"), "of the same network");
        assert!(add(&mut logins, 99, "10.0.0.2:1"));
        let (connection, number) = start(&mut logins, now).unwrap();
        assert_eq!(connection, 99);
        logins.verified(now, number, true);
        assert_eq!(start(&mut logins, now), None);
        now = logins.poll_timeout().unwrap();
        let (_, number) = start(&mut logins, now).unwrap();
        logins.verified(now, number, false);
        assert_eq!(start(&mut logins, now), None, "one in a second");
        assert!(start(&mut logins, now + PRICE).is_some());
    }

    #[test]
    fn the_bytes_that_wait_are_bounded() {
        let mut logins = Logins::default();
        let mut full = 0;
        while add(&mut logins, full, "10.0.0.1:1") {
            full += 1;
        }
        assert!(full <= (WAITING_BYTES_OF_ADDRESS / 512) as u64);
        assert!(add(&mut logins, full, "10.0.0.2:1"), "another address has room");
    }
}
