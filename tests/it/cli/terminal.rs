//! shellyctl on a terminal, as a person has it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::shellyctl;
use crate::support::{Daemon, wait_for, wait_until};

/// A terminal of 100 columns and 40 lines with shellyctl on it.
pub struct Terminal {
    pub child: Child,
    keyboard: File,
    /// Held, so that it lasts until all has been read.
    slave: Option<File>,
    reader: Option<JoinHandle<()>>,
    seen: Arc<Mutex<String>>,
    told: usize,
}

impl Terminal {
    pub fn start(daemon: &Daemon, args: &[&str]) -> Self {
        let (master, slave) = terminal();
        let end = || slave.try_clone().expect("a descriptor");
        let mut command = shellyctl(daemon.socket(), args);
        command.env("TERM", "xterm");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("shellyctl starts");
        drop(command);
        let keyboard = master;
        let mut screen = keyboard.try_clone().expect("a descriptor");
        let seen = Arc::new(Mutex::new(String::new()));
        let written = seen.clone();
        // Ends when nobody has the other side any more.
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                written.lock().expect("not poisoned").push_str(&text);
            }
        });
        Self {
            child,
            keyboard,
            slave: Some(slave),
            reader: Some(reader),
            seen,
            told: 0,
        }
    }

    /// Waits until `text` appears behind what was expected before.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let found = wait_for(&format!("{text:?} on the terminal"), || {
            let seen = self.seen.lock().expect("not poisoned");
            seen[self.told..].find(text)
        });
        self.told += found + text.len();
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal is there");
    }

    /// Whether lines are edited and shown as they are typed, as a shell wants it.
    pub fn is_sane(&self) -> bool {
        let slave = self.slave.as_ref().expect("it has not ended");
        let modes = tcgetattr(slave).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end, and gives the exit code and all that was seen.
    #[track_caller]
    pub fn end(mut self) -> (Option<i32>, String) {
        let status = wait_for("shellyctl has ended", || {
            self.child.try_wait().expect("waitable")
        });
        // Once nobody has it any more, the reader comes to its end.
        drop(self.slave.take());
        let reader = self.reader.take().expect("it has not ended");
        wait_until("all has been read", || reader.is_finished());
        let seen = self.seen.lock().expect("not poisoned").clone();
        (status.code(), seen)
    }
}

/// Both sides of a new terminal. Neither is inherited by what other tests start meanwhile, which
/// would keep it open.
fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("a terminal");
    grantpt(&master).expect("a terminal");
    unlockpt(&master).expect("a terminal");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let mut open = OpenOptions::new();
    open.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let slave = open
        .open(name.to_str().expect("UTF-8"))
        .expect("its other side");
    let size = Winsize {
        ws_row: 40,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size).expect("a size");
    (File::from(master), slave)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- on the terminal\n{:?}", self.seen.lock());
        }
    }
}
