//! CRC-32C (Castagnoli, of Pulsar) and CRC-32 (IEEE, of TubeMQ), each behind one function so that the
//! implementation can change in one place.

/// Extends `crc` (0 to begin with) by `bytes`.
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// CRC-32 as zlib has it.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_published_check_values() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(super::crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(super::crc32c(super::crc32c(0, b"1234"), b"56789"), 0xe306_9283);
    }
}
