//! CRC-32C (Castagnoli, used by Pulsar) and CRC-32 (IEEE, used by TubeMQ), each behind one function, so that
//! an implementation can be replaced in one place.

/// Extends the checksum `crc` (initially 0) by `bytes`.
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Computes a CRC-32 as zlib does.
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
