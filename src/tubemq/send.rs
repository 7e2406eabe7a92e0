//! The request that every message is, encoded by hand from what the producer has: no name, token or
//! payload is copied for it but into the output. Property tests compare it with prost's, byte for
//! byte.

use bytes::BytesMut;

use crate::command::{Encode, Method};
use crate::message::Packed;
use crate::pb;
use forebay_base::wire::{
    bytes_field_len, put_bytes_field, put_bytes_head, put_varint_field, signed, varint_field_len,
};

/// Fields of `SendMessageRequestP2B` and `AuthorizedInfo`.
const CLIENT: u32 = 1;
const TOPIC: u32 = 2;
const PARTITION: u32 = 3;
const DATA: u32 = 4;
const FLAG: u32 = 5;
const CHECKSUM: u32 = 6;
const ADDRESS: u32 = 7;
const TYPE: u32 = 8;
const TIME: u32 = 9;
const VISIT: u32 = 10;
const VISIT_TOKEN: u32 = 1;
const VISIT_CREDENTIALS: u32 = 2;

/// Checksum of a message whose broker shall not compare it: TCP has its own.
const UNCHECKED: i32 = -1;

/// The request of [`Method::SendMessage`]. Servers decode it as a [`pb::SendMessageRequestP2b`].
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// Client id at the broker.
    pub client_id: &'a str,
    /// Topic of the message.
    pub topic: &'a str,
    /// Number of the partition at the broker.
    pub partition: u32,
    /// The message.
    pub message: &'a Packed,
    /// IPv4 address of the client as a number.
    pub address: i32,
    /// Credentials at the broker.
    pub visit: &'a pb::AuthorizedInfo,
}

impl Send<'_> {
    fn visit_len(&self) -> usize {
        let credentials = self.visit.auth_authorized_token.as_ref();
        varint_field_len(VISIT_TOKEN, self.visit.visit_authorized_token as u64)
            + credentials.map_or(0, |text| bytes_field_len(VISIT_CREDENTIALS, text.len()))
    }
}

impl Encode for Send<'_> {
    fn method(&self) -> Method {
        Method::SendMessage
    }

    fn encoded_len(&self) -> usize {
        let text = |field, text: &Option<String>| {
            text.as_ref().map_or(0, |text: &String| bytes_field_len(field, text.len()))
        };
        bytes_field_len(CLIENT, self.client_id.len())
            + bytes_field_len(TOPIC, self.topic.len())
            + varint_field_len(PARTITION, signed(self.partition as i32))
            + bytes_field_len(DATA, self.message.data.len())
            + varint_field_len(FLAG, signed(self.message.flag))
            + varint_field_len(CHECKSUM, signed(UNCHECKED))
            + varint_field_len(ADDRESS, signed(self.address))
            + text(TYPE, &self.message.message_type)
            + text(TIME, &self.message.time)
            + bytes_field_len(VISIT, self.visit_len())
    }

    fn encode(&self, out: &mut BytesMut) {
        put_bytes_field(out, CLIENT, self.client_id.as_bytes());
        put_bytes_field(out, TOPIC, self.topic.as_bytes());
        put_varint_field(out, PARTITION, signed(self.partition as i32));
        put_bytes_field(out, DATA, &self.message.data);
        put_varint_field(out, FLAG, signed(self.message.flag));
        put_varint_field(out, CHECKSUM, signed(UNCHECKED));
        put_varint_field(out, ADDRESS, signed(self.address));
        if let Some(text) = &self.message.message_type {
            put_bytes_field(out, TYPE, text.as_bytes());
        }
        if let Some(text) = &self.message.time {
            put_bytes_field(out, TIME, text.as_bytes());
        }
        put_bytes_head(out, VISIT, self.visit_len());
        put_varint_field(out, VISIT_TOKEN, self.visit.visit_authorized_token as u64);
        if let Some(text) = &self.visit.auth_authorized_token {
            put_bytes_field(out, VISIT_CREDENTIALS, text.as_bytes());
        }
    }
}
