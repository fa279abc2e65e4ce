//! The SHA-256 (FIPS 180-4) of a file, without any crate. `make` compiles it.

mod shelly_json;

use std::fs::File;
use std::io::{self, Read};
use std::process::ExitCode;

use shelly_json::{parse, quoted};

fn main() -> ExitCode {
    match answer() {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        // Standard error is for people and models to read; the exit code says that it failed.
        Err(why) => {
            eprintln!("checksum: {why}");
            ExitCode::FAILURE
        }
    }
}

fn answer() -> Result<String, String> {
    let input = io::read_to_string(io::stdin()).map_err(|error| error.to_string())?;
    let input = parse(&input)?;
    let path = input.get("file_path").and_then(|path| path.text()).ok_or("there is no `file_path`")?;
    let told = |error: io::Error| format!("cannot read `{path}`: {error}");
    // Before it is opened: a FIFO would wait for somebody to write.
    if !std::fs::metadata(path).map_err(told)?.is_file() {
        return Err(format!("`{path}` is no regular file"));
    }
    let (sum, bytes) = sha256(File::open(path).map_err(told)?).map_err(told)?;
    let digits: String = sum.iter().map(|word| format!("{word:08x}")).collect();
    Ok(format!("{{\"algorithm\": \"sha256\", \"checksum\": {}, \"bytes\": {bytes}}}", quoted(&digits)))
}

/// The sum of all there is to read, and how many bytes that is.
fn sha256(mut from: impl Read) -> io::Result<([u32; 8], u64)> {
    let mut state = roots(8, |root| root.sqrt());
    let rounds: [u32; 64] = roots(64, |root| root.cbrt());
    let (mut block, mut filled, mut bytes) = ([0; 64], 0, 0u64);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
        for &byte in &buffer[..count] {
            block[filled] = byte;
            filled += 1;
            if filled == 64 {
                mix(&mut state, &block, &rounds);
                filled = 0;
            }
        }
    }
    // A one, zeros, and the length in bits at the end of a block.
    block[filled] = 0x80;
    block[filled + 1..].fill(0);
    if filled >= 56 {
        mix(&mut state, &block, &rounds);
        block.fill(0);
    }
    block[56..].copy_from_slice(&(bytes * 8).to_be_bytes());
    mix(&mut state, &block, &rounds);
    Ok((state, bytes))
}

/// The first 32 bits of the fractional parts of the roots of the first `N` primes.
fn roots<const N: usize>(count: usize, root: impl Fn(f64) -> f64) -> [u32; N] {
    let is_prime = |n: &u32| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0);
    let mut all = [0; N];
    for (value, prime) in all.iter_mut().zip((2..).filter(is_prime)).take(count) {
        *value = (root(f64::from(prime)).fract() * 4294967296.0) as u32;
    }
    all
}

fn mix(state: &mut [u32; 8], block: &[u8; 64], rounds: &[u32; 64]) {
    let mut w = [0u32; 64];
    for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    for i in 16..64 {
        let (x, y) = (w[i - 15], w[i - 2]);
        let small = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
        let large = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
        w[i] = w[i - 16].wrapping_add(small).wrapping_add(w[i - 7]).wrapping_add(large);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for i in 0..64 {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let t1 = h.wrapping_add(s1).wrapping_add(choice).wrapping_add(rounds[i]).wrapping_add(w[i]);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let t2 = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *old = old.wrapping_add(new);
    }
}
