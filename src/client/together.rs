//! Futures that run side by side.

use tokio::task::JoinSet;

use forebay_base::error::{Error, ErrorKind, Result};

/// Runs futures side by side, each in a task, and returns their results in order. Dropping it ends
/// those that still run.
pub(super) async fn together<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = Result<T>> + Send + 'static>,
) -> Vec<Result<T>> {
    let (mut tasks, mut results) = (JoinSet::new(), Vec::new());
    for future in futures {
        let index = results.len();
        results.push(Err(Error::new(ErrorKind::Cancelled, "the engine has ended")));
        tasks.spawn(async move { (index, future.await) });
    }
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok((index, result)) => results[index] = result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn results_come_in_order_and_no_future_waits_for_another_to_end() {
        let all_run = Arc::new(Barrier::new(3));
        let numbered = |number: u64| {
            let all_run = Arc::clone(&all_run);
            async move {
                all_run.wait().await;
                if number == 1 { Err(Error::new(ErrorKind::Timeout, "late")) } else { Ok(number) }
            }
        };
        let results = together((0..3).map(numbered)).await;
        let results: Vec<_> =
            results.into_iter().map(|result| result.map_err(|error| error.kind())).collect();
        assert_eq!(results, [Ok(0), Err(ErrorKind::Timeout), Ok(2)]);
    }
}
