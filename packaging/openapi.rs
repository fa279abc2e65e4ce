//! Writes what `GET /openapi.json` answers, from the handlers. It is in the repository; the test says when it is
//! not what they make of it any more.
//!
//! `cargo run --example openapi` writes `src/api/openapi.json`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use shelly_executor::api::openapi_document;

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/openapi.json")
}

fn main() -> Result<(), Box<dyn Error>> {
    fs::write(kept(), document()?)?;
    Ok(())
}

fn document() -> serde_json::Result<String> {
    serde_json::to_string_pretty(&openapi_document()).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_what_the_handlers_say() {
        let kept = fs::read_to_string(kept()).expect("in the repository");
        assert!(
            kept == document().expect("JSON"),
            "src/api/openapi.json is not what the handlers make of it: run `cargo run --example openapi`"
        );
    }
}
