//! What is long in a list, cut to what a person reads of it.

use serde_json::Value;

use crate::domain::CUT_MARK;

/// How much of one text is left, in bytes: some screens.
const TEXT: usize = 4 << 10;

/// How much of all that is together in an entry. A thousand entries are no more than one long call.
const ALL: usize = 16 << 10;

/// What counts for as much at the least, however short: a number, a bracket.
const LEAST: usize = 8;

/// Cuts what is in one entry.
pub(super) struct Cutter {
    /// How much may still stay.
    left: usize,
    /// Whether anything was cut.
    pub(super) has_cut: bool,
}

impl Default for Cutter {
    fn default() -> Self {
        Self {
            left: ALL,
            has_cut: false,
        }
    }
}

impl Cutter {
    pub(super) fn text(&mut self, text: &mut String) {
        let most = TEXT.min(self.left);
        if text.len() > most {
            text.truncate(text.floor_char_boundary(most));
            text.push_str(CUT_MARK);
            text.shrink_to_fit();
            self.has_cut = true;
        }
        self.take(text.len());
    }

    /// What there is no room for is left out.
    pub(super) fn texts(&mut self, texts: &mut Vec<String>) {
        self.items(texts, Self::text);
    }

    pub(super) fn value(&mut self, value: &mut Value) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.take(LEAST),
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.take(LEAST);
                self.items(items, Self::value);
            }
            Value::Object(members) => {
                self.take(LEAST);
                members.retain(|name, value| {
                    let fits = name.len() < self.left;
                    if fits {
                        self.take(name.len());
                        self.value(value);
                    }
                    self.has_cut |= !fits;
                    fits
                });
            }
        }
    }

    fn items<T>(&mut self, items: &mut Vec<T>, cut: impl Fn(&mut Self, &mut T)) {
        let mut kept = 0;
        for item in items.iter_mut() {
            if self.left == 0 {
                self.has_cut = true;
                break;
            }
            cut(self, item);
            kept += 1;
        }
        items.truncate(kept);
        items.shrink_to_fit();
    }

    fn take(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes.max(LEAST));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is left of it, and whether anything was cut.
    fn cut(mut value: Value) -> (Value, bool) {
        let mut cutter = Cutter::default();
        cutter.value(&mut value);
        (value, cutter.has_cut)
    }

    #[test]
    fn what_is_short_stays_as_it_is() {
        let call = json!({"command": "x".repeat(TEXT), "n": [1, null, {"deep": ["é", true]}]});
        assert_eq!(cut(call.clone()), (call, false));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character_and_marked() {
        let (left, has_cut) = cut(json!("x".to_owned() + &"é".repeat(TEXT)));
        let expected = "x".to_owned() + &"é".repeat(TEXT / 2 - 1) + CUT_MARK;
        assert_eq!((left, has_cut), (json!(expected), true));
    }

    #[test]
    fn however_it_is_long_little_is_left_of_it() {
        let many = 1 << 18;
        for long in [
            json!("x".repeat(many)),
            json!(vec!["x".repeat(TEXT); 64]),
            json!(vec![1; many]),
            json!(vec![""; many]),
            json!(vec![json!([]); many]),
            json!({"x".repeat(many): 1}),
            Value::Object((0..many).map(|n| (n.to_string(), json!({}))).collect()),
        ] {
            let (left, has_cut) = cut(long);
            let length = left.to_string().len();
            assert!(has_cut && length < 4 * ALL, "{length}: {has_cut}");
        }
    }

    #[test]
    fn beside_a_long_text_others_are_told() {
        let (left, _) = cut(json!({"a": "x".repeat(1 << 20), "command": "rm"}));
        assert_eq!(left["command"], "rm");
    }
}
