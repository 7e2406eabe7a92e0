//! A byte stream of any version and side, cut in two at a position that the input chooses: the same
//! packets as in one piece, and each decoded packet encodes to as many bytes as announced, which
//! decode to the same.

use bytes::BytesMut;
use forebay_mqtt::frame::Decoder;
use forebay_mqtt::topic::{Filter, check_name};
use forebay_mqtt::{Packet, Reason, Sender, Version};
use forebay_base::transmit::Transmit;

const MAX: usize = 1 << 16;

/// The packets, and why the stream ended early. A CONNECT says what follows it, as on a server.
fn packets(
    pieces: &[&[u8]],
    mut version: Version,
    sender: Sender,
) -> (Vec<(Version, Packet)>, Option<Reason>) {
    let (mut input, mut packets) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let packet = match Decoder::new(MAX).next(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) => Packet::decode(&frame, version, sender),
                Err(violation) => Err(violation),
            };
            match packet {
                Ok(packet) => {
                    if let Packet::Connect(connect) = &packet {
                        version = connect.version;
                    }
                    packets.push((version, packet));
                }
                Err(violation) => return (packets, Some(violation.reason)),
            }
        }
    }
    (packets, None)
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let Some((&[which, cut], data)) = data.split_first_chunk::<2>() else { return };
    let version = [Version::V3_1, Version::V3_1_1, Version::V5][usize::from(which % 3)];
    let sender = if which & 0x80 == 0 { Sender::Client } else { Sender::Server };
    let (head, tail) = data.split_at(data.len() * usize::from(cut) / 256);
    let whole = packets(&[data], version, sender);
    assert_eq!(packets(&[head, tail], version, sender), whole);
    for (version, packet) in whole.0 {
        let mut out = Transmit::default();
        packet.encode(version, &mut out).expect("it came in a packet, so it fits into one");
        assert_eq!(out.len(), packet.encoded_len(version));
        let bytes = out.take();
        assert_eq!(packets(&[&bytes], version, sender), (vec![(version, packet.clone())], None));
        match packet {
            Packet::Publish(publish) if !publish.topic.is_empty() => {
                check_name(&publish.topic).expect("it was checked");
            }
            Packet::Subscribe(subscribe) => {
                for (filter, _) in &subscribe.filters {
                    // A bad one is refused in SUBACK, not with the packet.
                    let Ok(filter) = Filter::parse(filter.clone()) else { continue };
                    assert!(!filter.pattern().starts_with(['#', '+']) || !filter.matches("$SYS/a"));
                }
            }
            _ => {}
        }
    }
}
