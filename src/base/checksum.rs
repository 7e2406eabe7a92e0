//! CRC-32C (Castagnoli, used by Pulsar) and CRC-32 (IEEE, used by TubeMQ), each behind one
//! function, so that an implementation can be replaced in one place.

/// Extends the checksum `crc` (initially 0) by `bytes`.
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Computes a CRC-32 as zlib does.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_published_check_values() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(super::crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(super::crc32c(super::crc32c(0, b"1234"), b"56789"), 0xe306_9283);
    }

    /// Either implementation takes other paths for other lengths.
    #[test]
    fn a_crc32_of_any_length_is_that_of_zlib() {
        let bytes: Vec<u8> = (0..5_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in (0..300).chain([1_000, 1_023, 4_096, 5_000]) {
            let mut zlib = flate2::Crc::new();
            zlib.update(&bytes[..length]);
            assert_eq!(super::crc32(&bytes[..length]), zlib.sum(), "{length} bytes");
        }
    }
}
