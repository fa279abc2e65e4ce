//! A script on its way to who reads it, and what was found in it on its way back, in JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::command::Packed;
use super::loose::Reader;
use super::{Command, Reading, Setting, Shell, Unreadable};

#[derive(Serialize, Deserialize)]
struct Script<'a> {
    text: Cow<'a, str>,
    shell: Shell,
    input: Option<Cow<'a, str>>,
    variables: Cow<'a, BTreeMap<String, String>>,
}

#[derive(Serialize, Deserialize)]
struct Found<'a> {
    commands: Packed<'a>,
    writes: Cow<'a, [Option<String>]>,
    moves: bool,
    may_move: bool,
}

/// A script for [`read_packed`].
pub(super) fn pack(script: &str, setting: Setting<'_>) -> Vec<u8> {
    in_json(&Script {
        text: Cow::Borrowed(script),
        shell: setting.shell,
        input: setting.input.map(Cow::Borrowed),
        variables: Cow::Borrowed(setting.variables),
    })
}

/// Reads a script that [`ReadScripts::read`](super::ReadScripts::read) was given, here and now, in as much stack, time and
/// memory as it takes. Answers what that is to answer.
pub fn read_packed(script: &[u8]) -> Vec<u8> {
    let reading = match serde_json::from_slice::<Script<'_>>(script) {
        Ok(script) => {
            let setting = Setting {
                shell: script.shell,
                input: script.input.as_deref(),
                variables: &script.variables,
            };
            Reader::new(setting).read(&script.text)
        }
        Err(_) => Err(Unreadable::Died),
    };
    let found = reading.as_ref().map(|reading| Found {
        commands: Command::pack(&reading.commands),
        writes: Cow::Borrowed(&reading.writes),
        moves: reading.moves,
        may_move: reading.may_move,
    });
    in_json(&found)
}

/// What was found, as [`read_packed`] says.
pub(super) fn unpack(reading: &[u8]) -> Result<Reading, Unreadable> {
    let found: Result<Found<'_>, Unreadable> =
        serde_json::from_slice(reading).map_err(|_| Unreadable::Died)?;
    let found = found?;
    Ok(Reading {
        commands: Command::unpack(&found.commands).ok_or(Unreadable::Died)?,
        writes: found.writes.into_owned(),
        moves: found.moves,
        may_move: found.may_move,
    })
}

fn in_json(value: &impl Serialize) -> Vec<u8> {
    // INVARIANT: these have no maps but those with texts for keys, and nothing in them fails by itself.
    serde_json::to_vec(value).expect("texts, numbers and truths")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Result<Reading, Unreadable> {
        let none = BTreeMap::new();
        let setting = Setting {
            shell: Shell::Bash,
            input: None,
            variables: &none,
        };
        Reader::new(setting).read(script)
    }

    #[test]
    fn what_was_found_comes_back_as_it_was() {
        for script in [
            "nice env a=b \"c d\" $x; echo $(ls -l) > \"$f\" 2> /tmp/ö; cd /; (ls; ls)",
            "sudo sudo sudo x | tee y >| z",
            "",
            "if",
        ] {
            let packed = pack(script, Setting::new(Shell::Bash, None));
            let came_back = unpack(&read_packed(&packed));
            assert_eq!(came_back, read(script), "{script}");
            let known = |reading: &Reading| {
                let commands = reading.commands.iter();
                commands.map(Command::is_known).collect::<Vec<_>>()
            };
            assert_eq!(
                came_back.as_ref().map(known),
                read(script).as_ref().map(known),
                "{script}"
            );
        }
    }

    #[test]
    fn commands_share_a_text_behind_the_way_as_before_it() {
        let packed = pack("sudo nice env true", Setting::new(Shell::Bash, None));
        let commands = unpack(&read_packed(&packed)).expect("readable").commands;
        let (whole, last) = (commands.first(), commands.last());
        assert!(
            last.zip(whole)
                .is_some_and(|(last, whole)| last.ends(whole)),
            "{commands:?}"
        );
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for text in [
            "",
            "{}",
            "{\"Ok\":{}}",
            "{\"Ok\":{\"commands\":{\"texts\":[\"ä\"],\"commands\":[[0,1,2,true,true]]},\"writes\":[],\"moves\":false,\"may_move\":false}}",
            "{\"Ok\":{\"commands\":{\"texts\":[],\"commands\":[[0,0,0,true,true]]},\"writes\":[],\"moves\":false,\"may_move\":false}}",
        ] {
            assert_eq!(unpack(text.as_bytes()), Err(Unreadable::Died), "{text}");
        }
        assert_eq!(unpack(&read_packed(b"[]")), Err(Unreadable::Died));
    }
}
