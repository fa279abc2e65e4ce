//! What is parsed, held against what bash 5.2 makes of it.

use super::*;

/// The commands of a script, one in each pair of brackets, with what stands around them.
fn shape(script: &str) -> String {
    match parse(script) {
        Ok(lines) => {
            let lines: Vec<String> = lines
                .iter()
                .map(|line| list(&line.list, &line.documents))
                .collect();
            lines.join("; ")
        }
        Err(unreadable) => format!("{unreadable:?}"),
    }
}

fn parse(script: &str) -> Result<Vec<Line<'_>>, Unreadable> {
    let mut lines = Lines::new(script);
    let mut parsed = Vec::new();
    while let Some(line) = lines.next()? {
        parsed.push(line);
    }
    Ok(parsed)
}

fn list(pipelines: &List<'_>, documents: &[Document]) -> String {
    let pipelines = pipelines.iter().map(|pipeline| {
        let commands = pipeline.commands.iter();
        let commands: Vec<String> = commands.map(|one| command(one, documents)).collect();
        let timed = if pipeline.timed { "time " } else { "" };
        format!("{timed}{}", commands.join(" | "))
    });
    pipelines.collect::<Vec<_>>().join("; ")
}

fn command(command: &Command<'_>, documents: &[Document]) -> String {
    match command {
        Command::Simple(simple) => {
            let items: Vec<String> = simple
                .items
                .iter()
                .map(|item| match item {
                    Item::Word(word) => word.raw.clone(),
                    Item::Redirect(one) => redirect(one, documents),
                })
                .collect();
            format!("[{}]", items.join(" "))
        }
        Command::Compound(one, redirects) => {
            let redirects = redirects.iter().map(|one| redirect(one, documents));
            [compound(one, documents)]
                .into_iter()
                .chain(redirects)
                .collect::<Vec<_>>()
                .join(" ")
        }
        Command::Function { name, body, .. } => {
            format!("{name}() {}", self::command(body, documents))
        }
        Command::Coprocess(body) => format!("coproc {}", self::command(body, documents)),
    }
}

fn compound(compound: &Compound<'_>, documents: &[Document]) -> String {
    let words = |words: &[Word<'_>]| {
        let raw: Vec<&str> = words.iter().map(|word| &*word.raw).collect();
        raw.join(" ")
    };
    let lists = |lists: &[List<'_>]| {
        let lists: Vec<String> = lists.iter().map(|one| list(one, documents)).collect();
        lists.join(" / ")
    };
    match compound {
        Compound::Lists(all) => format!("{{{}}}", lists(all)),
        Compound::For {
            name,
            words: values,
            body,
            ..
        } => format!("for {name} {}: {}", words(values), list(body, documents)),
        Compound::ArithmeticFor(text, body) => format!("for (({text})): {}", list(body, documents)),
        Compound::Case {
            word,
            patterns,
            lists: all,
        } => format!("case {} {}: {}", word.raw, words(patterns), lists(all)),
        Compound::Arithmetic(text) => format!("(({text}))"),
        Compound::Test(all) => format!("[[{}]]", words(all)),
    }
}

fn redirect(redirect: &Redirect<'_>, documents: &[Document]) -> String {
    let number = |descriptor: &Option<i32>| descriptor.map_or(String::new(), |one| one.to_string());
    match redirect {
        Redirect::File {
            descriptor,
            kind,
            target,
        } => format!("{}{kind:?}:{}", number(descriptor), target.raw),
        Redirect::Duplicate {
            descriptor,
            writes,
            target,
        } => {
            let sign = if *writes { ">&" } else { "<&" };
            format!("{}{sign}{}", number(descriptor), target.raw)
        }
        Redirect::OutputAndError(target) => format!("&>{}", target.raw),
        Redirect::Document(descriptor, place) => {
            let document = &documents[*place];
            let sign = if document.expands { "<<" } else { "<<'" };
            format!("{}{sign}{:?}", number(descriptor), document.text)
        }
        Redirect::Text(descriptor, word) => format!("{}<<<{}", number(descriptor), word.raw),
    }
}

#[test]
fn scripts_are_parsed_as_bash_has_them() {
    for (script, expected) in [
        ("", ""),
        (" # nothing", ""),
        ("a b;c&d", "[a b]; [c]; [d]"),
        ("a && b || c\nd", "[a]; [b]; [c]; [d]"),
        ("a | b |& c", "[a] | [b] | [c]"),
        ("a &\\\n& b # c", "[a]; [b]"),
        ("a#b c '#' d", "[a#b c '#' d]"),
        ("! a; time -p -- b; time", "[a]; time [b]; time "),
        ("a | time b", "[a] | [time b]"),
        ("(a; b); { c; }", "{[a]; [b]}; {[c]}"),
        ("((a); b)", "{{[a]}; [b]}"),
        ("((a))", "((a))"),
        ("(((a);b);c)", "{{{[a]}; [b]}; [c]}"),
        ("((a=(1+2)*3)) && b", "((a=(1+2)*3)); [b]"),
        ("((a)\n)", "{{[a]}}"),
        (
            "if a; then b; elif c; then d; else e; fi",
            "{[a] / [b] / [c] / [d] / [e]}",
        ),
        ("while a; do (b) done", "{[a] / {[b]}}"),
        ("until a\ndo b\ndone >f", "{[a] / [b]} Write:f"),
        ("for x in a 'b c'; do d; done", "for x a 'b c': [d]"),
        (
            "for x\ndo d; done; for y do e; done",
            "for x : [d]; for y : [e]",
        ),
        (
            "for x; { d; }; select x in a\ndo b; done",
            "for x : [d]; for x a: [b]",
        ),
        (
            "for ((i=0; i<3; i++)) do a; done",
            "for ((i=0; i<3; i++)): [a]",
        ),
        ("for ((;;)) { a; }", "for ((;;)): [a]"),
        (
            "case $x in a|b) c;; (d) e;& f) ;;& *) g\nesac",
            "case $x a b d f *: [c] / [e] /  / [g]",
        ),
        ("case x in esac", "case x : "),
        ("f() { a; }; g () (b) >f", "f() {[a]}; g() {[b]} Write:f"),
        (
            "function f { a; }\nfunction g ( b )",
            "f() {[a]}; g() {[b]}",
        ),
        ("f() [[ a ]]", "f() [[a]]"),
        ("f?() { a; }", "f?() {[a]}"),
        (
            "coproc a b; coproc x { c; }; coproc (d)",
            "coproc [a b]; coproc {[c]}; coproc {[d]}",
        ),
        ("coproc a\n{ b; }", "coproc [a]; {[b]}"),
        ("[[ a == b && ! ( -n c || d ) ]]", "[[a b c d]]"),
        ("[[ a < b ]] && c", "[[a b]]; [c]"),
        ("[[ a =~ ^(#|//) ]]", "[[a ^(#|//)]]"),
        ("[[ a =~ (b c)|d ]]", "[[a (b c)|d]]"),
        ("[[ a == @(b|c d) ]]", "[[a @(b|c d)]]"),
        ("[[ a == b\n]]", "[[a b]]"),
        ("[[ !(a == b) ]]", "[[a b]]"),
        ("function f+(a)", "f+() {[a]}"),
        ("!(a)", "{[a]}"),
        ("ls !(a|b)", "[ls !(a|b)]"),
        ("x=1 y+=2 a b=3", "[x=1 y+=2 a b=3]"),
        ("x=(a b) c", "[x=(a b) c]"),
        ("x=(a)b c", "[x=(a)b c]"),
        ("x=(a)# b", "[x=(a)# b]"),
        ("x[1 | 2]=a b", "[x[1 | 2]=a b]"),
        ("a x[1 2]", "[a x[1 2]]"),
        ("declare -A x=([a b]=c)", "[declare -A x=([a b]=c)]"),
        ("x=(\n# (\na\n)", "[x=(\n# (\na\n)]"),
        ("if x=1 if a; then b; fi", "{[x=1 if a] / [b]}"),
        (">f a if", "[Write:f a if]"),
        (
            "a >b 2>>c <d <>e >|f",
            "[a Write:b 2Write:c Read:d ReadAndWrite:e Write:f]",
        ),
        ("a 2>&1 >&- b <&3- >&f", "[a 2>&1 >& b <&3- >&f]"),
        ("a >&-b", "[a >& b]"),
        ("a &>b &>>c", "[a &>b &>c]"),
        ("a2>b {x}>c {x[1]}<d", "[a2 Write:b 10Write:c 10Read:d]"),
        ("a 2<(b)", "[a 2<(b)]"),
        ("[[<(a) || b ]]", "[[[<(a)]; [b ]]]"),
        ("do<(a) if\\\n>(b)", "[do<(a) if>(b)]"),
        ("x=(a\\ b) $(x=('a b'))", "[x=(a\\ b) $(x=('a b'))]"),
        ("a <(b) > >(c)", "[a <(b) Write:>(c)]"),
        ("a <<<b", "[a <<<b]"),
        ("a <<E b\nc\nE\nd", "[a <<\"c\\n\" b]; [d]"),
        (
            "a <<'E' <<-F\nc\nE\n\td\n\tF\ne",
            "[a <<'\"c\\n\" <<\"d\\n\"]; [e]",
        ),
        ("a <<E\nb\\\nc\nE", "[a <<\"bc\\n\"]"),
        ("a <<\\E\nb\\\nE\nc", "[a <<'\"b\\\\\\n\"]; [c]"),
        ("a <<''\nb\n\nc", "[a <<'\"b\\n\"]; [c]"),
        ("a <<E", "[a <<\"\"]"),
        ("a <<E | b '\n'\nc\nE", "[a <<\"c\\n\"] | [b '\n']"),
        ("x=$(a <<E\n)\nE\n)", "[x=$(a <<E\n)\nE\n)]"),
        ("$(case x in a) b;; esac)", "[$(case x in a) b;; esac)]"),
        (
            "$(if a; then case b in c) d;; esac; fi; e case)",
            "[$(if a; then case b in c) d;; esac; fi; e case)]",
        ),
        ("$(a <<'E'\nb\\\\\nE\n)", "[$(a <<'E'\nb\\\\\nE\n)]"),
        ("$(a # )\n)", "[$(a # )\n)]"),
        ("\"$(a \")\")\" b", "[\"$(a \")\")\" b]"),
        (
            "${x:-)} ${x-'}'} \"${x-\"}\"}\"",
            "[${x:-)} ${x-'}'} \"${x-\"}\"}\"]",
        ),
        ("`a \\` b` c", "[`a \\` b` c]"),
        ("$((1 << 2)) $[1 < 2]", "[$((1 << 2)) $[1 < 2]]"),
        ("$$'a b' $'a\\' b'", "[$$'a b' $'a\\' b']"),
        ("a'\\\n'b", "[a'\\\n'b]"),
        ("i\\\nf a; then b; fi", "{[a] / [b]}"),
        ("a\\", "[a\\]"),
    ] {
        assert_eq!(shape(script), expected, "{script}");
    }
}

#[test]
fn what_bash_refuses_is_not_in_the_grammar() {
    for script in [
        "(",
        ")",
        "a (b)",
        "a; ; b",
        "; a",
        "a &&",
        "| a",
        "a |",
        "if a; fi",
        "if; then b; fi",
        "while a; done",
        "for x in a",
        "for 1 in (a)",
        "case x in a b) ;; esac",
        "{ a; } b",
        "(a) (b)",
        "{ a",
        "}",
        "done",
        "then",
        "in",
        "]]",
        "[[ ]]",
        "[[ a",
        "[[ a; ]]",
        "[[ a b ]]",
        "[[ a\n]]",
        "f() a",
        "f(a)",
        "f() ",
        "a <",
        "a > >",
        "a <<",
        "'a",
        "\"a",
        "$(a",
        "${a",
        "`a",
        "$((a",
        "$[a",
        "x=(a",
        "x=(a;b)",
        "x=(<f)",
        "x[a",
        "\"${x-it's}\"",
        "a | ! b",
        "function",
        "a\n)",
        "{ a; }; )",
        "$(a;;)",
        "a;;",
        "[[ a =~ (b ]]",
        "`a``",
    ] {
        assert_eq!(shape(script), "Grammar", "{script}");
    }
}

#[test]
fn what_versions_of_bash_read_otherwise_is_ambiguous() {
    for script in [
        "${ a; }",
        "a <<E $(b\nc)\nE",
        "$(a <<E)\nE",
        "$(x=(\\' ))",
        "<(x=(a\\ b))",
        "$(a <<E\nE)",
        "$(a <<E\nE b)\nE\n)",
        "a <<$x\n$x",
        "a <<\"`b`\"\nE",
        "a <<E\nb\\\nE\nE",
        "a <<E\n\\\nE\nE",
        ">f x[1 2]=3 a",
        "a {x[$(b)]}>f",
        "declare x=([1]=(a))",
        "case x in ((a)) b;; esac",
        "coproc ! a",
        "coproc x y[1 2]",
        "$(( $(a # '\n) 1 ))\nb\n: #' )))",
        "((a $'b')\n)",
        "$((a # b\n) )",
        "((a <<E\nE\n) )",
        "$(( a # b ))",
        ">f ! a",
        ">f then a",
        "case x in (esac) a; esac",
        "x=(!(a))",
        "x=1 >f y[1]",
        "$(a <<E <<F\nE\nF\n)",
        "$(a <<E\nb\\\\\nE\n)",
        "$( ((1<<E ))\nb)",
        "$(case a in b) case c in d) ;; esac;; esac)",
        "$({ case a in b) c;; esac; })",
        "$(case a in b) (c) esac)",
        "$(a >case)",
        "$(for case in a; do b; done)",
        "$(time case a in b) c;; esac)",
        "$(a; if b <<E\nE\nthen c; fi)",
        "f() { if a <<E\nE\nthen b; fi; }",
        "$([[ a == @(<<E) ]]\n)",
    ] {
        assert_eq!(shape(script), "Ambiguous", "{script}");
    }
}

#[test]
fn words_are_parted_into_pieces() {
    let text = |text: &str| Piece::Text(text.to_owned());
    let quoted = |text: &str| Piece::Quoted(text.to_owned());
    for (script, expected) in [
        (
            "a\\ b'c d'\"e\"",
            vec![
                text("a"),
                quoted(" "),
                text("b"),
                quoted("c d"),
                Piece::Double(vec![text("e")]),
            ],
        ),
        (
            "\"\\a\\\"\\$b\"",
            vec![Piece::Double(vec![
                text("\\a"),
                quoted("\""),
                quoted("$"),
                text("b"),
            ])],
        ),
        (
            "$a${b}$1c",
            vec![
                Piece::Parameter("$a"),
                Piece::Parameter("${b}"),
                Piece::Parameter("$1"),
                text("c"),
            ],
        ),
        (
            "$(a)`b`<(c)",
            vec![
                Piece::Command("a"),
                Piece::Backquoted("b"),
                Piece::Process("c"),
            ],
        ),
        (
            "$((a))$[b]",
            vec![Piece::Arithmetic("a"), Piece::Bracketed("b")],
        ),
        (
            "$((a);b)$( (c))",
            vec![Piece::Command("(a);b"), Piece::Command(" (c)")],
        ),
        ("$(( \"(\" + 1 ))", vec![Piece::Arithmetic(" \"(\" + 1 ")]),
        (
            "$'a\\'b'$\"c\"",
            vec![Piece::Escaped("a\\'b"), Piece::Translated(vec![text("c")])],
        ),
        ("\"$'a'$\"", vec![Piece::Double(vec![text("$'a'$")])]),
        ("x=a=b", vec![text("x="), text("a=b")]),
        (
            "x[a]=b",
            vec![text("x"), Piece::Subscript("a"), text("="), text("b")],
        ),
        (
            "a+(b|c)d",
            vec![text("a"), Piece::Pattern("b|c"), text("d")],
        ),
    ] {
        let parsed = parse(script).expect(script);
        let Some(Command::Simple(simple)) = parsed
            .first()
            .and_then(|line| line.list.first()?.commands.first())
        else {
            panic!("{script}");
        };
        let [Item::Word(word)] = &simple.items[..] else {
            panic!("{script}");
        };
        assert_eq!(word.pieces, expected, "{script}");
    }
}

#[test]
fn nothing_goes_deeper_or_takes_longer_than_it_may() {
    let nested =
        |open: &str, count: usize, close: &str| open.repeat(count) + "a" + &close.repeat(count);
    for (open, close) in [
        ("( ", ")"),
        ("$(", ")"),
        ("\"$(", ")\""),
        ("{ ", ";}"),
        ("${x-", "}"),
        ("x=$((", "))"),
        ("$[", "]"),
        ("if ", ";then b;fi"),
        ("[[ ! ", " ]]"),
        ("<(", ")"),
        ("case x in b) ", ";;esac"),
        ("f() { ", ";}"),
        ("`\"${x-", "}\"`"),
    ] {
        assert!(
            parse(&nested(open, 8, close)).is_ok() || open.starts_with("[["),
            "{open}"
        );
        let script = nested(open, 5000, close);
        let refused = [
            Unreadable::TooDeep,
            Unreadable::TooMuch,
            Unreadable::Grammar,
        ];
        let read = parse(&script).err();
        assert!(read.is_some_and(|one| refused.contains(&one)), "{open}");
    }
    // Each of them is looked through to the end.
    let many = "((a;".repeat(16_000);
    assert!(matches!(
        parse(&many),
        Err(Unreadable::Grammar | Unreadable::TooDeep)
    ));
    let long = "$((a)b)".repeat(9_000);
    assert!(parse(&long).is_ok());
}
