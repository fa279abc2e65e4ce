//! Greets whoever is named.
//!
//! Standard input is the call's input as JSON, standard output is the answer as JSON, and standard error is for whoever reads
//! of a failure, together with an exit code other than 0. With more to do than this, make it a crate with serde_json.

mod shelly_json;

use std::io;
use std::process::ExitCode;

use shelly_json::{parse, quoted};

fn main() -> ExitCode {
    match answer() {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn answer() -> Result<String, String> {
    let input = io::read_to_string(io::stdin()).map_err(|error| error.to_string())?;
    let input = parse(&input)?;
    let name = input.get("name").and_then(|name| name.text());
    let greeting = format!("Hello, {}!", name.unwrap_or("World"));
    Ok(format!("{{\"greeting\": {}}}", quoted(&greeting)))
}
