//! The writer by itself, with a disk that fails when it is told to.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::queue::Shared;
use super::super::store::{Fault, Store};
use super::super::work::{Failing, Work};
use super::super::{file, writer::Writer};
use super::*;

fn writer(scratch: &Scratch) -> Writer {
    let file = scratch.file();
    // Makes it.
    drop(scratch.open());
    let store = Store::new(file::open_to_write(&file, "NORMAL").expect("a file")).expect("read");
    let shared = Shared::new(file, store.head, 1);
    Writer::new(store, Arc::new(shared))
}

/// Appends to the trail what it is called, or meets the troubles it is given, one at each try.
struct Write {
    name: &'static str,
    troubles: Vec<LedgerError>,
    told: Arc<Mutex<Vec<(&'static str, bool)>>>,
    /// What it holds that may be long, and can be done without.
    held: usize,
}

impl Work for Write {
    fn apply(&mut self, store: &mut Store) -> Result<(), Fault> {
        store.append(self.name, None, 0, &json!({}))?;
        self.troubles
            .pop()
            .map_or(Ok(()), |error| Err(Fault::Refused(error)))
    }

    fn acknowledge(&mut self, committed: Result<(), LedgerError>) {
        self.told.lock().push((self.name, committed.is_ok()));
    }

    fn failing(&self) -> Failing {
        Failing::kept(self.held)
    }

    fn secure(&mut self) {}

    fn lighten(&mut self) {
        (self.name, self.held) = ("lightened", 0);
    }
}

fn kinds(writer: &Writer) -> Vec<(i64, String)> {
    let connection = writer.connection();
    let mut all = connection
        .prepare("SELECT number, kind FROM audit ORDER BY number")
        .expect("SQL");
    let rows = all
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("read");
    rows.collect::<Result<_, _>>().expect("rows")
}

fn unwritable() -> LedgerError {
    let detail = "disk I/O error".to_owned();
    LedgerError::Unwritable {
        file: PathBuf::new(),
        detail,
    }
}

fn refused() -> LedgerError {
    LedgerError::NotOpen {
        id: ExecutionId::new(),
    }
}

#[test]
fn what_comes_behind_what_the_disk_refuses_waits_for_it() {
    let scratch = Scratch::new();
    let mut writer = writer(&scratch);
    let told = Arc::default();
    let write = |name, troubles| -> Box<dyn Work> {
        let told = Arc::clone(&told);
        Box::new(Write {
            name,
            troubles,
            told,
            held: 0,
        })
    };
    writer.write(vec![
        write("never", vec![refused(), refused()]),
        write("begun", vec![unwritable()]),
        write("ended", vec![]),
    ]);
    assert_eq!(kinds(&writer), []);
    writer.write(vec![write("later", vec![])]);
    let expected = ["begun", "ended", "later"];
    let found = kinds(&writer);
    assert_eq!(
        found
            .iter()
            .map(|(_, kind)| kind.as_str())
            .collect::<Vec<_>>(),
        expected
    );
    assert_eq!(
        *told.lock(),
        [
            ("never", false),
            ("begun", false),
            ("ended", false),
            ("begun", true),
            ("ended", true),
            ("later", true)
        ]
    );
}

/// Only what the rest of it would take the room of.
#[test]
fn what_there_is_no_room_for_is_kept_without_its_text() {
    let scratch = Scratch::new();
    let mut writer = writer(&scratch);
    let write = |name, troubles, held| -> Box<dyn Work> {
        Box::new(Write {
            name,
            troubles,
            told: Arc::default(),
            held,
        })
    };
    writer.write(vec![
        write("first", vec![unwritable()], 40 << 20),
        write("second", vec![], 40 << 20),
        write("third", vec![], 20 << 20),
    ]);
    assert_eq!(kinds(&writer), []);
    writer.write(Vec::new());
    let found = kinds(&writer);
    let kinds: Vec<&str> = found.iter().map(|(_, kind)| kind.as_str()).collect();
    assert_eq!(kinds, ["first", "lightened", "third"]);

    // However little room is left, there is some for what is light.
    let of_8_kib = (0..9000).map(|_| write("whole", vec![], 8 << 10));
    let trouble = [write("whole", vec![unwritable()], 8 << 10)];
    writer.write(trouble.into_iter().chain(of_8_kib).collect());
    writer.write(Vec::new());
    let count = |name: &str| {
        self::kinds(&writer)
            .iter()
            .filter(|(_, kind)| kind == name)
            .count()
    };
    assert_eq!(
        (count("whole"), count("lightened")),
        (8192, 1 + 9001 - 8192)
    );
}

#[test]
fn what_came_to_nothing_is_not_built_on_where_the_file_cannot_be_read_either() {
    let scratch = Scratch::new();
    let mut writer = writer(&scratch);
    let told = Arc::default();
    let write = |name, troubles| -> Vec<Box<dyn Work>> {
        let told = Arc::clone(&told);
        vec![Box::new(Write {
            name,
            troubles,
            told,
            held: 0,
        })]
    };
    writer.write(write("first", vec![]));
    // Read in its place, this has nothing of it.
    writer
        .connection()
        .execute_batch("CREATE TEMP TABLE facets (none)")
        .expect("SQL");
    writer.write(write("second", vec![unwritable()]));
    writer.write(write("third", vec![]));
    assert_eq!(kinds(&writer), [(1, "first".to_owned())]);
    writer
        .connection()
        .execute_batch("DROP TABLE temp.facets")
        .expect("SQL");
    writer.write(write("fourth", vec![]));
    let found = kinds(&writer);
    assert!(
        found
            .iter()
            .map(|(number, _)| *number)
            .eq(1..=found.len() as i64),
        "{found:?}"
    );
    let kinds: Vec<&str> = found.iter().map(|(_, kind)| kind.as_str()).collect();
    assert_eq!(kinds, ["first", "second", "third", "fourth"]);
}
