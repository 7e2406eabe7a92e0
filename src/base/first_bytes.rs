//! The protocol of a peer, by the first bytes of its connection: errors of a wrong port say what
//! listens there.

use std::fmt;

/// A protocol that is met at the ports of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerProtocol {
    /// HTTP/1, or the preface of HTTP/2.
    Http,
    /// A record of TLS.
    Tls,
    /// A CONNECT packet of MQTT.
    Mqtt,
    /// A frame of Apache Pulsar.
    Pulsar,
    /// A frame of Apache InLong TubeMQ.
    TubeMq,
    /// SSH.
    Ssh,
}

impl PeerProtocol {
    /// The protocol that `bytes` are the beginning of. No bytes belong to two of them.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        const METHODS: [&[u8]; 8] =
            [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PRI "];
        let begins = |with: &[u8]| bytes.starts_with(with);
        match bytes {
            // Handshake or alert, and the version 3.0 to 3.4 (RFC 8446, 5.1).
            [0x15 | 0x16, 3, 0..=4, ..] => Some(Self::Tls),
            [0xff, 0x7f, 0xf4, 0xfe, ..] => Some(Self::TubeMq),
            _ if begins(b"HTTP/") || METHODS.iter().any(|method| begins(method)) => Some(Self::Http),
            _ if begins(b"SSH-") => Some(Self::Ssh),
            // The name of the protocol is behind the remaining length, of one to four bytes.
            [0x10, rest @ ..] => {
                let name = rest
                    .iter()
                    .take(4)
                    .position(|byte| byte & 0x80 == 0)
                    .map_or(&[][..], |at| &rest[at + 1..]);
                let is_mqtt = name.starts_with(b"\0\x04MQTT") || name.starts_with(b"\0\x06MQIsdp");
                is_mqtt.then_some(Self::Mqtt)
            }
            // The sizes of the frame and of its command, and the command's first field, its type.
            [a, b, c, d, e, f, g, h, 0x08, ..] => {
                let (frame, command) =
                    (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]));
                (command > 1 && frame >= command.saturating_add(4) && frame < 1 << 30).then_some(Self::Pulsar)
            }
            _ => None,
        }
    }
}

impl fmt::Display for PeerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Tls => "TLS",
            Self::Mqtt => "MQTT",
            Self::Pulsar => "Pulsar",
            Self::TubeMq => "TubeMQ",
            Self::Ssh => "SSH",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_known_by_their_first_bytes() {
        let known: [(&[u8], PeerProtocol); 11] = [
            (b"HTTP/1.1 400 Bad Request\r\n", PeerProtocol::Http),
            (b"GET /mqtt HTTP/1.1\r\n", PeerProtocol::Http),
            (b"PRI * HTTP/2.0\r\n", PeerProtocol::Http),
            (b"\x16\x03\x01\x02\0\x01", PeerProtocol::Tls),
            (b"\x15\x03\x03\0\x02\x02\x46", PeerProtocol::Tls),
            (b"\x10\x10\0\x04MQTT\x05\x02\0\x3c", PeerProtocol::Mqtt),
            (b"\x10\x80\x01\0\x06MQIsdp\x03\x02\0\x3c", PeerProtocol::Mqtt),
            // CONNECT of the official client of Pulsar 4.0, and of TubeMQ's.
            (b"\0\0\0\x21\0\0\0\x1d\x08\x02\x12\x19", PeerProtocol::Pulsar),
            (b"\xff\x7f\xf4\xfe\0\0\0\x01", PeerProtocol::TubeMq),
            (b"SSH-2.0-OpenSSH_9.6\r\n", PeerProtocol::Ssh),
            (b"\0\x50\0\0\0\0\0\x10\x08\x06", PeerProtocol::Pulsar),
        ];
        for (bytes, protocol) in known {
            assert_eq!(PeerProtocol::of(bytes), Some(protocol), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let unknown: [&[u8]; 8] = [
            b"",
            b"H",
            b"\x16\x03",
            // A CONNACK.
            b"\x20\x02\0\0",
            b"\x10\x0c\0\x04HTTP",
            b"\x10\x80\x80\x80\x80\x01\0\x04MQTT",
            // A command that is longer than its frame.
            b"\0\0\0\x10\0\0\0\x0d\x08\x02",
            b"\0\0\0\0\0\0\0\0\0",
        ];
        for bytes in unknown {
            assert_eq!(PeerProtocol::of(bytes), None, "{}", bytes.escape_ascii());
        }
    }
}
