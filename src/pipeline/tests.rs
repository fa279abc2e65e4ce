use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::*;
use crate::config::ExecutorConfig;
use crate::domain::{
    Call, Caller, ExecutorError, FailureKind, Stage, Status, ToolDefinition, ToolDetails, Violation,
};
use crate::tools::{Context, Produced, Registry, ToolImpl};

/// A tool that panics where it is told to.
struct Clumsy;

impl ToolImpl for Clumsy {
    fn name(&self) -> &str {
        "clumsy"
    }

    fn details(&self, _config: &ExecutorConfig) -> ToolDetails {
        let definition = ToolDefinition {
            name: self.name().to_owned(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
        };
        ToolDetails::built_in(definition, "test", Duration::from_secs(30))
    }

    fn check(&self, input: &Value) -> Vec<Violation> {
        assert!(input["where"] != "validation", "clumsy");
        Vec::new()
    }

    fn run<'a>(
        &'a self,
        _call: &'a Call,
        _context: Context<'a>,
    ) -> BoxFuture<'a, Result<Produced, ExecutorError>> {
        Box::pin(async { panic!("clumsy") })
    }
}

#[tokio::test]
async fn a_panic_costs_its_own_execution_and_not_the_record_of_it() {
    let executor = Executor::new(ExecutorConfig::default());
    executor.inner.set_registry(Registry::of(Clumsy));
    for (place, stage) in [("validation", Stage::Validation), ("run", Stage::Execution)] {
        let call = Call::new("clumsy", json!({"where": place}));
        let begun = executor.begin(call, Caller::this_process(), Terms::default());
        let Begun::New(execution) = begun.await else {
            panic!("not begun");
        };
        let finished = execution.wait().await;
        assert_eq!(finished.status, Status::Failed);
        let failure = finished.failure.as_ref().expect("a failure");
        assert_eq!(
            (failure.kind, failure.stage),
            (FailureKind::Internal, Some(stage))
        );
    }
    // Whoever waits for the end of all executions is not kept waiting.
    executor.shut_down(Duration::from_secs(600)).await;
    assert_eq!(executor.running(), 0);
}

#[tokio::test]
async fn what_is_remembered_without_a_ledger_is_filtered_like_history() {
    let executor = Executor::new(ExecutorConfig::default());
    for command in ["echo apples", "echo pears; exit 1"] {
        let call = Call::new("bash", json!({"command": command}));
        let begun = executor.begin(call, Caller::this_process(), Terms::default());
        let Begun::New(execution) = begun.await else {
            panic!("not begun");
        };
        execution.wait().await;
    }
    let found = async |filter: Filter| {
        let page = executor.history(filter).await.expect("words");
        let commands = page.executions.into_iter();
        let commands = commands.map(|brief| brief.summary);
        commands.collect::<Vec<_>>()
    };
    let text = |text: &str| Filter {
        text: Some(text.to_owned()),
        ..Filter::default()
    };
    let (apples, pears) = ("echo apples".to_owned(), "echo pears; exit 1".to_owned());
    assert_eq!(found(Filter::default()).await, [&*pears, &*apples]);
    assert_eq!(found(text("APPLES")).await, [&*apples]);
    assert_eq!(found(text("echo pear*")).await, [&*pears]);
    let failed = Filter {
        status: Some(Status::Error),
        ..Filter::default()
    };
    assert_eq!(found(failed).await, [pears]);
    let other = Filter {
        tool: Some("read_file".to_owned()),
        ..Filter::default()
    };
    assert!(found(other).await.is_empty());
    assert!(executor.history(text("&&")).await.is_err());
}
