//! Any text to both readers of shell scripts.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use shelly_executor::policy::{Fence, Unreadable, read_shell, read_shell_strictly};

fuzz_target!(|script: &str| {
    let strict = read_shell_strictly(script);
    let fence = Fence {
        time_limit: Duration::from_secs(4),
        ..Fence::default()
    };
    let loose = read_shell(script, &fence);
    // What nobody waits for any more comes to an end all the same.
    assert_ne!(loose.as_ref().err(), Some(&Unreadable::TooSlow));
    let Some(segments) = strict else { return };
    for words in &segments {
        assert!(words.iter().any(|word| !word.is_empty()));
        assert!(!words[0].is_empty() && !words[0].contains('='));
    }
    // Whatever may be allowed is seen by what refuses.
    if let Ok(loose) = loose {
        for words in &segments {
            let seen = loose
                .commands
                .iter()
                .any(|command| command.certain && command.text().split(' ').count() >= words.len());
            assert!(seen, "{words:?} is in no command of {loose:?}");
        }
    }
});
