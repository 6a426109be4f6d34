//! The table on the terminal, in Markdown, so that it can be put into a document as it is.

use std::fmt::Write as _;

use super::bars::{Better, PEERS, Row, number};

/// The rows as a table.
pub(super) fn of(rows: &[Row]) -> String {
    let columns: Vec<&str> =
        PEERS.into_iter().filter(|peer| rows.iter().any(|row| figure(row, peer).is_some())).collect();
    let mut lines = vec![header(&columns)];
    lines.extend(rows.iter().map(|row| cells(row, &columns)));
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default())
        .collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

fn header(columns: &[&str]) -> Vec<String> {
    let before = std::iter::once("measure").chain(columns.iter().copied());
    before.chain(["judged", "must", "goal", "reached"]).map(str::to_owned).collect()
}

fn cells(row: &Row, columns: &[&str]) -> Vec<String> {
    let mut cells = vec![row.measure.clone()];
    cells.extend(columns.iter().map(|peer| figure(row, peer).unwrap_or_default()));
    cells.push(format!("{} {}", number(row.value), row.unit));
    let sign = match row.bar.better {
        Better::More => '≥',
        Better::Less => '≤',
    };
    let bound = |bound: Option<f64>| bound.map(|bound| format!("{sign} {bound}")).unwrap_or_default();
    cells.extend([bound(row.bar.must), bound(row.bar.goal), row.mark().word().to_owned()]);
    cells
}

/// The text of a peer's figure.
fn figure(row: &Row, peer: &str) -> Option<String> {
    row.peers.iter().find(|(name, _)| *name == peer).map(|(_, text)| text.clone())
}

#[cfg(test)]
mod tests {
    use super::super::bars::Bar;
    use super::*;

    #[test]
    fn columns_that_no_row_has_are_left_out() {
        let row = Row {
            measure: "a".to_owned(),
            peers: vec![("nginx", "7".to_owned())],
            value: 0.5,
            unit: "× nginx",
            bar: Bar::at_least(0.6, 1.0),
        };
        let table = of(&[row]);
        assert!(table.starts_with("| measure | nginx | judged"), "{table}");
        assert!(table.contains("| a       | 7     | 0.50 × nginx | ≥ 0.6 | ≥ 1  | MISSED  |"), "{table}");
    }
}
