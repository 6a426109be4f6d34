//! Shows the longest files and functions, so that growth is seen. It never fails.

use crate::repository::TextFile;

const SHOWN: usize = 10;

/// Prints the ten longest Rust files and functions.
pub(super) fn show(files: &[TextFile]) {
    let rust: Vec<&TextFile> = files.iter().filter(|file| file.path.ends_with(".rs")).collect();
    let lengths = rust.iter().map(|file| (file.text.lines().count(), file.path.clone())).collect();
    print("longest files", lengths);
    let functions = rust.iter().flat_map(|file| functions(file)).collect();
    print("longest functions", functions);
}

fn print(title: &str, mut lengths: Vec<(usize, String)>) {
    lengths.sort_by(|left, right| right.cmp(left));
    println!("{title} (lines):");
    for (length, name) in lengths.iter().take(SHOWN) {
        println!("  {length:>5}  {name}");
    }
}

/// Length and place of each function with a body of several lines.
///
/// In text laid out by rustfmt such a body ends at the first `}` that stands below the function's own first letter.
fn functions(file: &TextFile) -> Vec<(usize, String)> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", &line[..indent]);
        let Some(length) = lines[first..].iter().position(|line| *line == end || declares_only(line)) else {
            continue;
        };
        if lines[first + length] == end {
            found.push((length + 1, format!("{}:{} {name}", file.path, first + 1)));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "async", "extern", "\"C\""];
    let first = words.find(|word| !qualifiers.contains(word))?;
    if first != "fn" {
        return None;
    }
    words.next()?.split(['(', '<']).next()
}

/// A declaration without a body, or a whole function on one line.
fn declares_only(line: &str) -> bool {
    function_name(line).is_some() && (line.ends_with(';') || line.ends_with('}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(text: &str) -> Vec<(usize, String)> {
        functions(&TextFile { path: "a.rs".to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_function_is_measured_from_its_name_to_its_closing_brace() {
        let text = "impl A {\n    pub(crate) async fn run(\n        self,\n    ) {\n        if x {\n        }\n    }\n}\n";
        assert_eq!(measured(text), [(6, "a.rs:2 run".to_owned())]);
    }

    #[test]
    fn declarations_and_one_line_functions_have_no_length() {
        assert_eq!(measured("trait A {\n    fn a();\n    fn b() {}\n}\n"), []);
    }
}
