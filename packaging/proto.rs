//! Writes what the daemon needs of its gRPC contract, from the contract: the Rust code, and the descriptor
//! that reflection hands out. Both are in the repository, so that building the programs takes neither
//! this nor `protoc`; the test says when they are not what the contract makes of them any more.
//!
//! `cargo run --example proto` writes `src/grpc/generated`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use protox::Compiler;
use protox::prost::Message;

/// The contract, below where its names begin.
const CONTRACT: &str = "shelly/executor/v1/executor.proto";

/// What reflection hands out of it.
const DESCRIPTOR: &str = "descriptor.bin";

fn grpc() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/grpc")
}

fn main() -> Result<(), Box<dyn Error>> {
    generate(&grpc().join("generated"))
}

fn generate(out: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out)?;
    let mut compiler = Compiler::new([grpc().join("proto")])?;
    compiler.open_file(CONTRACT)?;
    fs::write(
        out.join(DESCRIPTOR),
        compiler.file_descriptor_set().encode_to_vec(),
    )?;
    // Comments become documentation, which the descriptor does without.
    compiler.include_source_info(true);
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .codec_path("crate::grpc::codec::Codec")
        .out_dir(out)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_generated_is_what_the_contract_says() {
        let scratch = std::env::temp_dir().join(format!("shelly-proto-{}", std::process::id()));
        generate(&scratch).expect("generated");
        for file in ["shelly.executor.v1.rs", DESCRIPTOR] {
            let fresh = fs::read(scratch.join(file)).expect("generated");
            let kept = fs::read(grpc().join("generated").join(file)).expect("in the repository");
            assert!(
                fresh == kept,
                "src/grpc/generated/{file} is not what {CONTRACT} makes of it: run `cargo run --example proto`"
            );
        }
        fs::remove_dir_all(&scratch).expect("ours");
    }
}
