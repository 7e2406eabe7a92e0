//! Errors of connections to a port where something else listens, which say what it is and what to
//! write instead.

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::first_bytes::PeerProtocol;

/// Checks the first bytes of the peer at `address`, which should speak `own`.
pub(super) fn check(own: PeerProtocol, address: &str, first: &[u8]) -> Result<()> {
    let Some(protocol) = PeerProtocol::of(first).filter(|protocol| *protocol != own) else { return Ok(()) };
    let instead = match (own, protocol) {
        (PeerProtocol::Pulsar, PeerProtocol::Http) => format!(": for lookups over HTTP use http://{address}"),
        (PeerProtocol::Pulsar, PeerProtocol::Tls) => format!(": use pulsar+ssl://{address}"),
        (PeerProtocol::Mqtt, PeerProtocol::Http) => format!(": for MQTT over WebSocket use ws://{address}"),
        (PeerProtocol::Mqtt, PeerProtocol::Tls) => format!(": use mqtts://{address}"),
        (PeerProtocol::TubeMq, PeerProtocol::Tls) => format!(": use tubemq+ssl://{address}"),
        (_, PeerProtocol::Pulsar) => format!(": use pulsar://{address}"),
        (_, PeerProtocol::TubeMq) => format!(": use tubemq://{address}"),
        _ => String::new(),
    };
    Err(Error::protocol(format!("{address} speaks {protocol}, not {own}{instead}")))
}

/// The error of a connection to `address` that has ended before the peer said anything in `own`.
pub(super) fn unanswered(own: PeerProtocol, address: &str, error: Error) -> Error {
    if error.kind() != ErrorKind::Disconnected {
        return error;
    }
    let why = error.message();
    Error::new(ErrorKind::Disconnected, format!("{address} did not answer: {why}. Does it speak {own}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_there_and_what_to_write() {
        let told = |own, first: &[u8]| check(own, "b:1", first).unwrap_err().message().to_owned();
        let (http, tls) = (b"HTTP/1.1 400 Bad Request\r\n", b"\x15\x03\x03\0\x02\x02\x46");
        assert_eq!(
            told(PeerProtocol::Pulsar, http),
            "b:1 speaks HTTP, not Pulsar: for lookups over HTTP use http://b:1"
        );
        assert_eq!(told(PeerProtocol::Pulsar, tls), "b:1 speaks TLS, not Pulsar: use pulsar+ssl://b:1");
        assert_eq!(
            told(PeerProtocol::Mqtt, http),
            "b:1 speaks HTTP, not MQTT: for MQTT over WebSocket use ws://b:1"
        );
        assert_eq!(told(PeerProtocol::Mqtt, tls), "b:1 speaks TLS, not MQTT: use mqtts://b:1");
        assert_eq!(told(PeerProtocol::TubeMq, http), "b:1 speaks HTTP, not TubeMQ");
        assert_eq!(told(PeerProtocol::TubeMq, tls), "b:1 speaks TLS, not TubeMQ: use tubemq+ssl://b:1");
        assert_eq!(told(PeerProtocol::TubeMq, b"SSH-2.0-x\r\n"), "b:1 speaks SSH, not TubeMQ");
        assert!(check(PeerProtocol::Mqtt, "b:1", b"\x20\x02\0\0").is_ok());
    }

    #[test]
    fn only_a_connection_that_has_ended_asks_what_listens_there() {
        let of = |kind| unanswered(PeerProtocol::Mqtt, "b:1", Error::new(kind, "x"));
        assert_eq!(of(ErrorKind::Disconnected).message(), "b:1 did not answer: x. Does it speak MQTT?");
        assert_eq!(of(ErrorKind::Authentication).message(), "x");
    }
}
