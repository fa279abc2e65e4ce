//! A tree and a scope to a value.

use serde_json::{Map, Value};

use super::budget::Budget;
use super::callable::{kind, text_of, whole};
use super::measure::{ITEM_BYTES, MEMBER_BYTES, OBJECT_BYTES, TEXT_BYTES, cost};
use super::node::{Comparison, Kind, Node, Step};
use super::scope::Scope;
use super::{Fault, methods, operators};

/// How many names an error lists.
const LISTED: usize = 20;

/// A value, its own or somebody's: what is given is not copied before it must be.
enum Item<'s> {
    Given(&'s Value, Option<&'s Map<String, Value>>),
    Made(Value),
}

impl<'s> Item<'s> {
    fn value(&self) -> &Value {
        match self {
            Self::Given(value, _) => value,
            Self::Made(value) => value,
        }
    }

    fn into_value(self, budget: &mut Budget) -> Result<Value, String> {
        match self {
            Self::Given(value, _) => budget.copy(value),
            Self::Made(value) => Ok(value),
        }
    }

    /// A part of it, which `find` finds.
    fn part(
        self,
        budget: &mut Budget,
        find: impl for<'v> Fn(&'v Value) -> Option<&'v Value>,
    ) -> Result<Option<Item<'s>>, String> {
        match self {
            Self::Given(value, _) => Ok(find(value).map(|part| Item::Given(part, None))),
            Self::Made(value) => match find(&value) {
                Some(part) => budget.copy(part).map(|part| Some(Item::Made(part))),
                None => Ok(None),
            },
        }
    }
}

type Evaluated<T> = Result<T, Fault>;

/// What `node` amounts to.
pub(super) fn value(node: &Node, scope: &dyn Scope, budget: &mut Budget) -> Evaluated<Value> {
    let mut evaluation = Evaluation { scope, budget };
    let value = evaluation.item(node)?;
    let value = value.into_value(evaluation.budget).map_err(at(node.at))?;
    // What was put together of parts may nest more deeply than each.
    cost(&value).map_err(at(node.at))?;
    Ok(value)
}

/// Says where something went wrong.
fn at(at: usize) -> impl Fn(String) -> Fault {
    move |detail| Fault { at, detail }
}

struct Evaluation<'s, 'b> {
    scope: &'s dyn Scope,
    budget: &'b mut Budget,
}

impl<'s> Evaluation<'s, '_> {
    fn item(&mut self, node: &Node) -> Evaluated<Item<'s>> {
        self.budget.work(0).map_err(at(node.at))?;
        let made = match &node.kind {
            Kind::Name(name) => return self.name(name).map_err(at(node.at)),
            Kind::Access(of, steps) => return self.access(of, steps),
            Kind::And(operands) => return self.first(operands, |value| !operators::truth(value)),
            Kind::Or(operands) => return self.first(operands, operators::truth),
            Kind::Choice(choice) => {
                let holds = operators::truth(self.item(&choice.test)?.value());
                let branch = if holds {
                    &choice.then
                } else {
                    &choice.otherwise
                };
                return self.item(branch);
            }
            Kind::Literal(value) => self.budget.copy(value).map_err(at(node.at))?,
            Kind::List(items) => self.list(node.at, items)?,
            Kind::Dict(members) => self.dict(node.at, members)?,
            Kind::Call(function, args) => {
                let args = self.items(args)?;
                let args: Vec<&Value> = args.iter().map(Item::value).collect();
                (function.run)(&(), &args, self.budget).map_err(at(node.at))?
            }
            Kind::Not(operand) => Value::Bool(!operators::truth(self.item(operand)?.value())),
            Kind::Negate(operand) => {
                let operand = self.item(operand)?;
                operators::negate(operand.value()).map_err(at(node.at))?
            }
            Kind::KeepSign(operand) => {
                let operand = self.item(operand)?;
                operators::keep_sign(operand.value()).map_err(at(node.at))?
            }
            Kind::Arithmetic(first, rest) => {
                let mut left = self.item(first)?;
                for (place, operator, operand) in rest {
                    let right = self.item(operand)?;
                    let both = (left.value(), right.value());
                    let made = operators::compute(*operator, both, self.budget);
                    left = Item::Made(made.map_err(at(*place))?);
                }
                return Ok(left);
            }
            Kind::Compare(first, rest) => self.compare(first, rest)?,
        };
        Ok(Item::Made(made))
    }

    fn items(&mut self, nodes: &[Node]) -> Evaluated<Vec<Item<'s>>> {
        nodes.iter().map(|node| self.item(node)).collect()
    }

    /// The value of `node`, its own.
    fn owned(&mut self, node: &Node) -> Evaluated<Value> {
        let item = self.item(node)?;
        item.into_value(self.budget).map_err(at(node.at))
    }

    fn name(&mut self, name: &str) -> Result<Item<'s>, String> {
        let found = self.scope.find(name);
        let (value, members) = found
            .ok_or_else(|| format!("`{name}` is not there: {}", listed(&self.scope.names())))?;
        Ok(Item::Given(value, members))
    }

    fn list(&mut self, place: usize, items: &[Node]) -> Evaluated<Value> {
        let bytes = TEXT_BYTES + items.len() * ITEM_BYTES;
        self.budget.make(bytes).map_err(at(place))?;
        let items: Result<_, _> = items.iter().map(|item| self.owned(item)).collect();
        items.map(Value::Array)
    }

    fn dict(&mut self, place: usize, members: &[(Node, Node)]) -> Evaluated<Value> {
        self.budget.make(OBJECT_BYTES).map_err(at(place))?;
        let mut dict = Map::new();
        for (name, value) in members {
            let key = self.item(name)?;
            let key = text_of("the key of a dict", key.value())
                .map_err(at(name.at))?
                .to_owned();
            let bytes = MEMBER_BYTES + key.len();
            self.budget.make(bytes).map_err(at(place))?;
            dict.insert(key, self.owned(value)?);
        }
        Ok(Value::Object(dict))
    }

    /// The first of `operands` that is `wanted`, else the last; those behind it are not looked at.
    fn first(&mut self, operands: &[Node], wanted: fn(&Value) -> bool) -> Evaluated<Item<'s>> {
        let mut last = Item::Made(Value::Null);
        for operand in operands {
            last = self.item(operand)?;
            if wanted(last.value()) {
                break;
            }
        }
        Ok(last)
    }

    fn compare(&mut self, first: &Node, rest: &[(usize, Comparison, Node)]) -> Evaluated<Value> {
        let mut left = self.item(first)?;
        for (place, comparison, operand) in rest {
            let right = self.item(operand)?;
            let both = (left.value(), right.value());
            if !operators::compare(*comparison, both, self.budget).map_err(at(*place))? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn access(&mut self, of: &Node, steps: &[(usize, Step)]) -> Evaluated<Item<'s>> {
        let mut item = self.item(of)?;
        for (place, step) in steps {
            let place = *place;
            self.budget.work(0).map_err(at(place))?;
            item = match step {
                Step::Member(name) => self.member(item, name).map_err(at(place))?,
                Step::Index(index) => {
                    let index = self.item(index)?;
                    self.index(item, index.value()).map_err(at(place))?
                }
                Step::Slice(parts) => {
                    let mut bounds = [None; 3];
                    for (bound, part) in bounds.iter_mut().zip(parts.iter()) {
                        *bound = match part {
                            Some(node) => self.bound(node)?,
                            None => None,
                        };
                    }
                    let slice = methods::slice(item.value(), bounds, self.budget);
                    Item::Made(slice.map_err(at(place))?)
                }
                Step::Method(name, args) => {
                    let args = self.items(args)?;
                    let args: Vec<&Value> = args.iter().map(Item::value).collect();
                    let made = methods::call(item.value(), name, &args, self.budget);
                    Item::Made(made.map_err(at(place))?)
                }
            };
        }
        Ok(item)
    }

    /// A bound of a slice; None is none.
    fn bound(&mut self, node: &Node) -> Evaluated<Option<i64>> {
        let item = self.item(node)?;
        if item.value().is_null() {
            return Ok(None);
        }
        let bound = whole("a bound", item.value());
        bound.map(Some).map_err(at(node.at))
    }

    fn member(&mut self, item: Item<'s>, name: &str) -> Result<Item<'s>, String> {
        if let Item::Given(value, Some(members)) = &item
            && value.get(name).is_none()
            && let Some(member) = members.get(name)
        {
            return Ok(Item::Given(member, None));
        }
        if !has_member(&item, name) {
            let kind = kind(item.value());
            let others = listed(&member_names(&item));
            return Err(format!("{kind} has no member `{name}`: {others}"));
        }
        let part = item.part(self.budget, |value| value.get(name))?;
        part.ok_or_else(|| format!("there is no member `{name}`"))
    }

    fn index(&mut self, item: Item<'s>, index: &Value) -> Result<Item<'s>, String> {
        let has_members = matches!(item, Item::Given(_, Some(_))) && index.is_string();
        if item.value().is_object() || has_members {
            let name = text_of("the key", index)?;
            if !has_member(&item, name) {
                // The key may be a secret, and so may the keys of what was made here.
                return Err(format!("{} has no such member", kind(item.value())));
            }
            return self.member(item, name);
        }
        let length = match item.value() {
            Value::Array(items) => items.len(),
            Value::String(text) => {
                self.budget.work(text.len())?;
                text.chars().count()
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                return Err(format!("{} has no items", kind(other)));
            }
        };
        let at = methods::position(whole("the index", index)?, length)?;
        if let Value::String(text) = item.value() {
            let c = text.chars().nth(at).unwrap_or_default();
            return self.budget.text(c.encode_utf8(&mut [0; 4])).map(Item::Made);
        }
        let part = item.part(self.budget, |value| value.get(at))?;
        part.ok_or_else(|| format!("there is no item {at}"))
    }
}

fn has_member(item: &Item<'_>, name: &str) -> bool {
    let beside = matches!(item, Item::Given(_, Some(members)) if members.contains_key(name));
    beside || item.value().get(name).is_some()
}

/// The members there are, in order.
fn member_names<'i>(item: &'i Item<'_>) -> Vec<&'i str> {
    let beside = match item {
        Item::Given(_, members) => *members,
        Item::Made(_) => None,
    };
    let own = item.value().as_object().into_iter().chain(beside);
    let mut names: Vec<&str> = own.flat_map(Map::keys).map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// What there is instead.
fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        return "there are none".to_owned();
    }
    let mut list: Vec<String> = names
        .iter()
        .take(LISTED)
        .map(|name| format!("`{name}`"))
        .collect();
    if names.len() > LISTED {
        list.push(format!("and {} more", names.len() - LISTED));
    }
    format!("there is {}", list.join(", "))
}
