//! Paths as text: no link is followed and nothing is looked up.

use std::path::Path;

/// `path` made absolute below `base`, without `.`, `..` and doubled slashes; none when it is
/// relative and `base` is not known.
pub(super) fn absolute(path: &str, base: Option<&Path>) -> Option<String> {
    let base = match path.starts_with('/') {
        true => "",
        false => base?.to_str()?,
    };
    let mut names: Vec<&str> = Vec::new();
    for name in base.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    Some(format!("/{}", names.join("/")))
}

/// Whether `path` goes up somewhere: over a link, that leads elsewhere than the text says.
pub(super) fn goes_up(path: &str) -> bool {
    path.split('/').any(|name| name == "..")
}

/// The last component.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_in_order() {
        let base = Some(Path::new("/srv/app"));
        for (path, expected) in [
            ("x", "/srv/app/x"),
            ("./a//b/.", "/srv/app/a/b"),
            ("../../../etc/passwd", "/etc/passwd"),
            ("/tmp/../etc/shadow", "/etc/shadow"),
            ("//etc/shadow", "/etc/shadow"),
        ] {
            assert_eq!(absolute(path, base).as_deref(), Some(expected));
        }
        assert_eq!(absolute("x", None), None);
    }
}
