//! Any bytes to the parser of `POST /execute`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shelly_executor::ExecutorConfig;
use shelly_executor::api::parse_call;

fuzz_target!(|body: &[u8]| {
    let config = ExecutorConfig::default();
    match parse_call(body, &config) {
        Ok(call) => {
            // What got through needs no second look before it becomes a process.
            let options = call.options;
            assert!(
                options
                    .timeout
                    .is_none_or(|limit| !limit.is_zero() && limit <= config.max_timeout)
            );
            assert!(options.working_dir.is_none_or(|dir| dir.is_absolute()));
            for (name, value) in options.env {
                assert!(!name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'));
            }
            // It was JSON, and the whole of the body.
            let value: serde_json::Value = serde_json::from_slice(body).expect("JSON");
            assert_eq!(value["input"], call.input);
        }
        Err(detail) => assert!(!detail.is_empty()),
    }
});
