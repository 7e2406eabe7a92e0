//! The fifteen types of control packets (2.1.2).

use crate::Sender;

/// Type of a control packet, as in the high four bits of the fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of the standard")]
pub enum Kind {
    Connect = 1,
    ConnAck,
    Publish,
    PubAck,
    PubRec,
    PubRel,
    PubComp,
    Subscribe,
    SubAck,
    Unsubscribe,
    UnsubAck,
    PingReq,
    PingResp,
    Disconnect,
    Auth,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Connect,
        Self::ConnAck,
        Self::Publish,
        Self::PubAck,
        Self::PubRec,
        Self::PubRel,
        Self::PubComp,
        Self::Subscribe,
        Self::SubAck,
        Self::Unsubscribe,
        Self::UnsubAck,
        Self::PingReq,
        Self::PingResp,
        Self::Disconnect,
        Self::Auth,
    ];

    /// Extracts the kind from the first byte of a packet.
    pub fn of(first: u8) -> Option<Self> {
        Self::ALL.get(usize::from(first >> 4).wrapping_sub(1)).copied()
    }

    /// Flags required in every packet of this kind; not used for PUBLISH (2.1.3).
    pub(super) const fn flags(self) -> u8 {
        match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    pub(crate) const fn first(self) -> u8 {
        (self as u8) << 4 | self.flags()
    }

    /// Whether `sender` may send packets of this kind.
    pub(super) const fn sent_by(self, sender: Sender) -> bool {
        match self {
            Self::Connect | Self::Subscribe | Self::Unsubscribe | Self::PingReq => {
                matches!(sender, Sender::Client)
            }
            Self::ConnAck | Self::SubAck | Self::UnsubAck | Self::PingResp => {
                matches!(sender, Sender::Server)
            }
            _ => true,
        }
    }
}
