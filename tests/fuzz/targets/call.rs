//! The body of `POST /execute`: any bytes are a call within its bounds, or a refusal that says why.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shelly_executor::ExecutorConfig;
use shelly_executor::api::parse_call;

fuzz_target!(|body: &[u8]| {
    let config = ExecutorConfig::default();
    match parse_call(body, &config) {
        Ok(call) => {
            let options = &call.options;
            assert!(
                options
                    .timeout
                    .is_none_or(|limit| !limit.is_zero() && limit <= config.max_timeout)
            );
            assert!(
                options
                    .working_dir
                    .as_ref()
                    .is_none_or(|dir| dir.is_absolute())
            );
            for (name, value) in &options.env {
                assert!(!name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'));
            }
        }
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
});
