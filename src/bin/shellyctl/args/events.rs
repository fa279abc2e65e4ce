//! The arguments of what is told of the daemon's work: the feed of events and the audit trail.

use std::time::SystemTime;

use clap::Subcommand;
use shelly_executor::client::EVENT_TYPES;

use super::number::number;
use super::when::when;

/// Which events to show.
#[derive(Debug, clap::Args)]
pub struct EventsArgs {
    /// Show what happens from now on, until interrupted
    #[arg(short, long)]
    pub follow: bool,

    /// Only those of the execution with this id
    #[arg(long, value_name = "ID")]
    pub execution: Option<String>,

    /// Only those of this tool
    #[arg(long)]
    pub tool: Option<String>,

    /// Only those of these types; several with commas between
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = EVENT_TYPES)]
    pub types: Vec<String>,

    /// Only those after the event with this number, with --follow those from before now too
    #[arg(long, value_name = "N", value_parser = number::<u64>, allow_negative_numbers = true)]
    pub after: Option<u64>,
}

/// The commands of `shellyctl audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that nobody has changed the audit trail
    ///
    /// Every record has the hash of the one before it. An end that was cut away, or written anew, while the
    /// daemon was down is shown by what was noted of it elsewhere: by the journal, where the daemon notes the
    /// last record's number and hash every thousand records and when it stops, or by what an earlier check
    /// printed. The exit status is 0 when the trail is intact and 1 when it is not.
    Verify {
        /// A record that the trail must have, as an earlier check printed it, in place of those in the
        /// journal; several with commas between
        #[arg(long, value_name = "NUMBER:HASH", value_parser = audit_head, value_delimiter = ',', conflicts_with = "unit")]
        head: Vec<String>,

        /// The unit whose journal says what the trail must have [default: shelly-executor.service, for the
        /// daemon on its usual socket]
        #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        unit: Option<String>,

        /// Compare only with heads noted in the journal at this time or later: after a power cut or a restored
        /// backup, which lose records that the journal still knows of
        ///
        /// A time is one as `shellyctl history --since` takes it.
        #[arg(long, value_name = "TIME", value_parser = when, conflicts_with = "head")]
        since: Option<SystemTime>,
    },

    /// Print the audit trail as lines of JSON
    Export {
        /// Only what comes after the record with this number
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::<u64>, allow_negative_numbers = true)]
        after: u64,
    },
}

/// Takes what names a record of the trail, `NUMBER:HASH`.
pub fn audit_head(text: &str) -> Result<String, String> {
    let holds = text.split_once(':').is_some_and(|(number, hash)| {
        number.parse::<u64>().is_ok()
            && !hash.is_empty()
            && hash.chars().all(|c| c.is_ascii_hexdigit())
    });
    if holds {
        Ok(text.to_owned())
    } else {
        Err("not a number, a colon and a hash in hexadecimal".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_a_number_and_a_hash() {
        assert!(audit_head("12:00ffA9").is_ok());
        for wrong in ["", "12", "12:", ":ff", "x:ff", "12:xy", "12:ff:ff"] {
            assert!(audit_head(wrong).is_err(), "{wrong}");
        }
    }
}
