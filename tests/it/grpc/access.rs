//! The same people as over HTTP.

use serde_json::json;
use shelly_executor::grpc::proto::{ListToolsRequest, ListToolsResponse};
use tonic::{Code, Request, Status};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::{bash, bash_only};
use crate::api::access::{by, start, user};
use crate::support::Daemon;
use crate::support::grpc::{Grpc, problem_of};

const CALLER: u32 = 64_231;
const OBSERVER: u32 = 64_232;
const NOBODY: u32 = 64_233;

fn connect_as(daemon: &Daemon, uid: u32) -> Grpc {
    by(user(uid), || Grpc::open(daemon.socket()))
}

fn tools(grpc: &Grpc) -> Result<ListToolsResponse, Status> {
    let path = "/shelly.executor.v1.ToolExecutor/ListTools";
    grpc.unary(path, Request::new(ListToolsRequest {}))
}

#[test]
fn who_may_not_call_over_http_may_not_here() {
    let toml = format!(
        "[access]\ncallers = [\"user:{CALLER}\"]\nobservers = [\"user:{OBSERVER}\"]\nadmins = []"
    );
    let Some(daemon) = start(&toml) else { return };
    let caller = connect_as(&daemon, CALLER);
    let answer = caller.execute(bash_only("true")).expect("an answer");
    assert_eq!(daemon.ended(&answer.execution_id)["caller_uid"], CALLER);
    assert!(tools(&caller).is_ok());
    for uid in [OBSERVER, NOBODY] {
        let grpc = connect_as(&daemon, uid);
        let refused = [
            grpc.execute(bash_only("true")).expect_err("not admitted"),
            grpc.stream(bash_only("true")).err().expect("not admitted"),
            tools(&grpc).expect_err("not admitted"),
        ];
        for status in refused {
            assert_eq!(status.code(), Code::PermissionDenied);
            let problem = problem_of(&status);
            assert_eq!(
                (problem.code.as_str(), problem.http_status),
                ("access_denied", 403)
            );
            assert!(problem.detail.contains(&uid.to_string()), "{problem:?}");
        }
        // Whoever can connect may ask how it is.
        let path = "/grpc.health.v1.Health/Check";
        let health: Result<HealthCheckResponse, _> =
            grpc.unary(path, Request::new(HealthCheckRequest::default()));
        assert!(health.is_ok());
    }
}

#[test]
fn a_token_that_is_none_is_refused() {
    let daemon = Daemon::start();
    let mut request = Request::new(bash("true", &json!({"id": "toolu_01A"})));
    request
        .metadata_mut()
        .insert("authorization", "Bearer none".parse().expect("ASCII"));
    let status = Grpc::open(daemon.socket())
        .execute(request)
        .expect_err("no token");
    assert_eq!(status.code(), Code::Unauthenticated);
    let problem = problem_of(&status);
    assert_eq!(problem.code, "bad_capability");
    assert_eq!(problem.tool_use_id.as_deref(), Some("toolu_01A"));
}
