//! How the programs are linked, and what they carry.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// In the repository it is laid out for people, a member a line, which is nearly half of it.
const OPENAPI: &str = "src/api/openapi.json";

fn main() -> Result<(), Box<dyn Error>> {
    // Relative relocations, of which there are twenty thousand, as a bitmap: half a mebibyte less. The loader
    // of glibc 2.36 and newer reads it; a linker that cannot write it writes the long form and says so.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    println!("cargo::rerun-if-changed=build.rs");

    // No string of JSON has a line end in it.
    let compact: String = fs::read_to_string(OPENAPI)?
        .lines()
        .map(str::trim_start)
        .collect();
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("openapi.json"),
        compact,
    )?;
    println!("cargo::rerun-if-changed={OPENAPI}");
    Ok(())
}
