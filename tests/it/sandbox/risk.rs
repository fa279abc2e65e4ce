//! Who says what is trusted, and what becomes of it.

use serde_json::json;

use super::is_there;
use crate::support::Daemon;

/// The daemon, which trusts nothing that its policy does not know.
const POLICY: &str = "default = \"untrusted\"\nallow = [\"bash(command:id *)\", \"read_file\"]\n";

#[test]
fn what_no_rule_knows_runs_in_the_sandbox_and_is_recorded_so() {
    if !is_there() {
        return;
    }
    let daemon = Daemon::start_under(POLICY, "");
    for (command, user, risk) in [
        ("id -un", "root", "trusted"),
        ("id -un; true", "nobody", "untrusted"),
        ("id -un || true", "nobody", "untrusted"),
    ] {
        let reply = daemon.bash(command);
        let body = reply.json();
        assert_eq!(reply.stdout(), user, "{command}: {body}");
        assert_eq!(body["risk_level"], risk, "{command}: {body}");
        assert_eq!(
            body["sandbox"].is_null(),
            risk == "trusted",
            "{command}: {body}"
        );
        let id = body["execution_id"].as_str().expect("an id");
        let record = daemon.get(&format!("/executions/{id}")).json();
        assert_eq!(record["result"]["risk_level"], risk, "{record}");
        assert_eq!(record["result"]["sandbox"], body["sandbox"], "{record}");
    }
    let explain = |command: &str| {
        let call = json!({"name": "bash", "input": {"command": command}}).to_string();
        let path = "/permissions/explain";
        daemon
            .connect()
            .request("POST", path, &[], call.as_bytes())
            .json()
    };
    assert_eq!(explain("id -un")["risk_level"], "trusted");
    assert_eq!(explain("make")["risk_level"], "untrusted");
    assert_eq!(explain("make")["verdict"], "allow");
}

#[test]
fn what_is_said_beforehand_of_risk_is_what_becomes_of_it() {
    let toml = "[tools]\nuntrusted = [\"execute_command\"]\n";
    let daemon = Daemon::start_under("default = \"allow\"\n", toml);
    let explain = |call: serde_json::Value| {
        let body = call.to_string();
        let path = "/permissions/explain";
        let answer = daemon.connect().request("POST", path, &[], body.as_bytes());
        answer.json()["risk_level"].clone()
    };
    let call = |name: &str| json!({"name": name, "input": {"command": "true"}});
    assert_eq!(explain(call("bash")), "trusted");
    assert_eq!(explain(call("execute_command")), "untrusted");
    let mut raised = call("bash");
    raised["risk_level"] = json!("untrusted");
    assert_eq!(explain(raised), "untrusted");
    // What is refused in any case is not said to be allowed.
    for (members, part) in [
        (
            json!({"workspace": "/srv"}),
            "`workspace` /srv is not at or below",
        ),
        (json!({"background": "keep"}), "nothing outlives a sandbox"),
    ] {
        let mut refused = call("execute_command");
        for (name, value) in members.as_object().expect("members") {
            refused[name] = value.clone();
        }
        let body = refused.to_string();
        let told = ["/permissions/explain", "/execute"].map(|path| {
            let answer = daemon.connect().request("POST", path, &[], body.as_bytes());
            assert_eq!(answer.status, 422, "{path}: {members}");
            answer.json()["detail"].as_str().expect("text").to_owned()
        });
        assert!(told[0].contains(part), "{told:?}");
        assert_eq!(told[0], told[1]);
    }
    for (tool, risk) in [("bash", "trusted"), ("execute_command", "untrusted")] {
        let details = daemon.get(&format!("/tools/{tool}")).json();
        assert_eq!(details["risk_level"], risk, "{details}");
    }
}

#[test]
fn a_call_raises_its_risk_and_never_lowers_it() {
    if !is_there() {
        return;
    }
    let toml = "[tools]\nuntrusted = [\"execute_command\"]\n";
    let daemon = Daemon::start_under(
        "default = \"allow\"\nuntrusted = [\"bash(command:touch *)\"]\n",
        toml,
    );
    let user = |name: &str, command: &str, risk: &str| {
        let call = json!({"name": name, "risk_level": risk, "input": {"command": command}});
        let reply = daemon.post(&call);
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.stdout()
    };
    assert_eq!(user("bash", "id -un", "trusted"), "root");
    assert_eq!(user("bash", "id -un", "untrusted"), "nobody");
    assert_eq!(user("bash", "touch /tmp/x; id -un", "trusted"), "nobody");
    assert_eq!(user("execute_command", "id -un", "trusted"), "nobody");
    let call = json!({"name": "bash", "risk_level": "none", "input": {"command": "true"}});
    assert_eq!(daemon.post(&call).status, 400);
    // What the daemon does itself cannot be confined, what needs nothing need not be.
    let call =
        json!({"name": "read_file", "risk_level": "untrusted", "input": {"file_path": "~/x"}});
    let reply = daemon.post(&call);
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"]),
        (422, &json!("invalid_input")),
        "{body}"
    );
    let call = json!({"name": "check_condition", "risk_level": "untrusted", "input": {"condition": "1 == 1"}});
    let body = daemon.post(&call).json();
    assert_eq!(
        (&body["risk_level"], &body["is_error"]),
        (&json!("untrusted"), &json!(false)),
        "{body}"
    );
}

#[test]
fn the_policy_grants_a_directory_to_write_to() {
    if !is_there() {
        return;
    }
    let dir = crate::support::scratch();
    super::give_to_nobody(&dir);
    let policy = format!(
        "default = \"untrusted\"\nworkspace = [{{ rule = \"bash(command:touch *)\", dir = {dir:?} }}]\n"
    );
    let daemon = Daemon::start_under(&policy, "");
    let reply = daemon.bash("touch a");
    assert_eq!(reply.json()["exit_code"], 0, "{}", reply.content());
    assert!(dir.join("a").exists(), "it begins there");
    // A call may name it, and nothing else.
    let named = json!({"workspace": dir});
    let reply = daemon.bash_with("touch b", &named);
    assert_eq!(reply.json()["exit_code"], 0, "{}", reply.content());
    assert!(dir.join("b").exists());
    let reply = daemon.bash_with("touch b", &json!({"workspace": "/tmp"}));
    assert_eq!(reply.json()["code"], "invalid_input", "{}", reply.json());
    // What the rule does not cover is granted nothing.
    let reply = daemon.bash(&format!("touch {0}/c; echo > {0}/d", dir.display()));
    assert_eq!(
        reply.json()["sandbox"]["runtime"],
        "runsc",
        "{}",
        reply.json()
    );
    let reply = daemon.bash_with("ls; touch b", &named);
    assert_eq!(reply.json()["code"], "invalid_input", "{}", reply.json());
    assert!(!dir.join("c").exists() && !dir.join("d").exists());
    let call = json!({"name": "bash", "input": {"command": "touch a"}}).to_string();
    let explained = daemon
        .connect()
        .request("POST", "/permissions/explain", &[], call.as_bytes());
    assert_eq!(explained.json()["workspace"], json!(dir));
    std::fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn an_untrusted_skill_and_what_it_leads_to_run_in_the_sandbox() {
    if !is_there() {
        return;
    }
    let daemon = Daemon::start_under("default = \"allow\"\n", "");
    let skills = daemon.dir().join("skills");
    let put = |name: &str, manifest: &serde_json::Value, program: Option<&str>| {
        let dir = skills.join(name);
        std::fs::create_dir_all(&dir).expect("made");
        if let Some(program) = program {
            std::fs::write(dir.join("run"), program).expect("written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(dir.join("run"), mode).expect("executable");
        }
        std::fs::write(dir.join("skill.json"), manifest.to_string()).expect("written");
    };
    let program = "#!/bin/sh\ncat >/dev/null\nprintf '{\"user\": \"%s\", \"files\": \"%s\", \"token\": \"%s\"}' \"$(id -un)\" \"$(cd \"$SHELLY_SKILL_DIR\" && echo *)\" \"$SHELLY_CAPABILITY$SHELLY_SOCKET\"\n";
    put(
        "who",
        &json!({"name": "who", "version": "1.0.0", "description": "Who.", "mode": "code", "command": ["./run"], "input": {"type": "object"}, "risk_level": "untrusted"}),
        Some(program),
    );
    put(
        "both",
        &json!({"name": "both", "version": "1.0.0", "description": "Both.", "mode": "composite", "input": {"type": "object"}, "risk_level": "untrusted",
        "steps": [{"tool": "bash", "parameters": {"command": "id -un"}, "save_output_as": "user"}], "result": "{{ user.strip() }}"}),
        None,
    );
    crate::support::wait_until("the skills are there", || {
        daemon.get("/tools/both").status == 200 && daemon.get("/tools/who").status == 200
    });
    let body = daemon.post(&json!({"name": "who", "input": {}})).json();
    assert_eq!(
        body["output"],
        json!({"user": "nobody", "files": "run skill.json", "token": ""}),
        "{body}"
    );
    assert_eq!(body["sandbox"]["runtime"], "runsc", "{body}");
    let body = daemon.post(&json!({"name": "both", "input": {}})).json();
    assert_eq!(body["output"], "nobody", "{body}");
    assert_eq!(body["risk_level"], "untrusted", "{body}");
}

/// What it declares it may call, by a socket of its own on which there is nothing else.
#[test]
fn an_untrusted_skill_calls_what_it_declares_and_nothing_else() {
    for mode in super::modes() {
        let dir = crate::support::scratch();
        let skill = dir.join("skills/asks");
        std::fs::create_dir_all(&skill).expect("made");
        let program = r#"#!/bin/sh
cat >/dev/null
ask() { curl --silent --max-time 20 --unix-socket "$SHELLY_SOCKET" "$@"; }
ours() { ask --header "Authorization: Bearer $SHELLY_CAPABILITY" "$@"; }
# Who is let in is told to send its body.
forged() { ask --header "Authorization: Bearer forged" --header "Expect: 100-continue" --expect100-timeout 20 \
    --dump-header - --output /dev/null "$@" | head -n 1 | tr -d '\r\n'; }
printf '{"call": %s, "undeclared": %s, "nameless": %s, "health": %s, "http2": "%s", "forged": ["%s", "%s"]}' \
    "$(ours http://x/execute --data '{"name": "execute_command", "input": {"command": "id -un"}}')" \
    "$(ours http://x/execute --data '{"name": "bash", "input": {"command": "id -un"}}')" \
    "$(ask http://x/execute --data '{"name": "execute_command", "input": {"command": "id -un"}}')" \
    "$(ours http://x/health)" \
    "$(ask --http2-prior-knowledge --output /dev/null http://x/health >/dev/null 2>&1 && echo spoken || echo none)" \
    "$(forged http://x/execute --data '{}')" "$(forged http://x/context/session/x --request PUT --data '{}')"
"#;
        std::fs::write(skill.join("run"), program).expect("written");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(skill.join("run"), executable).expect("executable");
        let manifest = json!({
            "name": "asks", "version": "1.0.0", "description": "Asks.", "mode": "code",
            "command": ["./run"], "input": {"type": "object"}, "risk_level": "untrusted",
            "calls": ["execute_command"],
        });
        std::fs::write(skill.join("skill.json"), manifest.to_string()).expect("written");
        let daemon = Daemon::start_in(dir, mode, "", |_| {});
        let body = daemon.post(&json!({"name": "asks", "input": {}})).json();
        let output = &body["output"];
        // It runs where its parent does.
        assert_eq!(
            output["call"]["output"]["stdout"], "nobody\n",
            "{mode:?}: {body}"
        );
        assert_eq!(
            output["call"]["risk_level"], "untrusted",
            "{mode:?}: {body}"
        );
        assert_eq!(
            output["undeclared"]["code"], "permission_denied",
            "{mode:?}: {body}"
        );
        assert_eq!(
            output["nameless"]["code"], "bad_capability",
            "{mode:?}: {body}"
        );
        assert_eq!(output["health"]["code"], "not_found", "{mode:?}: {body}");
        // What is not let in could make the daemon hold as many large bodies as it has connections.
        let unread = "HTTP/1.1 401 Unauthorized";
        assert_eq!(
            output["forged"],
            json!([unread, unread]),
            "{mode:?}: {body}"
        );
        // Many requests at once on one connection could hold more bodies than the daemon has memory.
        assert_eq!(output["http2"], "none", "{mode:?}: {body}");
        super::wait_for_test(&daemon, "passed");
        super::assert_clean(&daemon, "after calls");
    }
}
