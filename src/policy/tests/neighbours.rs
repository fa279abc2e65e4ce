//! What looks like an everyday script and may be what a rule refuses does not pass.

use super::everyday::stopped;
use super::*;

/// Which may be `rm -rf /`.
#[rustfmt::skip]
const MAY_BE_REFUSED: &[&str] = &[
    r#"rm "$@""#,
    "rm $F",
    r#"rm -rf "$D""#,
    r#"rm -rf "$D"/"#,
    r#"sudo rm -rf "$D""#,
    "sudo rm $F",
    r#"docker exec c rm -rf "$D""#,
    r#"docker exec "$C" rm -rf /"#,
    r#"docker run -v "$P":/x i rm -rf /"#,
    r#"docker run "$I" sh -c 'rm -rf /'"#,
    "docker run $I rm -rf /",
    r#"docker exec c sh -c "$X""#,
    r#"docker exec c env "$X""#,
    r#"kubectl exec "$P" -- rm -rf /"#,
    "kubectl $X",
    "xargs docker exec c",
    r#"pdsh -w h rm "$X""#,
    r#"ansible all -a "rm $X""#,
    r#"ssh h "$X""#,
    r#"ssh h rm "$X""#,
    r#"ssh "$H" rm -rf /"#,
    "rsync -e 'rm -rf /' a b",
    r#"scp -S "rm $X" a b:"#,
    "sudo env A=$B ls",
    r#"timeout "$T" $X"#,
    "exec $X",
    "sudo -u $X ls",
    r#"sudo sh -c "$X""#,
    r#"sudo bash "$F" "$A""#,
    "sudo bash -c 'rm -rf /'",
    "sudo -u x bash -lc 'cd / && rm -rf /'",
    "bash $F",
    r#"bash "$F" "$A""#,
    r#"bash -c "$X""#,
    r#"bash -c 'rm "$@"' _ "$A""#,
    r#"bash -c '"$@"' _ rm -rf /"#,
    r#"bash -c "$X" _ a"#,
    "bash $A ./x.sh",
    r#"bash -o "$X" ./x.sh"#,
    r#"bash -s "$A" <<< 'rm -rf /'"#,
    r#"bash "$F" <<< 'rm -rf /'"#,
    r#"fish "$F""#,
    r#"nu "$F""#,
    r#". "$F""#,
    r#". "$D/0" <<< 'rm -rf /'"#,
    r#". "$D/stdin" <<< 'rm -rf /'"#,
    "source $F",
    r#"export "$X""#,
    "export $X",
    r#"export BASH_ENV="$X""#,
    r#"export GIT_PAGER="rm -rf $X""#,
    r#"export PAGER="rm $X""#,
    r#"env PAGER="rm $X" git log"#,
    r#"declare -n r="$X""#,
    r#"declare -i n="$X""#,
    "local -i n=$X",
    "declare 'a[$(rm -rf /)]=1'",
    "declare -A m=([$(rm -rf /)]=1)",
    r#"export X="$(rm -rf /)""#,
    "declare a=($(rm -rf /))",
    r#""$D/bin/rm" -rf /"#,
    r#""$D/rm" -rf "$X""#,
    r#""$D" -rf /"#,
    r#""$D/$N" -rf /"#,
    r#"~/"$N" -rf /"#,
    r#""$X" rm -rf /"#,
    r#""$X" "rm $Y""#,
    r#"eval rm "$X""#,
    r#"eval "rm $X""#,
    r#"watch rm "$X""#,
    r#"sudo find . -exec rm -rf "$X" \;"#,
    r#"sudo xargs "$X""#,
    r#"sudo make "$X" && sudo sh "$F" $A"#,
    "docker exec --detach c rm -rf /",
    r#"docker exec --detach web sh -c "$CMD""#,
    "docker compose exec --detach web rm -rf /",
    "podman exec -l rm -rf /",
    "podman exec --latest rm -rf /",
    r#"podman exec -l "$CMD" $X"#,
    r#"docker run --rm --entrypoint /bin/sh img -c "$CMD""#,
    r#"docker-compose run --entrypoint sh web -c "$CMD""#,
    "docker-compose --log-level info exec web rm -rf /",
    "docker run --log-driver json-file img $CMD -rf /",
    "docker run --unheard-of x img $CMD -rf /",
    "systemd-run --uid ssh rm -rf /",
    "systemd-run --uid timeout rm -rf /",
    "setpriv --reuid ssh rm -rf /",
    r#"echo 'rm -rf /' | bash "${1:-/dev/stdin}""#,
    r#"echo 'rm -rf /' | bash "$D/stdin""#,
    r#"echo 'rm -rf /' | sh "$D/fd/0""#,
    r#"echo 'rm -rf /' | sh /dev/fd/"$N""#,
    "cd /dev/fd; echo 'rm -rf /' | bash ~+/0",
    r#"bash "$D/rm" -rf /"#,
    r#"D=/dev/fd; echo 'rm -rf /' | . "$D//0""#,
    r#"D=/dev/fd; echo 'rm -rf /' | bash "$D//0""#,
    r#". "$D/self/../self/fd//0" <<< 'rm -rf /'"#,
    r#"env - PATH="$PATH" "$@""#,
    r#"env - PATH="$PATH" $CMD"#,
    r#"sudo env - "$@""#,
    r#"nohup env - "$@""#,
    "env -- A=1 rm -rf /",
    "env -- A=1 $CMD",
    r#"declare -a "x=($Y)""#,
    r#"local -A "x=$Y""#,
    r#"\declare x=$Y"#,
    "command declare x=$Y",
    r#"rsync --rsync-path "rm -rf $X" a h:b"#,
    r#"scp "$@""#,
    r#"sftp "$H" <<< '!rm -rf /'"#,
    r#"salt '*' cmd.run "rm $X""#,
    r#"heroku run "$X""#,
    r#"docker exec c "$D/rm" -rf /"#,
    "docker exec c ~/rm -rf /",
    "docker exec c $D/rm -rf /",
    r#"docker run "$I" "$D"/bin/rm -rf /"#,
    r#"sudo docker compose exec web "${D:-/bin}/rm" -rf /"#,
    r#"kubectl exec p -- "$D/rm" -rf /"#,
    "timeout 5 kubectl exec p -- ~/bin/rm -rf /",
    r#"ssh "$H" "$D/rm" -rf /"#,
    r#"sftp "$H" <<< '-!rm -rf /'"#,
    "sftp h <<< '- !rm -rf /'",
    r#"sftp -b - "$H" <<< '-@!rm -rf /'"#,
    r#"export PAGER="${R:-rm -rf /}""#,
    r#"env PAGER="${R:-rm -rf /}" git log"#,
    r#"PAGER="${R-rm -rf /}" git log"#,
    r#"export PROMPT_COMMAND="${R:=rm -rf /}""#,
    r#"ssh -o "$X" h ls"#,
    r#"scp -o "$X" a h:"#,
    "kubectl -n $N get exec p -- rm -rf /",
    "docker compose -p $P up exec web rm -rf /",
];

/// Which may be `rm` and something.
#[rustfmt::skip]
const MAY_BE_ANY: &[&str] = &[
    "docker exec $C ls",
    "docker run $OPTS i ls",
    "docker $CMD ls",
    r#"docker "$CMD" ls"#,
    "ssh $H ls",
    r#"sudo "$X" a"#,
    "sudo $X ls",
    r#"sudo env "$X" a"#,
    r#"exec "$X" x"#,
    r#"rsync -e "$X y" a b"#,
    r#"sudo cp a b; sudo "$X" "$Y""#,
    r#"find "$A" "$B" /"#,
    r#"sudo find "$A" "$B" /"#,
    r#"sudo find . -exec "$X" {} +"#,
    r#"docker exec c nice "$X" y"#,
    r#"nohup nice "$X" y"#,
    r#"sudo timeout 5 "$X" y"#,
    r#"sudo -s "$X" y"#,
    r#"sudo xargs "$X" y"#,
    r#"env -i sudo "$X" y"#,
    r#""$D/$X" y"#,
    "rsync $OPTS a h:",
    "docker run --entrypoint rm img -rf /",
    "docker run --entrypoint=rm img -rf /",
    r#"docker run --entrypoint "$E" img -rf /"#,
    "docker run --health-cmd rm img ls",
    r#"docker run --health-cmd "$X" img ls"#,
    r#"docker exec --env A=b c "$CMD" x"#,
    r#"docker exec --cidfile f "$CMD" x"#,
    "rsync --rsync-path rm a h:b",
    r#"env - "$CMD" x"#,
    r#"env -- A=1 "$CMD" x"#,
    r#"ssh -o "${O:-ProxyCommand=rm -rf /}" h ls"#,
    "docker --context $C rm run img rm x",
    "docker -H $H logs exec c rm x",
    r#"echo '!rm x' | sftp "$H""#,
];

#[test]
fn what_may_be_refused_does_not_pass() {
    let policy = policy("default = \"allow\"\ndeny = [\"bash(command:rm -rf /)\"]");
    assert_eq!(stopped(&policy, MAY_BE_REFUSED), MAY_BE_REFUSED);
    let policy = super::policy("default = \"allow\"\ndeny = [\"bash(command:rm *)\"]");
    assert_eq!(stopped(&policy, MAY_BE_REFUSED), MAY_BE_REFUSED);
    assert_eq!(stopped(&policy, MAY_BE_ANY), MAY_BE_ANY);
}

#[test]
fn a_program_in_some_directory_is_denied_by_its_name() {
    let policy = policy("default = \"allow\"\ndeny = [\"bash(command:rm -rf /)\"]");
    for script in [
        r#""$D/env" rm -rf /"#,
        r#""$D/sudo" -u x env A=b rm -rf /"#,
        "rm -rf /; ~/bin/env true",
        r#""$D/rm" -rf /"#,
    ] {
        assert_eq!(bash(&policy, script), Verdict::Deny, "{script}");
    }
}

#[test]
fn a_rule_with_a_path_holds_for_a_script_in_some_directory() {
    let policy = policy("default = \"allow\"\ndeny = [\"bash(command:/opt/x/tool *)\"]");
    for script in [
        r#"bash "$D/tool" x"#,
        r#"sudo bash -x "$D/tool" x"#,
        r#"bash /opt/"$D"/tool x"#,
        r#""$D/tool" x"#,
        r#"docker exec c "$D/tool" x"#,
    ] {
        assert_eq!(bash(&policy, script), Verdict::Ask, "{script}");
    }
    let others = [r#"bash "$D/other" x"#, r#"bash x.sh "$D/tool""#];
    let none: [&str; 0] = [];
    assert_eq!(stopped(&policy, &others), none);
}
