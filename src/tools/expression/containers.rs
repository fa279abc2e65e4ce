//! The methods of lists and dicts.

use serde_json::{Map, Value};

use super::budget::Budget;
use super::callable::{Callable, text_of};
use super::measure::{ITEM_BYTES, TEXT_BYTES, cost};
use super::operators::equal;

type Made = Result<Value, String>;
type Dict = Map<String, Value>;

pub(super) static LIST: &[Callable<[Value]>] = &[
    Callable {
        name: "count",
        least: 1,
        most: 1,
        run: count,
    },
    Callable {
        name: "index",
        least: 1,
        most: 1,
        run: index,
    },
];

pub(super) static DICT: &[Callable<Dict>] = &[
    Callable {
        name: "get",
        least: 1,
        most: 2,
        run: get,
    },
    Callable {
        name: "items",
        least: 0,
        most: 0,
        run: items,
    },
    Callable {
        name: "keys",
        least: 0,
        most: 0,
        run: keys,
    },
    Callable {
        name: "values",
        least: 0,
        most: 0,
        run: values,
    },
];

fn count(list: &[Value], args: &[&Value], budget: &mut Budget) -> Made {
    let mut count = 0;
    for item in list {
        count += usize::from(equal(item, args[0], budget)?);
    }
    Ok(count.into())
}

fn index(list: &[Value], args: &[&Value], budget: &mut Budget) -> Made {
    for (at, item) in list.iter().enumerate() {
        if equal(item, args[0], budget)? {
            return Ok(at.into());
        }
    }
    Err("index() of what is not in the list".to_owned())
}

fn get(dict: &Dict, args: &[&Value], budget: &mut Budget) -> Made {
    let name = text_of("the key", args[0])?;
    match (dict.get(name), args.get(1)) {
        (Some(value), _) => budget.copy(value),
        (None, Some(default)) => budget.copy(default),
        (None, None) => Ok(Value::Null),
    }
}

fn items(dict: &Dict, _: &[&Value], budget: &mut Budget) -> Made {
    let mut all = Vec::new();
    for (name, value) in dict {
        budget.make(TEXT_BYTES + TEXT_BYTES + ITEM_BYTES + name.len() + cost(value)?)?;
        all.push(Value::Array(vec![name.clone().into(), value.clone()]));
    }
    Ok(Value::Array(all))
}

fn keys(dict: &Dict, _: &[&Value], budget: &mut Budget) -> Made {
    let keys: Result<_, _> = dict.keys().map(|name| budget.text(name)).collect();
    keys.map(Value::Array)
}

fn values(dict: &Dict, _: &[&Value], budget: &mut Budget) -> Made {
    let values: Result<_, _> = dict.values().map(|value| budget.copy(value)).collect();
    values.map(Value::Array)
}
