//! LZ4, ZLIB, ZSTD and SNAPPY in the framing that Pulsar uses. Output is always bounded:
//! [`decompress`] never produces, nor allocates, more than the announced size.
//!
//! * LZ4 and SNAPPY are raw blocks without length prefix or framing.
//! * ZLIB is RFC 1950. The Java client ends it with a sync flush and no checksum, so inflation
//!   stops once the expected size is reached instead of requiring the end of the stream.
//! * ZSTD is one standard frame.

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};

/// Compression of a payload. The numbers are those of Pulsar's `CompressionType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Uncompressed.
    #[default]
    None = 0,
    /// LZ4 block.
    Lz4 = 1,
    /// Zlib, RFC 1950.
    Zlib = 2,
    /// Zstandard, RFC 8878, level 3.
    Zstd = 3,
    /// Snappy block.
    Snappy = 4,
}

impl Compression {
    /// Looks up a compression by its number in Pulsar.
    pub fn from_number(number: i32) -> Option<Self> {
        [Self::None, Self::Lz4, Self::Zlib, Self::Zstd, Self::Snappy]
            .into_iter()
            .find(|kind| *kind as i32 == number)
    }
}

/// Compresses `input`.
pub fn compress(kind: Compression, input: &[u8]) -> Result<Bytes> {
    let out = match kind {
        Compression::None => return Ok(Bytes::copy_from_slice(input)),
        Compression::Lz4 => lz4_flex::block::compress(input),
        Compression::Zlib => {
            use std::io::Write as _;
            let mut encoder = flate2::write::ZlibEncoder::new(
                Vec::with_capacity(input.len() / 2 + 64),
                flate2::Compression::default(),
            );
            encoder.write_all(input)?;
            encoder.finish()?
        }
        Compression::Zstd => zstd::bulk::compress(input, 3)?,
        Compression::Snappy => snap::raw::Encoder::new().compress_vec(input).map_err(|e| corrupt(kind, e))?,
    };
    Ok(out.into())
}

/// Decompresses `input` into exactly `size` bytes, which must not exceed `limit`.
pub fn decompress(kind: Compression, input: &Bytes, size: usize, limit: usize) -> Result<Bytes> {
    if kind == Compression::None {
        return Ok(input.clone());
    }
    if size > limit {
        return Err(Error::new(
            ErrorKind::Compression,
            format!("the payload claims an uncompressed size of {size} bytes; the limit is {limit}"),
        ));
    }
    let out = match kind {
        Compression::None => unreachable!("returned above"),
        Compression::Lz4 => {
            bounded_claim(kind, input.len(), size, 256)?;
            lz4_flex::block::decompress(input, size).map_err(|e| corrupt(kind, e))?
        }
        Compression::Zlib => inflate(input, size)?,
        Compression::Zstd => {
            use std::io::Read as _;
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(&input[..]).map_err(|e| corrupt(kind, e))?;
            // The frame announces a window that is allocated immediately, so it is capped at what
            // the limit requires.
            decoder.window_log_max(window_log(limit)).map_err(|e| corrupt(kind, e))?;
            let mut out = Vec::with_capacity(size.min(input.len().saturating_mul(8).max(4096)));
            decoder.take(size as u64 + 1).read_to_end(&mut out).map_err(|e| corrupt(kind, e))?;
            out
        }
        Compression::Snappy => {
            let claimed = snap::raw::decompress_len(input).map_err(|e| corrupt(kind, e))?;
            if claimed != size {
                return Err(corrupt(
                    kind,
                    format!("the block claims {claimed} uncompressed bytes, the message {size}"),
                ));
            }
            bounded_claim(kind, input.len(), size, 64)?;
            snap::raw::Decoder::new().decompress_vec(input).map_err(|e| corrupt(kind, e))?
        }
    };
    if out.len() != size {
        return Err(corrupt(
            kind,
            format!("the data decompress to {} bytes, not to the {size} announced", out.len()),
        ));
    }
    Ok(out.into())
}

/// Base-2 logarithm of the smallest window that holds `limit` bytes; at least 8 MiB (RFC 8878,
/// 3.1.1.1.2).
fn window_log(limit: usize) -> u32 {
    limit.max(8 << 20).next_power_of_two().ilog2().min(27)
}

/// Rejects claims that the format cannot fulfil. Block formats need their whole output buffer up
/// front, and no format expands by more than `ratio`, so a larger claim is false and must not
/// become an allocation.
fn bounded_claim(kind: Compression, input: usize, size: usize, ratio: usize) -> Result<()> {
    if size > input.saturating_mul(ratio).saturating_add(64) {
        return Err(corrupt(kind, format!("{input} compressed bytes cannot expand to {size}")));
    }
    Ok(())
}

fn inflate(input: &[u8], size: usize) -> Result<Vec<u8>> {
    let mut inflater = flate2::Decompress::new(true);
    let mut out = Vec::with_capacity(size.min(input.len().saturating_mul(8)).max(64));
    loop {
        let consumed = inflater.total_in() as usize;
        let produced = out.len();
        let status = inflater
            .decompress_vec(&input[consumed..], &mut out, flate2::FlushDecompress::Sync)
            .map_err(|e| corrupt(Compression::Zlib, e))?;
        if out.len() >= size || status == flate2::Status::StreamEnd {
            return Ok(out);
        }
        if out.len() == out.capacity() {
            out.reserve_exact(out.len().min(size + 1 - out.len()));
        } else if out.len() == produced && inflater.total_in() as usize == consumed {
            return Ok(out);
        }
    }
}

fn corrupt(kind: Compression, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Compression, format!("{kind:?} data are corrupt: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [Compression; 5] =
        [Compression::None, Compression::Lz4, Compression::Zlib, Compression::Zstd, Compression::Snappy];

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(input in proptest::collection::vec(0_u8..4, 0..5000)) {
            for kind in KINDS {
                let packed = compress(kind, &input).unwrap();
                let back = decompress(kind, &packed, input.len(), 5000).unwrap();
                prop_assert_eq!(&back[..], &input[..]);
            }
        }

        #[test]
        fn garbage_is_an_error_or_the_announced_size(
            input in proptest::collection::vec(any::<u8>(), 0..300), size in 0_usize..100_000,
        ) {
            for kind in KINDS.into_iter().skip(1) {
                if let Ok(out) = decompress(kind, &Bytes::from(input.clone()), size, 100_000) {
                    prop_assert_eq!(out.len(), size);
                }
            }
        }
    }

    #[test]
    fn a_zstd_window_over_the_limit_is_refused_before_it_is_allocated() {
        // Header of a frame with a window of 128 MiB, and an empty last block.
        let frame = Bytes::from_static(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, (27 - 10) << 3, 1, 0, 0]);
        let error = decompress(Compression::Zstd, &frame, 0, 5 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Compression);
        assert!(decompress(Compression::Zstd, &frame, 0, 128 << 20).is_ok());
    }

    #[test]
    fn a_lying_size_is_refused() {
        let input = vec![7_u8; 10_000];
        for kind in KINDS.into_iter().skip(1) {
            let packed = compress(kind, &input).unwrap();
            for size in [0, 1, 9_999, 10_001, 5_000_000] {
                assert!(decompress(kind, &packed, size, 5 << 20).is_err(), "{kind:?} {size}");
            }
            assert!(decompress(kind, &packed, 10_000, 9_999).is_err(), "{kind:?} over the limit");
        }
    }

    #[test]
    fn zlib_without_an_end_is_whole_as_java_sends_it() {
        let input = b"hello hello hello hello".repeat(20);
        let mut deflater = flate2::Compress::new(flate2::Compression::default(), true);
        let mut packed = Vec::with_capacity(1000);
        deflater.compress_vec(&input, &mut packed, flate2::FlushCompress::Sync).unwrap();
        assert_eq!(packed[packed.len() - 4..], [0, 0, 0xff, 0xff]);
        let out = decompress(Compression::Zlib, &packed.into(), input.len(), 10_000).unwrap();
        assert_eq!(out, input);
    }
}
