//! How the programs are linked.

fn main() {
    // Relative relocations, of which there are twenty thousand, as a bitmap: half a mebibyte less. The loader
    // of glibc 2.36 and newer reads it; a linker that cannot write it writes the long form and says so.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    println!("cargo::rerun-if-changed=build.rs");
}
