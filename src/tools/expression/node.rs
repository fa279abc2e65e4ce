//! What an expression is once it is read. Chains are lists, so that only what is nested nests.

use serde_json::Value;

use super::callable::Function;

/// A part of an expression and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub at: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Literal(Value),
    Name(String),
    List(Vec<Node>),
    Dict(Vec<(Node, Node)>),
    /// Members, items and methods of something, from left to right.
    Access(Box<Node>, Vec<(usize, Step)>),
    Call(&'static Function, Vec<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    KeepSign(Box<Node>),
    /// Operators of one rank, from left to right.
    Arithmetic(Box<Node>, Vec<(usize, Operator, Node)>),
    Compare(Box<Node>, Vec<(usize, Comparison, Node)>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Choice(Box<Choice>),
}

/// `then if test else otherwise`.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub test: Node,
    pub then: Node,
    pub otherwise: Node,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Member(String),
    Index(Node),
    Slice(Box<[Option<Node>; 3]>),
    Method(String, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

impl Operator {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::FloorDivide => "//",
            Self::Modulo => "%",
            Self::Power => "**",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    In,
    NotIn,
    Is,
    IsNot,
}

impl Comparison {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
            Self::In => "in",
            Self::NotIn => "not in",
            Self::Is => "is",
            Self::IsNot => "is not",
        }
    }
}
