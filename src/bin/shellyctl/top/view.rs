//! How `top` looks, as lines that fit a screen.

use super::model::{Model, Row};
use crate::print::{self, Look, Page};
use crate::{approvals, clock};

const KEYS: &str = "↑ ↓ select   c cancel   a approve   d deny   q quit";

/// The lines of a whole screen.
pub fn lines(model: &Model, message: &str, page: Page, height: usize) -> Vec<String> {
    let asking = model
        .rows
        .iter()
        .filter(|row| row.approval.is_some())
        .count();
    let heading = format!(
        "{} under way, {asking} waiting for approval",
        model.rows.len()
    );
    let mut lines = vec![page.look(Look::Heading, &page.cut(&heading)), String::new()];
    // Heading, message and keys, an empty line after the first and before the others.
    let room = height.saturating_sub(5);
    let card = model
        .selected()
        .map(|row| details(row, page))
        .unwrap_or_default();
    // The table comes first, but leaves half of the room to the card.
    let table = table(
        model,
        page,
        room.saturating_sub(card.len().min(room / 2)).max(2),
    );
    let rest = room.saturating_sub(table.len());
    lines.extend(table);
    let more = match model.selected().is_some_and(|row| row.approval.is_some()) {
        true => "… there is more: see `shellyctl approvals --watch`",
        false => "…",
    };
    lines.extend(fitting(card, rest, &page.cut(more)));
    lines.resize(height.saturating_sub(3).max(lines.len()), String::new());
    lines.extend([
        String::new(),
        page.cut(&print::one_line(message)),
        page.cut(KEYS),
    ]);
    // One line more, and the terminal would take the first away.
    lines.truncate(height);
    lines
}

/// As much of the table as has room, the selected row among it.
fn table(model: &Model, page: Page, room: usize) -> Vec<String> {
    if model.rows.is_empty() {
        return vec![page.cut("nothing runs")];
    }
    let place = model.place();
    let shown = room.saturating_sub(1).max(1);
    let first = (place + 1).saturating_sub(shown);
    let rows: Vec<[String; 5]> = model
        .rows
        .iter()
        .skip(first)
        .take(shown)
        .map(cells)
        .collect();
    let headings = ["STAGE", "AGE", "CALLER", "TOOL", "SUMMARY"];
    let text = page.without_colour().table(headings, &rows);
    let mark = |(at, line): (usize, &str)| match at {
        0 => page.look(Look::Heading, &page.cut(line)),
        at if at == place - first + 1 => page.look(Look::Selected, &page.cut(line)),
        _ => page.cut(line),
    };
    text.lines().enumerate().map(mark).collect()
}

fn cells(row: &Row) -> [String; 5] {
    let stage = match (&row.approval, row.stage.as_str()) {
        (Some(_), _) => "asks",
        // What its status is called where no stage has been told.
        (None, "execution") => "running",
        (None, stage) => stage,
    };
    [
        print::one_line(stage),
        clock::since(&row.since),
        print::one_line(&row.caller),
        print::one_line(&row.tool),
        print::one_line(&row.summary),
    ]
}

/// What there is to know of the selected row.
fn details(row: &Row, page: Page) -> Vec<String> {
    let text = match &row.approval {
        Some(approval) => approvals::card(approval, page),
        None => format!("execution {}", print::one_line(&row.execution_id)),
    };
    // Nobody is to approve the half of a line.
    let lines = text.trim_end().lines().flat_map(|line| page.wrap(line));
    std::iter::once(String::new()).chain(lines).collect()
}

/// Whoever approves what is not all there to be seen must at least know it.
fn fitting(mut lines: Vec<String>, room: usize, more: &str) -> Vec<String> {
    if lines.len() > room {
        lines.truncate(room.saturating_sub(1));
        lines.push(more.to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns;

    fn model(count: usize) -> Model {
        let summaries = (0..count).map(|at| {
            let json = format!(
                r#"{{"execution_id": "e{at}", "status": "running", "tool": "bash", "summary": "sleep {at}", "created_at": "{at:02}"}}"#
            );
            serde_json::from_str(&json).expect("a summary")
        });
        let mut model = Model::default();
        model.reset(summaries.collect(), Vec::new());
        model
    }

    fn screen(model: &Model, height: usize) -> Vec<String> {
        lines(model, "hello", Page::plain(), height)
    }

    #[test]
    fn a_screen_is_filled_and_not_exceeded() {
        for count in [0, 1, 30] {
            for height in [10, 24, 50] {
                let lines = screen(&model(count), height);
                assert_eq!(lines.len(), height, "{count} rows\n{}", lines.join("\n"));
                assert_eq!(lines[height - 2..], ["hello", KEYS]);
            }
        }
    }

    #[test]
    fn no_screen_is_too_small() {
        for (width, height) in [(1, 1), (8, 3), (20, 5), (40, 7), (200, 2)] {
            for count in [0, 1, 30] {
                let page = Page::of_width(width);
                let lines = lines(&model(count), "hello", page, height);
                assert!(lines.len() <= height, "{width}x{height}: {lines:?}");
                let longest = lines.iter().map(|line| columns::width(line)).max();
                assert!(longest <= Some(width), "{width}x{height}: {lines:?}");
            }
        }
    }

    #[test]
    fn the_selected_row_is_always_there() {
        let mut model = model(30);
        for place in 0..30 {
            let lines = screen(&model, 12).join("\n");
            assert!(
                lines.contains(&format!("sleep {place}\n")),
                "{place}:\n{lines}"
            );
            assert!(
                lines.contains(&format!("execution e{place}\n")),
                "{place}:\n{lines}"
            );
            model.step(1);
        }
    }

    #[test]
    fn what_is_to_be_approved_is_shown_or_said_to_be_longer() {
        let mut model = model(1);
        let script = "echo\\n".repeat(40) + "last";
        let approval = format!(
            r#"{{"id": "x", "execution_id": "e0", "status": "pending", "input": {{"command": "{script}"}}}}"#
        );
        model.asked(serde_json::from_str(&approval).expect("an approval"));
        let small = screen(&model, 24).join("\n");
        assert!(
            small.contains("\n… there is more") && small.contains("asks"),
            "{small}"
        );
        let large = screen(&model, 120).join("\n");
        assert!(
            large.contains("    last\n") && !large.contains('…'),
            "{large}"
        );
    }
}
