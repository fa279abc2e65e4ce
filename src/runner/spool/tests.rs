use super::*;

fn spool(max_bytes: u64, total_bytes: u64) -> (PathBuf, Arc<Spool>) {
    let dir = std::env::temp_dir().join(format!("shelly-spool-{}", ExecutionId::new()));
    let config = SpoolConfig {
        dir: dir.clone(),
        max_bytes,
        total_bytes,
        lasting: false,
    };
    (
        dir,
        Arc::new(Spool::open(&config).expect("a temporary directory")),
    )
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
    let config = SpoolConfig {
        dir: dir.clone(),
        max_bytes: 10,
        total_bytes: 10,
        lasting: false,
    };
    Spool::open(&config).expect("cleared");
    assert!(theirs.iter().all(|name| dir.join(name).exists()));
    assert!(!dir.join(ours).exists());
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn what_lasts_is_found_again_until_it_is_removed() {
    let (dir, _) = spool(10, 10);
    let config = SpoolConfig {
        dir: dir.clone(),
        max_bytes: 60,
        total_bytes: 100,
        lasting: true,
    };
    let open = || Arc::new(Spool::open(&config).expect("opened"));
    let (old, new) = (ExecutionId::new(), ExecutionId::new());
    let first = open();
    first
        .create(old, "stdout")
        .expect("created")
        .append(&[b'a'; 50]);
    drop(first.store(old, &[b'c'; 30]).expect("stored"));
    drop(first);

    let second = open();
    assert_eq!(second.used(), 80);
    let stream = second.stream(old, StreamName::Stdout).expect("kept");
    assert_eq!(stream.len(), 50);
    drop(stream);
    // A stream gives way, the text for the model does not.
    let file = second.create(new, "stdout").expect("created");
    file.append(&[b'b'; 60]);
    assert_eq!((file.len(), second.used()), (60, 90));
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
    let file = SpoolFile {
        key: Key::new(ExecutionId::new(), "stdout"),
        path: dir.join("full"),
        writer: Mutex::new(OpenOptions::new().write(true).open("/dev/full").ok()),
        len: AtomicU64::new(0),
        evicted: AtomicBool::new(false),
        spool: Arc::clone(&spool),
    };
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
