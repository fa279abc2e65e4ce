//! What `exec` and `call` can ask for besides what is run: time limit, directory, environment.

use std::path::Path;

use shelly_executor::client::Call;

use crate::args::CallOptions;
use crate::failure::Failure;

/// The call with those options.
pub fn with(options: CallOptions, mut call: Call) -> Result<Call, Failure> {
    call.timeout_secs = options.timeout;
    call.working_dir = options.cwd.as_deref().map(absolute).transpose()?;
    call.env = options.env.into_iter().collect();
    call.risk_level = options.untrusted.then(|| "untrusted".to_owned());
    call.workspace = options.workspace.as_deref().map(absolute).transpose()?;
    (call.trace_id, call.tenant_id) = (options.trace, options.tenant);
    Ok(call)
}

/// A relative directory is meant from here, not from where the daemon stands.
fn absolute(cwd: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(cwd).and_then(|absolute| {
        let not_text = || std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8");
        absolute
            .into_os_string()
            .into_string()
            .map_err(|_| not_text())
    });
    absolute.map_err(|source| Failure::Cwd {
        cwd: cwd.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_directory_is_meant_from_here() {
        let here = std::env::current_dir().expect("succeeds");
        assert_eq!(
            absolute(Path::new("x/y")).expect("succeeds"),
            here.join("x/y").to_str().expect("succeeds")
        );
        assert_eq!(absolute(Path::new("/tmp")).expect("succeeds"), "/tmp");
    }
}
