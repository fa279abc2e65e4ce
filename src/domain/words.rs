/// An enum whose values are words: each has one, the same in JSON, in the ledger, in the journal and in messages.
// The words are `tt`: utoipa does not see through the group that a `literal` becomes.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$about:meta])* $value:ident = $word:tt,)+
    }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        $(#[$meta])*
        $vis enum $name {
            $($(#[$about])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// Every one of them, in order.
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            /// The word for it.
            $vis fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }

            /// The one that a word stands for.
            $vis fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$value),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::domain::FailureKind;

    #[test]
    fn a_word_is_the_same_everywhere_and_leads_back() {
        for kind in FailureKind::ALL {
            let word = kind.as_str();
            assert_eq!(serde_json::to_value(kind).expect("a word"), word);
            assert_eq!(FailureKind::from_word(word), Some(kind));
        }
        assert_eq!(FailureKind::from_word("ShutDown"), None);
    }
}
