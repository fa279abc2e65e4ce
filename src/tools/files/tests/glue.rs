use serde_json::json;

use super::Room;
use crate::config::ExecutorConfig;
use crate::domain::Call;
use crate::tools::files::{EDIT_FILE, LIST_DIR, READ_FILE, SEARCH_FILES, WRITE_FILE};
use crate::tools::files::{edit, list, read, search, write};
use crate::tools::{InputSchema, Place, ToolImpl};

/// Every output fits the schema that says what it is.
#[test]
fn outputs_fit_their_schemas() {
    let room = Room::new();
    room.put("f", "a\n");
    let config = ExecutorConfig::default();
    let edits = json!({"file_path": "f", "search_pattern": "a", "replacement": "b"});
    let checks = [
        (
            READ_FILE.details(&config),
            room.output(read::read_file, json!({"file_path": "f"})),
        ),
        (
            READ_FILE.details(&config),
            room.output(read::read_file, json!({"file_path": "f", "offset": 1})),
        ),
        (
            WRITE_FILE.details(&config),
            room.output(write::write_file, json!({"file_path": "g", "content": "a"})),
        ),
        (
            EDIT_FILE.details(&config),
            room.output(edit::edit_file, edits),
        ),
        (
            LIST_DIR.details(&config),
            room.output(list::list_dir, json!({})),
        ),
        (
            SEARCH_FILES.details(&config),
            room.output(search::search_files, json!({"pattern": "b"})),
        ),
    ];
    for (details, output) in checks {
        let schema = InputSchema::new(details.output_schema.expect("there is one"));
        let violations = schema.violations(&output);
        assert!(
            violations.is_empty(),
            "{}: {violations:?}",
            details.definition.name
        );
    }
}

#[test]
fn schemas_say_the_defaults_and_refuse_what_they_do_not_know() {
    let config = ExecutorConfig::default();
    for (details, given, filled) in [
        (
            WRITE_FILE.details(&config),
            json!({"file_path": "f", "content": "x"}),
            json!({"file_path": "f", "content": "x", "mode": "w", "create_dirs": false, "dry_run": false}),
        ),
        (
            LIST_DIR.details(&config),
            json!({}),
            json!({"dir_path": ".", "depth": 1, "show_hidden": false, "max_entries": 1000}),
        ),
    ] {
        let schema = InputSchema::new(details.definition.input_schema);
        let mut input = given;
        schema.fill_in(&mut input);
        assert_eq!(input, filled);
        assert!(
            schema.violations(&input).is_empty(),
            "{:?}",
            schema.violations(&input)
        );
        input["unknown"] = true.into();
        assert_eq!(schema.violations(&input)[0].pointer, "/unknown");
    }
}

#[test]
fn a_path_is_made_absolute_and_judged_by_where_it_leads() {
    let room = Room::new();
    room.put("dir/f", "x");
    std::os::unix::fs::symlink("dir", room.at("link")).expect("linked");
    let place = Place {
        working_dir: Some(room.root.join("base")),
        ..Place::default()
    };
    for (path, absolute, real) in [
        ("link/f", "link/f", "dir/f"),
        ("link/new/file", "link/new/file", "dir/new/file"),
        ("./link/", "link", "dir"),
    ] {
        let mut call = Call::new("write_file", json!({"file_path": path, "content": "x"}));
        let resolved = WRITE_FILE.resolve(&mut call, &place).expect("resolved");
        assert_eq!(resolved[0].absolute, room.at(absolute));
        assert_eq!(resolved[0].real, room.at(real), "{path}");
        let slash = if path.ends_with('/') { "/" } else { "" };
        let written = format!("{}{slash}", room.at(absolute).display());
        assert_eq!(call.input["file_path"], written);
    }
}
