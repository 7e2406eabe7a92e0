//! Checksums of rows: of the broker's store and of an MQTT client's outbox.

use rusqlite::types::ValueRef;

use forebay_base::checksum::crc32c;

/// CRC-32C of values of a row, the key first. `name` is that of the table, and of the checksum's
/// column unless it is `sum`: the values of one row never fit another table.
pub fn sum_of(name: &str, values: &[ValueRef<'_>]) -> u32 {
    let mut sum = crc32c(0, name.as_bytes());
    for value in values {
        let (kind, number, bytes): (u8, i64, &[u8]) = match value {
            ValueRef::Null => (0, 0, &[]),
            ValueRef::Integer(number) => (1, *number, &[]),
            ValueRef::Real(number) => (2, number.to_bits() as i64, &[]),
            ValueRef::Text(text) => (3, text.len() as i64, text),
            ValueRef::Blob(blob) => (4, blob.len() as i64, blob),
        };
        let mut head = [kind; 9];
        head[1..].copy_from_slice(&number.to_le_bytes());
        sum = crc32c(crc32c(sum, &head), bytes);
    }
    sum
}
