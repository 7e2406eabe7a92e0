//! Connecting to one of several addresses (RFC 8305, "happy eyeballs").
//!
//! An address that does not answer, such as an IPv6 address behind a broken route, must not use up
//! the time of the others: the next attempt starts after [`STAGGER`], or as soon as one fails, and
//! the first to connect wins. Families alternate, beginning with that of the first address.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// Time after which the next attempt starts beside those under way.
const STAGGER: Duration = Duration::from_millis(250);

/// Connects with `dial` to one of `addresses`. If none can be connected to, returns the error of
/// the last to fail.
pub(super) async fn first_of<T, F>(
    addresses: Vec<SocketAddr>,
    dial: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = alternate(addresses).into_iter().peekable();
    let mut running: Vec<Pin<Box<F>>> = Vec::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        match waiting.next() {
            Some(address) => running.push(Box::pin(dial(address))),
            None if running.is_empty() => return Err(last),
            None => {}
        }
        let ended = poll_fn(|cx| {
            for i in 0..running.len() {
                if let Poll::Ready(result) = running[i].as_mut().poll(cx) {
                    drop(running.swap_remove(i));
                    return Poll::Ready(result);
                }
            }
            Poll::Pending
        });
        let ended = match waiting.peek() {
            Some(_) => tokio::time::timeout(STAGGER, ended).await.ok(),
            None => Some(ended.await),
        };
        match ended {
            Some(Ok(connected)) => return Ok(connected),
            Some(Err(error)) => last = error,
            None => {}
        }
    }
}

/// The addresses with alternating families.
fn alternate(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let six = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == six);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut mixed = Vec::new();
    loop {
        let before = mixed.len();
        mixed.extend(first.next());
        mixed.extend(second.next());
        if mixed.len() == before {
            return mixed;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::Instant;

    use super::*;

    fn addresses(hosts: &[&str]) -> Vec<SocketAddr> {
        hosts.iter().map(|host| SocketAddr::new(host.parse().unwrap(), 1883)).collect()
    }

    fn hosts(addresses: &[SocketAddr]) -> Vec<String> {
        addresses.iter().map(|address| address.ip().to_string()).collect()
    }

    /// An address that never answers, that refuses at once, or that accepts after 100 ms, by its
    /// last number.
    async fn dial(address: SocketAddr) -> io::Result<SocketAddr> {
        let text = address.ip().to_string();
        match text.chars().last() {
            Some('0') => std::future::pending().await,
            Some('1') => Err(io::ErrorKind::ConnectionRefused.into()),
            _ => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(address)
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_takes_no_time_from_the_others() {
        let start = Instant::now();
        let found = first_of(addresses(&["fd00::10", "fd00::20", "10.0.0.2"]), dial).await.unwrap();
        assert_eq!(hosts(&[found]), ["10.0.0.2"]);
        assert_eq!(start.elapsed().as_millis(), 350, "one stagger, as the families alternate");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_attempt_starts_when_one_fails() {
        let (start, tried) = (Instant::now(), RefCell::new(Vec::new()));
        let noted = |address| {
            tried.borrow_mut().push(address);
            dial(address)
        };
        let found = first_of(addresses(&["10.0.0.1", "10.0.1.1", "10.0.0.2", "10.0.0.3"]), noted).await;
        assert_eq!(hosts(&[found.unwrap()]), ["10.0.0.2"]);
        assert_eq!(hosts(&tried.borrow()), ["10.0.0.1", "10.0.1.1", "10.0.0.2"]);
        assert_eq!(start.elapsed().as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_fail_the_last_error_is_given() {
        let refused = first_of(addresses(&["10.0.0.1", "fd00::1"]), dial).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(first_of(Vec::new(), dial).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn families_alternate_from_that_of_the_first_address() {
        let mixed = alternate(addresses(&["fd00::1", "fd00::2", "fd00::3", "10.0.0.1"]));
        assert_eq!(hosts(&mixed), ["fd00::1", "10.0.0.1", "fd00::2", "fd00::3"]);
    }
}
