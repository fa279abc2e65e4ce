//! Options and settings that stand in variables, or that braces make.

use super::hidden::{NONE, unlike};
use super::*;

#[test]
fn what_variables_tell_a_program_is_looked_at() {
    let asked = [
        r#"c=--filter=marker; split "$c" f"#,
        "c=--filter=marker\nsplit $c f",
        "x=-Imarker; tar cf a $x b",
        r#"x='-I marker'; tar cf a "$x" b"#,
        "x='-I marker'; tar cf a $x b",
        r#"o=-I; tar cf a "$o" marker b"#,
        r#"x='alias.x=!marker'; git -c "$x" x"#,
        r#"x='alias.x=!marker'; git -c"$x" x"#,
        r#"b=-c; git "$b" 'alias.x=!marker' x"#,
        r#"b=-c; x='alias.x=!marker'; git "$b" "$x" x"#,
        "x='-c alias.x=!marker'; git $x x",
        r#"x=SHELL=marker; make "$x""#,
        r#"b=-f; make "$b" {mk,SHELL=marker}"#,
        "make {mk,SHELL=marker}",
        "tar {,-}Imarker cf a b",
        "tar cf a {,-}Imarker b",
        "git {-c,alias.x=!marker} x",
        r#"a=(-Imarker b); tar cf a "${a[@]}""#,
        r#"a=(--exec-path=/x -c 'alias.x=!marker y' x); git "${a[@]}""#,
        r#"split "${o:---filter=marker}" f"#,
        r#"split ${o-"--filter=marker"} f"#,
        r#"f() { split "${1:---filter=marker}" f; }; f"#,
        r#"split "${o[0]:---filter=marker}" f"#,
        r#"set -- -Imarker b; tar cf a "$@""#,
        r#"f() { tar cf a "$@"; }; f -I marker b"#,
        r#"f() { tar cf a "$1" b; }; f -Imarker"#,
        r#"for o in -Imarker -v; do tar cf a "$o" b; done"#,
        r#"read -r o <<< -Imarker; tar cf a "$o" b"#,
        r#"printf -v o %s -Imarker; tar cf a "$o" b"#,
        "set x --filter=marker; split \"$2\" f",
        "while read -r o; do split \"$o\" f; done <<E\n-v\n--filter=marker\nE",
        "mapfile -t a <<E\n-v\n--filter=marker\nE\nsplit \"${a[1]}\" f",
        r#"sh -c 'split "$1" f' _ --filter=marker"#,
        r#"o=-oProxyCommand=marker; ssh "$o" host uptime"#,
        r#"o=-Imarker; sudo tar cf a "$o" b"#,
        r#"o=-Imarker; find . -exec tar cf a "$o" {} +"#,
        r#"export o=-Imarker; sh -c 'tar cf a "$o" b'"#,
        r#"while tar cf a "$o" b; do o=-Imarker; done"#,
        r#"o=Imarker; tar cf a -"$o" b"#,
        r#"o=-; tar cf a "$o"Imarker b"#,
        r#"o=eval; make --"$o=x:;@marker" x"#,
        r#"o=--compress-program; sort "$o=marker" f"#,
        r#"b=-c; o=-Imarker; git "$b" 'alias.x=!tar cf a "$o" b' x"#,
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
}

/// What is no option of the program that is told so, or names nothing of what is asked about, is let alone.
#[test]
fn what_variables_tell_otherwise_is_let_alone() {
    let harmless = [
        r#"OPTS='--exclude=marker -v'; tar cf a $OPTS "$b""#,
        r#"OPTS='--exclude=*.marker'; tar cf a $OPTS "$b""#,
        "x=--filter=marker; sort $x f",
        r#"a=(--format=marker); git log "${a[@]}""#,
        r#"URL='http://x/?q=marker'; curl -s "$URL" | tar xz -C "$d""#,
        "FLAGS=-la; ls $FLAGS; tar tf \"$f\"",
        r#"set -euo pipefail; d=$(mktemp -d); tar xf "$1" -C "$d""#,
        r#"f() { tar cf "$1" -C "$2" .; }; f a.tar --exclude=marker"#,
        r#"O=-a; ls $O; ssh "$h" uptime"#,
        r#"set -e; ssh "$h" uptime"#,
        r#"O=--all; docker ps $O; ssh "$h" "uptime""#,
        r#"for i in -1 -2; do ssh "$h" 'uptime'; done"#,
        r#"v=a=b; docker run -e V="$v" x; make V="$v"; tar --directory="$v" -xf a"#,
        r#"PORT=--port=80; git clone "$repo" {a,b}-"$x""#,
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

/// Many values and many commands take no longer than may be looked at; beyond that it is not known what is run.
#[test]
fn many_values_are_not_all_tried() {
    let many = |values: usize, commands: usize| {
        let values: String = (0..values).map(|at| format!("v{at}=--x{at}=y\n")).collect();
        let commands: String = (0..commands)
            .map(|at| format!("tar cf a{at} \"$v{at}\" b\n"))
            .collect();
        values + &commands
    };
    let verdict = |script: &str| unlike("marker *", &[script], Verdict::Allow).is_empty();
    assert!(verdict(&many(20, 20)));
    // Values of what has a name are none of these.
    let variables: String = (0..60).map(|at| format!("v{at}=--x{at}=y\n")).collect();
    let given: String = (0..60).map(|at| format!(" -e V{at}=\"$v{at}\"")).collect();
    assert!(verdict(&format!("{variables}docker run{given} image")));
    assert!(!verdict(&many(100, 100)));
    assert!(!verdict(&many(10, 300)));
}
