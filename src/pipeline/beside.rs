//! What would keep the event loop from everything else for too long.

/// From how many bytes on a text is not handled on the event loop: one that is no text at all, and so made of
/// escapes, takes some 50 ms for as much. Beyond what an answer holds by default.
pub(super) const LONG: usize = 2 << 20;

/// Does `work` on a thread that may block. A panic comes out of it as it does elsewhere.
pub fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> {
    // Outside of the future, which is a part of its caller's: `work` may be large.
    let done = tokio::task::spawn_blocking(work);
    async {
        match done.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // It was never begun: the event loop is going, and with it whoever waits for this.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}
