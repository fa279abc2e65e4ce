//! The thinnest thing that must work.

use serde_json::json;

use crate::support::{Daemon, Mode};

#[test]
fn a_command_is_run_and_answered() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let reply = daemon.bash("echo hello; echo oops >&2; exit 3");
        assert_eq!(reply.status, 200);
        let body = reply.json();
        assert_eq!(
            body["content"],
            "[stdout]\nhello\n\n[stderr]\noops\n\n[exit_code]\n3"
        );
        assert_eq!(body["is_error"], true);
        assert_eq!(body["exit_code"], 3);
        assert_eq!(body["background"], json!([]));
    }
}
