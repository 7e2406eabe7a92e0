//! Admission of connections: limits over all listeners, for each of them, and for each address.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::rc::Rc;

use forebay_base::random::HashMap;

/// Limits on connections. A protocol cannot take all of them, nor can one address take all of a
/// protocol's, so that a flood of connections to one port does not close the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    /// Over all protocols.
    total: usize,
    /// Of each protocol: three quarters, if there are several.
    protocol: usize,
    /// From one address to a protocol, other than that of this machine: three quarters of that.
    address: usize,
}

impl ConnectionLimits {
    /// Shares of `total` connections of `protocols` protocols.
    pub(super) fn new(total: usize, protocols: usize) -> Self {
        let most = |of: usize| of - of / 4;
        let protocol = if protocols > 1 { most(total) } else { total };
        Self { total, protocol, address: most(protocol) }
    }
}

/// The connections of one protocol, which count together with those of the others.
#[derive(Debug)]
pub(super) struct Admission {
    limits: ConnectionLimits,
    /// Connections of all protocols.
    all: Rc<Cell<usize>>,
    /// Connections of this one.
    own: Cell<usize>,
    /// Those by address.
    addresses: RefCell<HashMap<IpAddr, usize>>,
    /// Connections that were refused because of a limit.
    refused: Cell<u64>,
}

impl Admission {
    /// Of a protocol that counts its connections in `all`, too.
    pub(super) fn new(limits: ConnectionLimits, all: Rc<Cell<usize>>) -> Self {
        Self { limits, all, own: Cell::default(), addresses: RefCell::default(), refused: Cell::default() }
    }

    /// Whether there is room for a connection from `address`. If not, it is counted as refused.
    pub(super) fn admits(&self, address: IpAddr) -> bool {
        // Everything on this machine has the same address: its programs do not shut each other out.
        let local = address.to_canonical().is_loopback();
        let of_address =
            self.addresses.borrow().get(&address).copied().filter(|_| !local).unwrap_or_default();
        let room = self.all.get() < self.limits.total
            && self.own.get() < self.limits.protocol
            && of_address < self.limits.address;
        if !room {
            self.refused.set(self.refused.get() + 1);
        }
        room
    }

    /// Counts a connection.
    pub(super) fn enter(&self, address: IpAddr) {
        self.all.set(self.all.get() + 1);
        self.own.set(self.own.get() + 1);
        *self.addresses.borrow_mut().entry(address).or_default() += 1;
    }

    /// Counts the end of a connection.
    pub(super) fn leave(&self, address: IpAddr) {
        self.all.set(self.all.get() - 1);
        self.own.set(self.own.get() - 1);
        if let Entry::Occupied(mut count) = self.addresses.borrow_mut().entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Number of connections.
    pub(super) fn connections(&self) -> usize {
        self.own.get()
    }

    /// Number of connections that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }
}
