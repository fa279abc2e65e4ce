use std::fs::OpenOptions;
use std::path::Path;

use super::*;

/// What the history may hold wherever there is one.
const HISTORY: Option<u64> = Some(50);

fn config(max_bytes: u64, total_bytes: u64, lasting: bool) -> SpoolConfig {
    SpoolConfig {
        dir: std::env::temp_dir().join(format!("shelly-spool-{}", ExecutionId::new())),
        max_bytes,
        total_bytes,
        lasting,
    }
}

fn open(config: &SpoolConfig) -> Arc<Spool> {
    Arc::new(Spool::open(config, HISTORY).expect("a temporary directory"))
}

fn spool(max_bytes: u64, total_bytes: u64) -> (PathBuf, Arc<Spool>) {
    let config = config(max_bytes, total_bytes, false);
    let spool = open(&config);
    (config.dir, spool)
}

fn lasting(total_bytes: u64) -> (PathBuf, Arc<Spool>) {
    let config = config(total_bytes, total_bytes, true);
    let spool = open(&config);
    (config.dir, spool)
}

#[test]
fn a_stream_is_kept_up_to_its_bound() {
    let (dir, spool) = spool(10, 100);
    let file = spool.create(ExecutionId::new(), "stdout").expect("created");
    file.append(b"01234567");
    file.append(b"89ABCDEF");
    assert_eq!(std::fs::read(&file.path).expect("readable"), b"0123456789");
    file.finish();
    file.append(b"too late");
    assert_eq!((file.len(), spool.used.load(Ordering::Relaxed)), (10, 10));
    drop(file);
    assert_eq!(std::fs::read_dir(&dir).expect("there").count(), 0);
    std::fs::remove_dir_all(dir).expect("removable");
}

/// Whatever room there is later: what is kept is a beginning, without a gap.
#[test]
fn nothing_follows_what_did_not_fit() {
    for (max, total) in [(10, 100), (100, 10)] {
        let (dir, spool) = spool(max, total);
        let file = spool.create(ExecutionId::new(), "stdout").expect("created");
        file.append(b"01234567");
        assert!(file.has_room());
        file.append(b"89ABCDEF");
        spool.set_bounds(100, 100, 100);
        assert!(!file.has_room());
        file.append(b"too late");
        assert_eq!(std::fs::read(&file.path).expect("readable"), b"0123456789");
        assert_eq!((file.len(), spool.used()), (10, 10));
        drop(file);
        std::fs::remove_dir_all(dir).expect("removable");
    }
}

/// Each finds something to give up, though others give it up before.
#[test]
fn those_who_write_at_once_get_all_the_room_there_is() {
    const PIECE: [u8; 1000] = [b'n'; 1000];
    let (dir, spool) = lasting(2_000_000);
    let old = (0..2000).map(|_| spool.create(ExecutionId::new(), "stdout").expect("created"));
    old.for_each(|file| file.append(&PIECE));
    assert_eq!(spool.used(), 2_000_000);
    let lengths: Vec<u64> = thread::scope(|scope| {
        let writers = [(); 4].map(|()| {
            scope.spawn(|| {
                let file = spool.create(ExecutionId::new(), "stdout").expect("created");
                (0..450).for_each(|_| file.append(&PIECE));
                file.len()
            })
        });
        writers.map(|writer| writer.join().expect("written")).into()
    });
    assert_eq!(lengths, [450_000; 4]);
    assert!(spool.used() <= 2_000_000);
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn the_oldest_give_way_when_the_total_is_reached() {
    let (dir, spool) = spool(60, 100);
    let [a, b] = [(); 2].map(|()| spool.create(ExecutionId::new(), "stdout").expect("created"));
    a.append(&[b'a'; 60]);
    b.append(&[b'b'; 60]);
    assert!(a.is_evicted() && a.is_empty());
    assert_eq!(b.len(), 60);
    a.append(b"more");
    assert!(a.is_empty());
    assert_eq!(spool.used.load(Ordering::Relaxed), 60);
    drop((a, b));
    assert_eq!(spool.used.load(Ordering::Relaxed), 0);
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn only_files_of_a_spool_are_cleared_away() {
    let (dir, _) = spool(10, 10);
    let id = ExecutionId::new();
    let theirs = ["root", "cron.stdout", "a/b.stdout"];
    std::fs::create_dir(dir.join("a")).expect("writable");
    let ours = format!("{id}.stdout");
    for name in theirs.iter().copied().chain([&*ours]) {
        std::fs::write(dir.join(name), name).expect("writable");
    }
    open(&SpoolConfig {
        dir: dir.clone(),
        ..config(10, 10, false)
    });
    assert!(theirs.iter().all(|name| dir.join(name).exists()));
    assert!(!dir.join(ours).exists());
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn what_lasts_is_found_again_until_it_is_removed() {
    let config = config(60, 100, true);
    let dir = config.dir.clone();
    let open = || open(&config);
    let (old, new) = (ExecutionId::new(), ExecutionId::new());
    let first = open();
    first
        .create(old, "stdout")
        .expect("created")
        .append(&[b'a'; 50]);
    drop(first.store(old, &[b'c'; 30]).expect("stored"));
    drop(first);

    let second = open();
    assert_eq!(second.used(), 50);
    let stream = second.stream(old, StreamName::Stdout).expect("kept");
    assert_eq!(stream.len(), 50);
    drop(stream);
    // A stream gives way, the text for the model does not.
    let file = second.create(new, "stdout").expect("created");
    file.append(&[b'b'; 60]);
    assert_eq!((file.len(), second.used()), (60, 60));
    assert!(second.stream(old, StreamName::Stdout).is_none());
    drop(file);
    second.remove(old);
    assert!(second.content(old).is_none());
    assert_eq!(second.used(), 60);
    second.remove(new);
    assert_eq!(second.used(), 0);
    assert_eq!(std::fs::read_dir(&dir).expect("there").count(), 0);
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn a_full_disk_is_reported_and_costs_only_the_output() {
    let (dir, spool) = spool(100, 100);
    // /dev/full fails every write with ENOSPC (full(4)).
    let writer = OpenOptions::new().write(true).open("/dev/full");
    let key = Key::new(ExecutionId::new(), "stdout");
    let file = SpoolFile::new(&spool, key, writer.ok(), Size::default());
    file.append(b"x");
    assert!(file.is_empty());
    let problem = spool.problem().expect("reported");
    assert!(
        problem.detail.contains("No space left"),
        "{}",
        problem.detail
    );
    assert_eq!(spool.used.load(Ordering::Relaxed), 0);
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn to_write_nothing_does_not_make_it_well() {
    let (dir, spool) = spool(100, 100);
    let file = spool.create(ExecutionId::new(), "stdout").expect("created");
    spool.report("no space".to_owned());
    file.append(b"");
    assert!(spool.problem().is_some());
    file.append(b"x");
    assert_eq!(spool.problem(), None);
    drop(file);
    std::fs::remove_dir_all(dir).expect("removable");
}

/// Although nothing long is written any more.
#[test]
fn what_is_wrong_is_over_when_the_directory_takes_files_again() {
    let (dir, spool) = spool(100, 100);
    std::fs::remove_dir(&dir).expect("empty");
    std::fs::write(&dir, "no directory").expect("written");
    assert!(spool.create(ExecutionId::new(), "stdout").is_none());
    let problem = spool.problem().expect("reported");
    assert!(!spool.wants_probe(), "who looks is to see it");
    let probe = || {
        while !spool.wants_probe() {
            thread::sleep(Duration::from_millis(10));
        }
        spool.probe();
    };
    probe();
    assert_eq!(spool.problem(), Some(problem));
    std::fs::remove_file(&dir).expect("ours");
    probe();
    assert_eq!(spool.problem(), None);
    assert_eq!((names(&dir), spool.used()), (vec![], 0));
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn what_it_was_tried_with_goes_with_the_next_start() {
    let config = config(100, 100, true);
    drop(open(&config));
    std::fs::write(config.dir.join(PROBE), "left").expect("written");
    let spool = open(&config);
    assert_eq!((names(&config.dir), spool.used()), (vec![], 0));
    std::fs::remove_dir_all(&config.dir).expect("removable");
}

/// A daemon that was killed had written nothing to them yet.
#[test]
fn what_is_empty_goes_with_the_next_start() {
    let config = config(100, 100, true);
    let (spool, id) = (open(&config), ExecutionId::new());
    for suffix in ["stdout", "stderr-draft", CONTENT] {
        drop(spool.create(id, suffix).expect("created"));
    }
    let stream = spool.create(id, "stderr").expect("created");
    stream.append(b"said");
    drop((stream, spool));
    let spool = open(&config);
    assert_eq!(names(&config.dir), [format!("{id}.stderr")]);
    let kept = spool.stream(id, StreamName::Stderr).expect("kept");
    assert_eq!((kept.len(), spool.used()), (4, 4));
    assert!(spool.stream(id, StreamName::Stdout).is_none());
    std::fs::remove_dir_all(&config.dir).expect("removable");
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("there");
    let name = |entry: io::Result<std::fs::DirEntry>| entry.expect("read").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn texts_take_no_room_from_streams() {
    let (dir, spool) = lasting(100);
    let id = ExecutionId::new();
    let text = spool.store(id, &[b'a'; 150]).expect("stored");
    let stream = spool.create(id, "stdout").expect("created");
    stream.append(&[b'b'; 100]);
    assert_eq!((text.len(), stream.len(), spool.used()), (150, 100, 100));
    drop((text, stream, spool));
    let spool = open(&SpoolConfig {
        dir: dir.clone(),
        ..config(100, 100, true)
    });
    assert_eq!(spool.used(), 100);
    spool.remove(id);
    assert_eq!((spool.used(), names(&dir)), (0, vec![]));
    std::fs::remove_dir_all(dir).expect("removable");
}

/// The texts of a history that nothing can be forgotten of do not fill the disk.
#[test]
fn texts_have_a_bound_of_their_own_where_nothing_is_forgotten() {
    let (dir, spool) = lasting(100);
    let ids = [(); 3].map(|()| ExecutionId::new());
    let stored = ids.map(|id| spool.store(id, &[b'a'; 60]).is_some());
    // 50 of the history and 100 besides.
    assert_eq!(stored, [true, true, false]);
    spool.remove(ids[0]);
    assert!(spool.store(ids[2], &[b'a'; 60]).is_some());
    assert_eq!(spool.ids(), ids[1..]);
    std::fs::remove_dir_all(dir).expect("removable");
}

/// A daemon that was killed had just begun to write the whole.
#[test]
fn a_draft_that_has_more_is_what_there_is() {
    let (dir, spool) = lasting(100);
    let id = ExecutionId::new();
    let draft = spool.draft(id, StreamName::Stdout).expect("created");
    draft.append(b"so far");
    let whole = spool.create(id, "stdout").expect("created");
    whole.append(b"so");
    let told = |length| {
        let file = spool.stream(id, StreamName::Stdout).expect("there");
        assert_eq!(file.len(), length);
    };
    told(6);
    whole.append(b" far");
    told(6);
    whole.append(b" and on");
    told(13);
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn one_that_was_given_up_says_nothing_of_its_successor() {
    let (dir, spool) = lasting(100);
    let id = ExecutionId::new();
    let old = spool.create(id, "stdout").expect("created");
    old.evict();
    let new = spool.create(id, "stdout").expect("created");
    new.append(b"new");
    drop(new);
    drop(old);
    let kept = spool.stream(id, StreamName::Stdout).expect("kept");
    assert_eq!(kept.len(), 3);
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn what_did_not_fit_is_known_to_the_next_daemon() {
    let config = config(10, 100, true);
    let spool = open(&config);
    let [whole, cut, passed_over] = [(); 3].map(|()| ExecutionId::new());
    for (id, pieces) in [(whole, 1), (cut, 2), (passed_over, 1)] {
        let file = spool.create(id, "stdout").expect("created");
        (0..pieces).for_each(|_| file.append(b"0123456789"));
        if id == passed_over {
            file.cut();
        }
        assert_eq!((file.len(), file.is_cut()), (10, id != whole));
    }
    drop(spool);
    let next = open(&config);
    for id in [whole, cut, passed_over] {
        let file = next.stream(id, StreamName::Stdout).expect("kept");
        assert_eq!((file.len(), file.is_cut()), (10, id != whole));
    }
    std::fs::remove_dir_all(&config.dir).expect("ours");
}
