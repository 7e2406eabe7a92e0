//! The spelling of a header. hyper writes the names of headers in small letters, since case means
//! nothing in HTTP; but Pulsar's Java client looks for `X-Pulsar-PROPERTY` in exactly these
//! letters, and shows no properties without it.
//!
//! An answer has the header by a random name of the same length, chosen at the start and never
//! sent, and [`Spelled`] writes the right one in its place. So nothing in a body can be mistaken
//! for it.

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use hyper::header::HeaderName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use forebay_base::random;

/// The name as it is written.
pub(crate) const PROPERTY: &str = "X-Pulsar-PROPERTY";
/// Bytes in which the name is looked for. No head of an answer is longer.
const WINDOW: usize = 256 << 10;

/// The name that stands for [`PROPERTY`] in an answer.
pub(super) fn stand_in() -> &'static HeaderName {
    static NAME: OnceLock<HeaderName> = OnceLock::new();
    NAME.get_or_init(|| {
        let letter = |_| (b'a' + (random::bits() % 26) as u8) as char;
        let name: String = (0..PROPERTY.len()).map(letter).collect();
        HeaderName::try_from(name).expect("letters are a name")
    })
}

/// A stream that writes [`PROPERTY`] where it is given [`stand_in`].
pub(super) struct Spelled<S> {
    stream: S,
    /// Bytes that were written of a name that did not fit.
    written: usize,
}

impl<S> Spelled<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, written: 0 }
    }
}

/// Place of the name.
fn find(buf: &[u8]) -> Option<usize> {
    let name = stand_in().as_str().as_bytes();
    buf.windows(name.len()).position(|part| part == name)
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Spelled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let window = &buf[..buf.len().min(WINDOW)];
        let found = find(window);
        if self.written > 0 || found == Some(0) {
            let rest = &PROPERTY.as_bytes()[self.written..];
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            self.written = (self.written + count) % PROPERTY.len();
            return Poll::Ready(Ok(count));
        }
        let before = match found {
            Some(place) => place,
            // It may begin in the window and end behind it.
            None if window.len() < buf.len() => WINDOW - PROPERTY.len(),
            None => buf.len(),
        };
        Pin::new(&mut self.stream).poll_write(cx, &buf[..before])
    }

    /// The head of an answer is in the first slice. Bodies are passed on as they are: hyper would
    /// copy them if it could not.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        if self.written > 0 || first.len() <= WINDOW && find(first).is_some() {
            return self.poll_write(cx, first);
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Spelled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Takes a few bytes at a time, of a slice or of several.
    struct Slow(Vec<u8>, usize);

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let count = buf.len().min(self.1);
            self.0.extend_from_slice(&buf[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bufs: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = bufs.iter().flat_map(|slice| slice.iter().copied()).take(self.1).collect();
            self.0.extend_from_slice(&all);
            Poll::Ready(Ok(all.len()))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn the_name_is_spelled_right_however_few_bytes_the_peer_takes_at_a_time() {
        let given = stand_in().as_str();
        let short = |name: &str| format!("{name}: a\r\n{name}{name}: b");
        let long = |name: &str| {
            let before = "x".repeat(WINDOW - 9);
            format!("{before}{name}: a\r\n{before}{name}")
        };
        let few = [1, 2, 7, 16, 17, 18, 100].map(|most| (most, short(given), short(PROPERTY)));
        let many = [10_000, 1 << 20].map(|most| (most, long(given), long(PROPERTY)));
        for (most, text, expected) in few.into_iter().chain(many) {
            let mut stream = Spelled::new(Slow(Vec::new(), most));
            stream.write_all(text.as_bytes()).await.unwrap();
            assert!(stream.stream.0 == expected.as_bytes(), "{most} bytes at a time");
        }
    }

    #[tokio::test]
    async fn bodies_are_passed_on_as_slices_behind_their_head() {
        let (head, body) = (format!("{}: a\r\n\r\n", stand_in()), "y".repeat(300));
        for most in [1, 16, 20, 1_000] {
            let mut stream = Spelled::new(Slow(Vec::new(), most));
            assert!(stream.is_write_vectored());
            let mut left = bytes::Buf::chain(head.as_bytes(), body.as_bytes());
            stream.write_all_buf(&mut left).await.unwrap();
            assert_eq!(String::from_utf8(stream.stream.0).unwrap(), format!("{PROPERTY}: a\r\n\r\n{body}"));
        }
    }
}
