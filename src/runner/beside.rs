/// Does `work` on a thread that may block. A panic comes out of it as it does elsewhere.
pub fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> {
    // Not inside of the future, which would then hold `work`: that may be large, and callers' futures hold this one.
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
