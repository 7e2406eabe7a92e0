//! Logins that wait for their password to be verified.
//!
//! ```text
//! waiting --its turn--> being verified --right--> admitted
//!                             +--wrong--> refused after a [`PAUSE`]; the name and the address pay
//! ```
//! A password hash costs a tenth of a second and more, so it is verified on another thread, a few
//! at a time. Addresses take turns, and so do the user names of an address. A user name that came
//! with many wrong passwords from an address waits between two attempts, and so does the address
//! after many more: a flood of guesses delays neither the clients that are connected nor the logins
//! from other addresses, and not much those of other users behind the same address: names without a
//! wrong password lately go ahead of those with one, so that devices which still have an old
//! password do not use up all that their address may try.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytestring::ByteString;

use crate::peer;
use forebay_base::random::{Hash, HashMap};
use forebay_mqtt::packet::Connect;

/// A wrong password is refused a whole number of these after its CONNECT, so that the time of the
/// refusal does not tell which kind of hash the user has, or whether there is such a user.
const PAUSE: Duration = Duration::from_secs(1);
/// Passwords that are verified at the same time. Bounds the memory, as each may need what the limit
/// on a hash allows.
pub(super) const AT_ONCE: usize = 2;
/// Price of a wrong password: a user name gets one attempt from an address in this time on average.
const PRICE: Duration = Duration::from_secs(1);
/// Wrong passwords that a user name may have from an address without waiting.
const BURST: u32 = 10;
/// The same for all user names of an address together.
const PRICE_OF_ADDRESS: Duration = Duration::from_millis(200);
const BURST_OF_ADDRESS: u32 = 50;
/// Time for which a wrong password of a user name from an address is remembered.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Limit on those that are remembered.
const MAX_REMEMBERED: usize = 10_000;
/// One turn in so many is for any user name of its address.
const FOR_ANY: u64 = 4;
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
    arrived: Instant,
}

impl Login {
    /// When a login whose password is wrong is refused. Not at once, so that guessing takes time.
    pub(super) fn refused_at(&self, now: Instant) -> Instant {
        let periods = now.saturating_duration_since(self.arrived).as_nanos().div_ceil(PAUSE.as_nanos());
        self.arrived + PAUSE * u32::try_from(periods.max(1)).unwrap_or(u32::MAX)
    }

    /// Bytes of the packet, about.
    fn size(&self) -> usize {
        let connect = &self.connect;
        let will = connect
            .will
            .as_ref()
            .map_or(0, |will| will.payload.len() + will.topic.len() + will.properties.weight());
        let password = connect.password.as_ref().map_or(0, |password| password.len());
        let properties = connect.properties.weight();
        768 + will + properties + password + 2 * self.user().len() + connect.client_id.len()
    }

    fn user(&self) -> &str {
        self.connect.user_name.as_deref().unwrap_or_default()
    }

    /// A copy of the name, which does not keep the packet in memory.
    fn user_name(&self) -> ByteString {
        self.user().into()
    }
}

/// The logins of an address that wait.
#[derive(Debug, Default)]
struct Queue {
    of_user: HashMap<ByteString, VecDeque<Login>>,
    /// The user names, in order of their turns.
    turns: VecDeque<ByteString>,
    bytes: usize,
}

impl Queue {
    fn push_back(&mut self, login: Login) {
        self.bytes += login.size();
        if !self.of_user.contains_key(login.user()) {
            self.turns.push_back(login.user_name());
        }
        self.of_user.entry(login.user_name()).or_default().push_back(login);
    }

    fn push_front(&mut self, login: Login) {
        self.bytes += login.size();
        self.turns.retain(|user| user != login.user());
        self.turns.push_front(login.user_name());
        self.of_user.entry(login.user_name()).or_default().push_front(login);
    }

    /// Takes a login of the user with this place among the turns. The user's next turn comes after
    /// all others.
    fn take(&mut self, place: usize) -> Option<Login> {
        let user = self.turns.remove(place)?;
        let logins = self.of_user.get_mut(&user)?;
        let login = logins.pop_front()?;
        self.bytes -= login.size();
        if logins.is_empty() {
            self.of_user.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        Some(login)
    }
}

/// Wrong passwords, for which their senders pay with time.
#[derive(Debug)]
struct Debts<K> {
    price: Duration,
    burst: u32,
    /// Until when they are paid for.
    paid_at: BTreeMap<K, Instant>,
}

impl<K: Ord> Debts<K> {
    fn new(price: Duration, burst: u32) -> Self {
        Self { price, burst, paid_at: BTreeMap::new() }
    }

    fn add(&mut self, now: Instant, sender: K) {
        let paid_at = self.paid_at.entry(sender).or_insert(now);
        *paid_at = (*paid_at).max(now) + self.price;
    }

    /// When the sender may try again, if it has to wait.
    fn free_at(&self, now: Instant, sender: &K) -> Option<Instant> {
        let at = self.paid_at.get(sender)?.checked_sub(self.price * self.burst)?;
        (at > now).then_some(at)
    }

    /// Forgets those that are paid for.
    fn settle(&mut self, now: Instant) {
        self.paid_at.retain(|_, at| *at > now);
    }
}

/// Logins, as the [module](self) describes.
#[derive(Debug)]
pub(super) struct Logins {
    /// No queue is empty.
    waiting: BTreeMap<IpAddr, Queue>,
    waiting_bytes: usize,
    /// The address that had the last turn.
    last: Option<IpAddr>,
    /// Logins whose password is being verified, by a number of their own.
    verifying: BTreeMap<u64, Login>,
    /// Numbers of verifications that [`Self::restart`] made void. They use a thread and memory
    /// until they end.
    void: BTreeSet<u64>,
    next_number: u64,
    /// The last wrong password of a user name from an address. Names are hashed, as they may be
    /// long.
    wrong: BTreeMap<(IpAddr, u64), Instant>,
    hash: Hash,
    debts: Debts<(IpAddr, ByteString)>,
    debts_of_address: Debts<IpAddr>,
}

impl Default for Logins {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            last: None,
            verifying: BTreeMap::new(),
            void: BTreeSet::new(),
            next_number: 0,
            wrong: BTreeMap::new(),
            hash: Hash::default(),
            debts: Debts::new(PRICE, BURST),
            debts_of_address: Debts::new(PRICE_OF_ADDRESS, BURST_OF_ADDRESS),
        }
    }
}

impl Logins {
    /// Adds a login. Gives it back if too many wait.
    pub(super) fn add(
        &mut self,
        now: Instant,
        connection: u64,
        connect: Box<Connect>,
        address: IpAddr,
    ) -> Result<(), Box<Connect>> {
        let login = Login { connection, connect, address, arrived: now };
        let size = login.size();
        let of_address = self.waiting.get(&address).map_or(0, |queue| queue.bytes);
        if self.waiting_bytes + size > WAITING_BYTES || of_address + size > WAITING_BYTES_OF_ADDRESS {
            return Err(login.connect);
        }
        self.waiting_bytes += size;
        self.waiting.entry(address).or_default().push_back(login);
        Ok(())
    }

    /// The login whose turn it is. It must be passed to [`Self::verify`], unless it needs no
    /// verification.
    pub(super) fn next(&mut self, now: Instant) -> Option<Login> {
        if self.is_busy() {
            return None;
        }
        self.debts.settle(now);
        self.debts_of_address.settle(now);
        let turn = |(address, queue): (&IpAddr, &Queue)| {
            if self.debts_of_address.free_at(now, address).is_some() {
                return None;
            }
            let may = |user: &ByteString| self.debts.free_at(now, &(*address, user.clone())).is_none();
            let innocent = |user: &ByteString| may(user) && !self.was_wrong(now, *address, user);
            let ahead = || queue.turns.iter().position(innocent);
            let place = if self.next_number.is_multiple_of(FOR_ANY) { None } else { ahead() };
            Some((*address, place.or_else(|| queue.turns.iter().position(may))?))
        };
        let behind = self.last.map(|last| (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded));
        let (address, place) = behind
            .and_then(|range| self.waiting.range(range).find_map(turn))
            .or_else(|| self.waiting.iter().find_map(turn))?;
        self.last = Some(address);
        let queue = self.waiting.get_mut(&address)?;
        let login = queue.take(place)?;
        self.waiting_bytes -= login.size();
        if queue.turns.is_empty() {
            self.waiting.remove(&address);
        }
        Some(login)
    }

    /// Notes that a login's password is being verified, and gives the number of that.
    pub(super) fn verify(&mut self, login: Login) -> u64 {
        self.next_number += 1;
        self.verifying.insert(self.next_number, login);
        self.next_number
    }

    /// Lets all logins wait again, because the passwords are other ones now. Results that are under
    /// way do not count.
    pub(super) fn restart(&mut self) {
        for (number, login) in std::mem::take(&mut self.verifying).into_iter().rev() {
            self.void.insert(number);
            self.waiting_bytes += login.size();
            self.waiting.entry(login.address).or_default().push_front(login);
        }
    }

    /// Handles a result of the verification and gives the login.
    pub(super) fn verified(&mut self, now: Instant, number: u64, good: bool) -> Option<Login> {
        self.void.remove(&number);
        let login = self.verifying.remove(&number)?;
        let sender = (login.address, self.hash.hash_one(login.user()));
        if good {
            self.wrong.remove(&sender);
        } else {
            self.remember(now, sender);
            self.debts.add(now, (login.address, login.user_name()));
            self.debts_of_address.add(now, login.address);
        }
        Some(login)
    }

    /// Whether as many passwords are verified as may be at the same time.
    fn is_busy(&self) -> bool {
        self.verifying.len() + self.void.len() >= AT_ONCE
    }

    /// Whether the user name came with a wrong password from the address lately.
    fn was_wrong(&self, now: Instant, address: IpAddr, user: &ByteString) -> bool {
        self.wrong.get(&(address, self.hash.hash_one(&**user))).is_some_and(|at| *at + REMEMBERED > now)
    }

    /// Remembers a wrong password.
    fn remember(&mut self, now: Instant, sender: (IpAddr, u64)) {
        if self.wrong.len() >= MAX_REMEMBERED {
            self.wrong.retain(|_, at| *at + REMEMBERED > now);
        }
        if self.wrong.len() >= MAX_REMEMBERED {
            let oldest = self.wrong.iter().min_by_key(|(_, at)| **at).map(|(sender, _)| *sender);
            oldest.and_then(|sender| self.wrong.remove(&sender));
        }
        self.wrong.insert(sender, now);
    }

    /// When [`Self::next`] may give something, if it gives nothing now.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        let of_users = |address: IpAddr, queue: &Queue| {
            queue.turns.iter().filter_map(|user| self.debts.free_at(now, &(address, user.clone()))).min()
        };
        let free_at = |(address, queue): (&IpAddr, &Queue)| {
            self.debts_of_address.free_at(now, address).or_else(|| of_users(*address, queue))
        };
        self.waiting.iter().filter_map(free_at).min()
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The address that pays for the wrong passwords of a client.
pub(super) fn payer(address: &str) -> IpAddr {
    let address = address.parse::<SocketAddr>().map(|address| address.ip());
    peer::payer(address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_mqtt::packet::Will;
    use forebay_mqtt::{Properties, QoS, Version};

    fn add_of(logins: &mut Logins, connection: u64, address: &str, user: &str) -> bool {
        let connect = Connect { user_name: Some(user.into()), ..Connect::new(Version::V5, "c") };
        logins.add(Instant::now(), connection, Box::new(connect), payer(address)).is_ok()
    }

    fn add(logins: &mut Logins, connection: u64, address: &str) -> bool {
        add_of(logins, connection, address, "ann")
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
        assert_eq!(start(&mut logins, now), None, "those that do not count any more are not done yet");
        assert!(logins.verified(now, 2, true).is_none(), "by a password that is another one now");
        assert_eq!(start(&mut logins, now), Some((9, 4)));
        assert_eq!(start(&mut logins, now), None);
        assert!(logins.verified(now, 3, true).is_none());
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
        now = logins.poll_timeout(now).unwrap();
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

    #[test]
    fn a_login_that_finds_no_room_holds_up_none_that_wait() {
        let mut logins = Logins::default();
        // Two addresses use all of the budget.
        for address in ["10.0.0.2:1", "10.0.0.3:1"] {
            while add(&mut logins, 2, address) {}
        }
        assert!(!add(&mut logins, 1, "10.0.0.1:1"));
        assert!(!add(&mut logins, 4, "10.0.0.4:1"));
        let now = Instant::now();
        assert!(start(&mut logins, now).is_some());
        assert!(start(&mut logins, now).is_some());
    }

    #[test]
    fn user_names_of_an_address_take_turns_and_pay_for_their_own_wrong_passwords() {
        let now = Instant::now();
        let mut logins = Logins::default();
        let address = "127.0.0.1:1";
        (0..100).for_each(|connection| assert!(add_of(&mut logins, connection, address, "ann")));
        assert!(add_of(&mut logins, 200, address, "bob"));
        assert_eq!(start(&mut logins, now), Some((0, 1)));
        assert_eq!(start(&mut logins, now), Some((200, 2)), "behind one attempt, not behind a hundred");
        logins.verified(now, 1, false);
        logins.verified(now, 2, true);
        let mut wrong = 1;
        while let Some((_, number)) = start(&mut logins, now) {
            wrong += 1;
            logins.verified(now, number, false);
        }
        assert_eq!(wrong, BURST + 1);
        assert!(logins.poll_timeout(now).is_some_and(|at| at > now));
        assert!(add_of(&mut logins, 201, address, "bob"));
        let (connection, number) = start(&mut logins, now).unwrap();
        assert_eq!(connection, 201, "another user does not pay for it");
        logins.verified(now, number, true);
        assert_eq!(start(&mut logins, now), None);
    }

    #[test]
    fn many_users_with_old_passwords_do_not_use_up_what_their_address_may_try() {
        let mut now = Instant::now();
        let mut logins = Logins::default();
        let address = "10.0.0.1:1";
        for device in 0..200 {
            add_of(&mut logins, device, address, &format!("old{device}"));
        }
        // Each tries again as soon as it was refused.
        let mut attempt = |logins: &mut Logins| loop {
            if let Some(login) = logins.next(now) {
                let (device, user) = (login.connection, login.user_name());
                let number = logins.verify(login);
                logins.verified(now, number, user == "new");
                if user != "new" {
                    add_of(logins, device, address, &user);
                }
                break user;
            }
            now = logins.poll_timeout(now).unwrap();
        };
        let mut tried = BTreeSet::new();
        while tried.len() < 200 {
            tried.insert(attempt(&mut logins));
        }
        for device in 1000..1003 {
            add_of(&mut logins, device, address, "new");
            let turns = (1..).find(|_| attempt(&mut logins) == "new").unwrap();
            assert!(turns <= 2, "{turns} attempts until the turn of the new one");
        }
        // New names do not keep those with a wrong password from trying another one.
        for device in 2000..2100 {
            add_of(&mut logins, device, address, &format!("fresh{device}"));
        }
        let old = (0..40).filter(|_| attempt(&mut logins).starts_with("old")).count();
        assert!(old >= 9, "{old} attempts of 40");
    }

    #[test]
    fn an_address_pays_for_wrong_passwords_of_many_user_names() {
        let mut now = Instant::now();
        let mut logins = Logins::default();
        (0..200).for_each(|user| assert!(add_of(&mut logins, user, "10.0.0.1:1", &format!("u{user}"))));
        let try_all = |logins: &mut Logins, now| {
            let mut tried = 0;
            while let Some((_, number)) = start(logins, now) {
                tried += 1;
                logins.verified(now, number, false);
            }
            tried
        };
        assert_eq!(try_all(&mut logins, now), BURST_OF_ADDRESS + 1);
        assert!(add(&mut logins, 999, "10.0.0.2:1"));
        assert_eq!(try_all(&mut logins, now), 1, "another address");
        now = logins.poll_timeout(now).unwrap();
        assert_eq!(try_all(&mut logins, now), 1);
        assert_eq!(try_all(&mut logins, now + PRICE_OF_ADDRESS), 1);
    }

    fn of(connect: Connect) -> Login {
        Login {
            connection: 1,
            connect: Box::new(connect),
            address: payer("10.0.0.1:1"),
            arrived: Instant::now(),
        }
    }

    /// A login that takes so many bytes.
    fn sized(size: usize) -> Box<Connect> {
        let bare = || Connect::new(Version::V5, "c");
        let password = vec![0; size - of(bare()).size()];
        Box::new(Connect { password: Some(password.into()), ..bare() })
    }

    #[test]
    fn a_login_is_as_large_as_what_its_packet_carries() {
        let plain = || Connect { user_name: Some("u".into()), ..Connect::new(Version::V5, "c") };
        let more = |connect: Connect| of(connect).size() - of(plain()).size();
        let will = |topic: &str| {
            let (qos, payload) = (QoS::AtMostOnce, vec![0; 1000].into());
            Some(Will { qos, retain: false, properties: Properties::new(), topic: topic.into(), payload })
        };
        assert_eq!(more(Connect { will: will("topic"), ..plain() }), 1005);
        assert_eq!(more(Connect { password: Some(vec![0; 70].into()), ..plain() }), 70);
        assert_eq!(more(Connect { client_id: "client".into(), ..plain() }), 5);
        assert_eq!(more(Connect { user_name: Some("user".into()), ..plain() }), 6, "kept beside it as well");
        let all = Connect {
            password: Some(vec![0; 70].into()),
            client_id: "client".into(),
            will: will(""),
            ..plain()
        };
        assert_eq!(more(all), 1075);
    }

    #[test]
    fn what_waits_may_fill_the_limits_and_what_goes_makes_room() {
        let now = Instant::now();
        let mut logins = Logins::default();
        let half = WAITING_BYTES_OF_ADDRESS / 2;
        let add =
            |logins: &mut Logins, address: &str| logins.add(now, 1, sized(half), payer(address)).is_ok();
        for address in ["10.0.0.1:1", "10.0.0.2:1"] {
            assert!(add(&mut logins, address) && add(&mut logins, address) && !add(&mut logins, address));
        }
        assert!(!add(&mut logins, "10.0.0.3:1"), "all is in use");
        assert!(!logins.is_empty());
        let (_, first) = start(&mut logins, now).unwrap();
        assert!(add(&mut logins, "10.0.0.1:1") && !add(&mut logins, "10.0.0.1:1"));
        assert!(!add(&mut logins, "10.0.0.3:1"));
        logins.verified(now, first, true);
        let mut left = 0;
        while let Some((_, number)) = start(&mut logins, now) {
            logins.verified(now, number, true);
            left += 1;
        }
        assert_eq!(left, 4);
        assert!(logins.is_empty() && logins.waiting_bytes == 0);
    }

    #[test]
    fn an_address_has_the_room_that_it_gave_back_and_no_more() {
        let now = Instant::now();
        let mut logins = Logins::default();
        let address = payer("10.0.0.1:1");
        let add = |logins: &mut Logins, size| logins.add(now, 1, sized(size), address).is_ok();
        let half = WAITING_BYTES_OF_ADDRESS / 2;
        assert!(add(&mut logins, half) && add(&mut logins, half));
        assert!(start(&mut logins, now).is_some());
        assert!(add(&mut logins, half) && !add(&mut logins, 1000));
    }

    #[test]
    fn other_passwords_let_those_under_way_wait_first_and_take_no_turn_from_others() {
        let now = Instant::now();
        let mut logins = Logins::default();
        for (connection, user) in [(1, "ann"), (2, "bob"), (3, "ann"), (4, "cid"), (5, "dan")] {
            assert!(add_of(&mut logins, connection, "10.0.0.1:1", user));
        }
        let before = (start(&mut logins, now).unwrap().0, start(&mut logins, now).unwrap().0);
        assert_eq!(before, (1, 2));
        logins.restart();
        assert!((1..=2).all(|number| logins.verified(now, number, true).is_none()));
        let mut order = Vec::new();
        while let Some((connection, number)) = start(&mut logins, now) {
            logins.verified(now, number, true);
            order.push(connection);
        }
        assert_eq!(order, [1, 2, 4, 5, 3]);
        assert!(logins.is_empty() && logins.waiting_bytes == 0);
    }

    #[test]
    fn wrong_passwords_are_forgotten_after_a_time_and_the_oldest_before_that_where_there_are_many() {
        let now = Instant::now();
        let mut logins = Logins::default();
        let address = payer("10.0.0.1:1");
        add(&mut logins, 1, "10.0.0.1:1");
        let (_, number) = start(&mut logins, now).unwrap();
        logins.verified(now, number, false);
        assert!(!logins.debts.paid_at.is_empty() && !logins.debts_of_address.paid_at.is_empty());
        assert!(logins.next(now + PRICE).is_none());
        assert!(
            logins.debts.paid_at.is_empty() && logins.debts_of_address.paid_at.is_empty(),
            "it is paid for"
        );
        let user = "ann".into();
        assert!(logins.was_wrong(now + REMEMBERED - PAUSE, address, &user));
        assert!(!logins.was_wrong(now + REMEMBERED, address, &user));

        let mut logins = Logins::default();
        for sender in 0..MAX_REMEMBERED as u64 {
            logins.remember(now, (address, sender));
        }
        assert_eq!(logins.wrong.len(), MAX_REMEMBERED);
        let later = now + PAUSE;
        logins.remember(later, (address, u64::MAX));
        assert_eq!(logins.wrong.len(), MAX_REMEMBERED);
        assert!(logins.wrong.contains_key(&(address, u64::MAX)));
        logins.remember(now + REMEMBERED, (address, u64::MAX - 1));
        assert_eq!(logins.wrong.len(), 2, "the others are too old");
    }

    #[test]
    fn the_time_of_a_refusal_does_not_depend_on_the_time_that_hashes_took() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut logins = Logins::default();
        for user in ["ann", "bob", "unknown", "cid"] {
            let connect = Connect { user_name: Some(user.into()), ..Connect::new(Version::V5, "c") };
            assert!(logins.add(now, 1, Box::new(connect), payer("10.0.0.1:1")).is_ok());
        }
        let numbers = [start(&mut logins, now).unwrap().1, start(&mut logins, now).unwrap().1];
        let [first, second] = numbers.map(|number| logins.verified(now, number, false).unwrap());
        assert_eq!([first.refused_at(after(50)), second.refused_at(after(200))], [now + PAUSE; 2]);
        // The third one has waited for the hash of another user.
        let (_, third) = start(&mut logins, after(200)).unwrap();
        let third = logins.verified(after(250), third, false).unwrap();
        assert_eq!(third.refused_at(after(250)), now + PAUSE);
        let (_, last) = start(&mut logins, after(900)).unwrap();
        let last = logins.verified(after(1001), last, false).unwrap();
        assert_eq!(last.refused_at(after(1000)), now + PAUSE);
        assert_eq!(last.refused_at(after(1001)), now + 2 * PAUSE);
    }

    #[test]
    fn a_network_pays_together_and_the_machine_itself_apart() {
        let of = |address: &str| payer(&format!("[{address}]:1"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:3::4"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db9:1:2::1"));
        assert_eq!(of("::1"), IpAddr::V6(Ipv6Addr::LOCALHOST));
        assert_eq!(of("::ffff:10.0.0.1"), payer("10.0.0.1:9"));
        assert_eq!(payer("nothing that is an address"), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    }
}
