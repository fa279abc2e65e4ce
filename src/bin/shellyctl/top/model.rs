//! What `top` knows: a row for each execution under way, kept up to date by events, and which of
//! them is selected. Knows neither the daemon nor the terminal.

use shelly_executor::client::{Approval, Happening, Summary};

use crate::print;

/// An execution under way, or only its approval where that is all this user may see.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub execution_id: String,
    /// The stage it is in, or its status while no stage has been told.
    pub stage: String,
    /// When it came in.
    pub since: String,
    pub tool: String,
    pub caller: String,
    pub summary: String,
    /// What it waits for.
    pub approval: Option<Approval>,
}

/// All rows, oldest first, and the one that keys act upon.
#[derive(Debug, Default)]
pub struct Model {
    pub rows: Vec<Row>,
    selected: Option<String>,
}

/// What an event leaves to be found out.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Nothing,
    /// Ask for this approval.
    Approval(String),
}

impl Model {
    /// Begins anew with what the daemon lists.
    pub fn reset(&mut self, mut executions: Vec<Summary>, approvals: Vec<Approval>) {
        executions.sort_by(|one, other| one.created_at.cmp(&other.created_at));
        self.rows = executions.into_iter().map(Row::from).collect();
        for approval in approvals {
            self.asked(approval);
        }
    }

    /// Takes up an event.
    pub fn take(&mut self, happening: &Happening) -> Next {
        if let Some(id) = happening.text("approval_id") {
            if happening.kind == "confirmationRequired" {
                return Next::Approval(id.to_owned());
            }
            self.answered(id);
            return Next::Nothing;
        }
        let Some(execution_id) = &happening.execution_id else {
            return Next::Nothing;
        };
        match happening.kind.as_str() {
            "executionStarted" => self.started(execution_id, happening),
            "stageStarted" => {
                let row = self
                    .rows
                    .iter_mut()
                    .find(|row| row.execution_id == *execution_id);
                if let (Some(row), Some(stage)) = (row, happening.text("stage")) {
                    stage.clone_into(&mut row.stage);
                }
            }
            "executionCompleted" | "executionFailed" | "executionAborted" => {
                self.rows.retain(|row| row.execution_id != *execution_id);
            }
            _ => {}
        }
        Next::Nothing
    }

    /// An approval is pending, or is no more.
    pub fn asked(&mut self, approval: Approval) {
        if !approval.is_pending() {
            return self.answered(&approval.id);
        }
        let row = self
            .rows
            .iter_mut()
            .find(|row| row.execution_id == approval.execution_id);
        match row {
            Some(row) => row.approval = Some(approval),
            None => self.rows.push(Row::from(approval)),
        }
    }

    fn answered(&mut self, id: &str) {
        let is_its = |row: &Row| {
            row.approval
                .as_ref()
                .is_some_and(|approval| approval.id == id)
        };
        // Without its approval, such a row has nothing that would ever take it away.
        self.rows.retain(|row| !is_its(row) || row.stage != ASKED);
        if let Some(row) = self.rows.iter_mut().find(|row| is_its(row)) {
            row.approval = None;
        }
    }

    fn started(&mut self, execution_id: &str, happening: &Happening) {
        if self
            .rows
            .iter()
            .any(|row| row.execution_id == *execution_id)
        {
            return;
        }
        self.rows.push(Row {
            execution_id: execution_id.to_owned(),
            stage: "started".to_owned(),
            since: happening.time.clone(),
            tool: happening.tool.clone().unwrap_or_default(),
            caller: caller(happening.caller_uid),
            summary: happening.text("summary").unwrap_or_default().to_owned(),
            approval: None,
        });
    }

    /// The place of the selected row: the first, where that is gone or none was selected.
    pub fn place(&self) -> usize {
        let of = |id: &String| self.rows.iter().position(|row| row.execution_id == *id);
        self.selected.as_ref().and_then(of).unwrap_or_default()
    }

    /// The row that keys act upon. It is the same however the others move.
    pub fn selected(&self) -> Option<&Row> {
        self.rows.get(self.place())
    }

    /// Selects the row so many places further down, or up.
    pub fn step(&mut self, places: isize) {
        let last = self.rows.len().saturating_sub(1);
        let place = self.place().saturating_add_signed(places).min(last);
        self.selected = self.rows.get(place).map(|row| row.execution_id.clone());
    }

    /// Keeps the selection where it is, also when rows come before it.
    pub fn hold(&mut self) {
        self.step(0);
    }
}

/// The stage of a row that is only an approval.
const ASKED: &str = "approval";

fn caller(uid: Option<u32>) -> String {
    uid.map(print::user).unwrap_or_default()
}

impl From<Summary> for Row {
    fn from(summary: Summary) -> Self {
        Self {
            execution_id: summary.execution_id,
            stage: summary.status,
            since: summary.created_at,
            tool: summary.tool,
            caller: caller(summary.caller_uid),
            summary: summary.summary,
            approval: None,
        }
    }
}

impl From<Approval> for Row {
    fn from(approval: Approval) -> Self {
        Self {
            execution_id: approval.execution_id.clone(),
            stage: ASKED.to_owned(),
            since: approval.created_at.clone().unwrap_or_default(),
            tool: approval.tool.clone(),
            caller: caller(approval.caller_uid),
            summary: approval.summary.clone(),
            approval: Some(approval),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(id: &str, created_at: &str) -> Summary {
        let json = format!(
            r#"{{"execution_id": "{id}", "status": "running", "tool": "bash", "created_at": "{created_at}"}}"#
        );
        serde_json::from_str(&json).expect("a summary")
    }

    fn approval(id: &str, execution_id: &str, status: &str) -> Approval {
        let json =
            format!(r#"{{"id": "{id}", "execution_id": "{execution_id}", "status": "{status}"}}"#);
        serde_json::from_str(&json).expect("an approval")
    }

    fn happening(kind: &str, more: &str) -> Happening {
        let json = format!(r#"{{"number": 1, "type": "{kind}", "time": "now", {more}}}"#);
        serde_json::from_str(&json).expect("an event")
    }

    fn ids(model: &Model) -> Vec<&str> {
        model
            .rows
            .iter()
            .map(|row| row.execution_id.as_str())
            .collect()
    }

    #[test]
    fn rows_come_and_go_with_their_executions() {
        let mut model = Model::default();
        model.reset(vec![summary("2", "b"), summary("1", "a")], Vec::new());
        assert_eq!(ids(&model), ["1", "2"]);
        for _ in 0..2 {
            model.take(&happening(
                "executionStarted",
                r#""execution_id": "3", "summary": "df""#,
            ));
        }
        model.take(&happening(
            "stageStarted",
            r#""execution_id": "3", "stage": "execution""#,
        ));
        model.take(&happening("executionCompleted", r#""execution_id": "1""#));
        model.take(&happening("executionAborted", r#""execution_id": "9""#));
        assert_eq!(ids(&model), ["2", "3"]);
        assert_eq!(
            (model.rows[1].stage.as_str(), model.rows[1].summary.as_str()),
            ("execution", "df")
        );
    }

    #[test]
    fn an_approval_belongs_to_its_execution_or_stands_alone() {
        let mut model = Model::default();
        let pending = vec![approval("x", "1", "pending"), approval("y", "8", "pending")];
        model.reset(vec![summary("1", "a")], pending);
        assert_eq!(ids(&model), ["1", "8"]);
        let asks = happening("confirmationRequired", r#""approval_id": "z""#);
        assert_eq!(model.take(&asks), Next::Approval("z".to_owned()));
        model.take(&happening("confirmationDecided", r#""approval_id": "x""#));
        assert_eq!(
            (ids(&model), model.rows[0].approval.as_ref()),
            (vec!["1", "8"], None)
        );
        model.asked(approval("y", "8", "denied"));
        assert_eq!(ids(&model), ["1"]);
    }

    #[test]
    fn the_selection_stays_on_its_row() {
        let mut model = Model::default();
        model.hold();
        assert!(model.selected().is_none());
        model.reset(vec![summary("2", "b"), summary("3", "c")], Vec::new());
        model.step(5);
        assert_eq!(model.place(), 1);
        model.reset(
            vec![summary("1", "a"), summary("2", "b"), summary("3", "c")],
            Vec::new(),
        );
        assert_eq!(model.place(), 2);
        model.take(&happening("executionCompleted", r#""execution_id": "3""#));
        model.hold();
        assert_eq!(model.place(), 0);
        model.step(-1);
        assert_eq!(
            model.selected().map(|row| row.execution_id.as_str()),
            Some("1")
        );
    }
}
